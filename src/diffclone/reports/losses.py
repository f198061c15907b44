"""Figure of the loss curves: L_BC and L_DM while minimising one of them, the other, or both."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from diffclone.experiments.results import ResultTable
from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, number_ticks, put_legend
from diffclone.reports.spiral import COLOURS, LINE_STYLES, kind_of, label_of
from diffclone.reports.theme import LIGHT

LOSSES = ("L_BC", "L_DM")


def draw_losses(sheet: ResultTable) -> list[PageFigure]:
    """Draw one panel per loss and one line per policy, with the range over seeds."""
    records = sheet.measured.get("curves", ())
    if not records:
        return []
    description: dict[str, list[str]] = {}

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 6.0) if narrow else (9.6, 3.6))) as figure:
            panels = figure.subplots(*((len(LOSSES), 1) if narrow else (1, len(LOSSES))))
            for k, (axes, loss) in enumerate(zip(panels, LOSSES, strict=True)):
                ends: list[str] = []
                for record in records:
                    if loss not in record.results["losses"]:
                        continue
                    label, updates = label_of(record), record.results["updates"]
                    values = np.asarray(record.results["losses"][loss], dtype=np.float64).reshape(len(updates), -1)
                    colour, style = LIGHT[COLOURS[kind_of(label)]], LINE_STYLES[kind_of(label)]
                    axes.plot(updates, values.mean(1), color=colour, linestyle=style, linewidth=1.3, label=label)
                    axes.fill_between(updates, values.min(1), values.max(1), color=colour, alpha=0.15, linewidth=0)
                    ends.append(f"{label} {values[-1].mean():.4g}")
                axes.set_title(f"({'ab'[k]}) {loss}", loc="left")
                axes.set_xlabel("updates")
                axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 5))
                number_ticks(axes.xaxis)
                if ends:
                    lowest = min(float(np.min(line.get_ydata())) for line in axes.get_lines())
                    axes.set_yscale("log" if lowest > 0 else "linear")
                    number_ticks(axes.yaxis, log=lowest > 0)
                    description[loss] = ends
            put_legend(figure, narrow=narrow)
        return figure

    caption = f"{sheet.title}: mean over seeds, and their range."
    found = draw_twice(sheet.name, draw, caption, "")
    words = [f"{loss} at the end: {', '.join(ends)}." for loss, ends in description.items()]
    return [replace(found, description=" ".join(words))]
