"""A table as a figure: one panel per column, one dot per row with its interval, the paper's number beside it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from diffclone.experiments.results import ComparedCell, ResultTable
from diffclone.reports.figures import PageFigure, new_figure
from diffclone.reports.numbers import column_cells, common_unit, format_number, format_printed, unit_label
from diffclone.reports.theme import LIGHT

LOG_UNITS = ("episodes/s", "ms")
PANELS_PER_ROW = 3


def draw_dot_plots(sheet: ResultTable) -> list[PageFigure]:
    """Draw the table of an experiment; no figure where there is no number yet."""
    known = [
        (title, [line for line in cells if line[1].ours or line[1].printed]) for title, cells in list_panels(sheet)
    ]
    panels = [panel for panel in known if any(cell.ours for _, cell in panel[1])]
    if not panels:
        return []
    compare = not sheet.quick
    across = min(PANELS_PER_ROW, len(panels))
    down = -(-len(panels) // across)
    most = max(len(cells) for _, cells in panels)
    with new_figure(3.6 * across + 0.4, down * (0.3 * most + 1.0)) as figure:
        for k, (title, cells) in enumerate(panels):
            axes = figure.add_subplot(down, across, k + 1)
            _draw_panel(axes, cells, compare=compare)
            axes.set_title(title, loc="left")
        figure.tight_layout()
        figure.legend(handles=_legend(compare=compare), loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    paper = ", and the paper's with its standard deviation (diamond, dashed)" if compare else ""
    caption = f"{sheet.title}: our mean with its 95 % interval (dot){paper}."
    return [PageFigure(sheet.name, figure, caption, " ".join(_describe(*panel, compare=compare) for panel in panels))]


def list_panels(sheet: ResultTable) -> list[tuple[str, list[tuple[str, ComparedCell]]]]:
    """Return titles, and labelled cells of one unit each. A table of a single row is one panel."""
    if len(sheet.rows) == 1 and common_unit(sheet.cells) is not None:
        title = sheet.rows[0] or unit_label(sheet.cells[0].unit)
        return [(title, [(cell.column, cell) for cell in sheet.cells])]
    panels: dict[tuple[str, str], list[tuple[str, ComparedCell]]] = {}
    for column in sheet.columns:
        for cell in column_cells(sheet, column):
            panels.setdefault((column, cell.unit), []).append((cell.row, cell))
    repeated = {column for column, _ in panels if sum(other == column for other, _ in panels) > 1}
    return [
        (f"{column}, {unit_label(unit)}" if column in repeated and unit != column else column, cells)
        for (column, unit), cells in panels.items()
    ]


def _draw_panel(axes: Axes, cells: Sequence[tuple[str, ComparedCell]], *, compare: bool) -> None:
    for y, (_, cell) in enumerate(cells):
        if cell.ours is not None:
            ours, ends = cell.ours.mean, [[cell.ours.mean - cell.ours.low], [cell.ours.high - cell.ours.mean]]
            axes.errorbar(ours, y - 0.12, xerr=np.maximum(ends, 0), fmt="o", color=LIGHT["blue"], markersize=5)
        if compare and cell.printed is not None:
            bars = axes.errorbar(
                cell.printed.mean,
                y + 0.12,
                xerr=cell.printed.sd,
                fmt="D",
                color=LIGHT["soft"],
                markerfacecolor="none",
                markersize=4.5,
            )
            for line in bars.lines[2]:
                line.set_linestyle("--")
    axes.set_yticks(range(len(cells)), [label for label, _ in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.grid(axis="x", color=LIGHT["line"], linewidth=0.6)
    axes.set_axisbelow(True)
    unit = cells[0][1].unit
    axes.set_xlabel(unit_label(unit))
    if unit in LOG_UNITS and all(cell.ours is None or cell.ours.low > 0 for _, cell in cells):
        axes.set_xscale("log")


def _legend(*, compare: bool) -> list[Line2D]:
    ours = Line2D([], [], marker="o", color=LIGHT["blue"], label="ours")
    paper = Line2D([], [], marker="D", linestyle="--", color=LIGHT["soft"], markerfacecolor="none", label="the paper")
    return [ours, paper] if compare else [ours]


def _describe(title: str, cells: Sequence[tuple[str, ComparedCell]], *, compare: bool) -> str:
    known = [(label, cell.ours.mean, cell) for label, cell in cells if cell.ours is not None]
    known.sort(key=lambda entry: -entry[1])
    ends = known[:1] if len(known) == 1 else [known[0], known[-1]]
    words = ["highest", "lowest"] if len(ends) == 2 else ["only"]
    parts = [
        f"{word} {label}, {format_number(mean, cell.unit)}"
        + (f" (the paper {format_printed(cell.printed, cell.unit)})" if compare and cell.printed is not None else "")
        for word, (label, mean, cell) in zip(words, ends, strict=True)
    ]
    return f"{title}: {'; '.join(parts)}."
