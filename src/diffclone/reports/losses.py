"""Both losses while training with one of them, the other, and both: a panel a loss, a line a policy."""

import numpy as np

from diffclone.experiments.sheet import Sheet
from diffclone.reports.drawing import Drawing, drawn
from diffclone.reports.spiral import COLOURS, STYLES, kind_of, label_of
from diffclone.reports.theme import LIGHT

LOSSES = ("L_BC", "L_DM")


def draw_losses(sheet: Sheet) -> list[Drawing]:
    """Two panels."""
    records = sheet.measured.get("curves", ())
    if not records:
        return []
    says: list[str] = []
    with drawn(9.6, 3.4) as figure:
        for place, (axes, loss) in enumerate(zip(figure.subplots(1, len(LOSSES)), LOSSES, strict=True)):
            ends: list[str] = []
            for record in records:
                label = label_of(record)
                if loss not in record.results["losses"]:
                    continue
                updates = record.results["updates"]
                values = np.asarray(record.results["losses"][loss], dtype=np.float64).reshape(len(updates), -1)
                kind = kind_of(label)
                colour = LIGHT[COLOURS[kind]]
                axes.plot(updates, values.mean(1), color=colour, linestyle=STYLES[kind], linewidth=1.3, label=label)
                axes.fill_between(updates, values.min(1), values.max(1), color=colour, alpha=0.15, linewidth=0)
                ends.append(f"{label} {values[-1].mean():.4g}")
            axes.set_title(f"({'ab'[place]}) {loss}", loc="left")
            axes.set_xlabel("updates")
            if ends:
                lowest = min(float(np.min(line.get_ydata())) for line in axes.get_lines())
                axes.set_yscale("log" if lowest > 0 else "linear")
                axes.legend()
                says.append(f"{loss} at the end: {', '.join(ends)}.")
        figure.tight_layout()
    caption = f"{sheet.title}: mean over seeds, and their range."
    return [Drawing(sheet.name, figure, caption, " ".join(says))]
