"""Success along training: one line per method over the number of updates, with the chosen snapshot marked."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diffclone.experiments.study.results import Estimate, chosen_estimate, training_length
from diffclone.records import Record
from diffclone.reports.curves import choose_series
from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, number_ticks, put_legend
from diffclone.reports.numbers import format_number, unit_label
from diffclone.reports.theme import LIGHT
from diffclone.tasks import TASKS


def draw_training_lengths(records: Sequence[Record]) -> list[PageFigure]:
    """Draw one figure per setting that has Records of fresh seeds, in the order of the Records.

    The small study has none along training.
    """
    records = [r for r in records if not r.results.get("small")]
    settings = dict.fromkeys(str(r.results["setting"]) for r in records if r.results.get("study") == "fresh")
    figures = [draw_training_length(records, setting) for setting in settings]
    return [figure for figure in figures if figure is not None]


def draw_training_length(records: Sequence[Record], setting: str) -> PageFigure | None:
    """Draw the fresh seeds of all methods on a setting at every snapshot; None if there are none yet."""
    own = [r for r in records if r.results.get("setting") == setting and r.results.get("study") == "fresh"]
    methods = dict.fromkeys(str(r.results["method"]) for r in own)
    lines = {method: training_length(own, "fresh", setting, method) for method in sorted(methods)}
    lines = {method: line for method, line in lines.items() if len(line) > 1}
    if not lines:
        return None
    unit = TASKS[own[0].results["task"]].metric
    series = choose_series(list(lines))
    updates = sorted({point.snapshot for line in lines.values() for point in line})

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 3.4) if narrow else (8.0, 4.2))) as figure:
            axes = figure.add_subplot()
            for method, line in lines.items():
                colour, marker = series[method]
                chosen = chosen_estimate(own, setting, method)
                _draw_line(axes, method, line, None if chosen is None else chosen.snapshot, LIGHT[colour], marker)
            axes.set_xscale("log")
            shown = updates[:: 2 if narrow and len(updates) > 5 else 1]
            axes.set_xticks(shown, [f"{update:,}" for update in shown])
            axes.minorticks_off()
            axes.set_xlabel("updates")
            axes.set_ylabel(unit_label(unit))
            number_ticks(axes.yaxis)
            if unit == "success":
                axes.set_ylim(-3, 103)
            axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
            put_legend(figure, narrow=narrow)
        return figure

    first = next(iter(lines.values()))[0].outcomes
    caption = (
        f"{setting}: {unit_label(unit)} along training. Fresh seeds ({first.shape[0]}), the first {first.shape[1]} "
        "evaluation starts, 95 % intervals over seeds and starts. A ring marks the snapshot that tuning chose."
    )
    described = " ".join(_describe(method, line, unit) for method, line in lines.items())
    return draw_twice(f"training-length-{setting}", draw, caption, described)


def _draw_line(axes: Axes, method: str, line: Sequence[Estimate], chosen: int | None, colour: str, marker: str) -> None:
    updates = [point.snapshot for point in line]
    untuned = "untuned" in method
    style, face = (":", "none") if untuned else ("-", colour)
    means: Any = [point.mean for point in line]
    axes.plot(updates, means, style, color=colour, marker=marker, markerfacecolor=face, markersize=4.5, label=method)
    low, high = zip(*(point.interval for point in line), strict=True)
    axes.fill_between(updates, low, high, color=colour, alpha=0.1, linewidth=0)
    ring = [(point.snapshot, point.mean) for point in line if point.snapshot == chosen]
    if ring:
        axes.plot(*ring[0], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=colour)


def _describe(method: str, line: Sequence[Estimate], unit: str) -> str:
    values = ", ".join(f"{format_number(point.mean, unit)} at {point.snapshot:,}" for point in line)
    return f"{method}: {values}."
