"""A table as a figure: a panel a column, a dot a row with its interval, the paper's beside it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from diffclone.experiments.sheet import Compared, Sheet
from diffclone.reports.drawing import Drawing, drawn
from diffclone.reports.theme import LIGHT
from diffclone.reports.words import column_cells, number, printed, unit_name, unit_of

LOGARITHMIC = ("episodes/s", "ms")
ACROSS = 3
"""Panels in a row."""


def draw_dots(sheet: Sheet) -> list[Drawing]:
    """One figure, or none where there is no number yet."""
    panels = [panel for panel in panels_of(sheet) if any(cell.ours for _, cell in panel[1])]
    if not panels:
        return []
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    most = max(len(cells) for _, cells in panels)
    with drawn(3.6 * across + 0.4, down * (0.3 * most + 1.0)) as figure:
        for place, (title, cells) in enumerate(panels):
            axes = figure.add_subplot(down, across, place + 1)
            draw_panel(axes, cells, compare=not sheet.quick)
            axes.set_title(title, loc="left")
        figure.tight_layout()
        figure.legend(handles=legend(compare=not sheet.quick), loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    beside = "" if sheet.quick else ", and the paper's with its standard deviation (diamond, dashed)"
    caption = f"{sheet.title}: our mean with its 95 % interval (dot){beside}."
    return [
        Drawing(sheet.name, figure, caption, " ".join(in_words(*panel, compare=not sheet.quick) for panel in panels))
    ]


def panels_of(sheet: Sheet) -> list[tuple[str, list[tuple[str, Compared]]]]:
    """Titles, and cells by their labels: a panel has one unit. A table of a single row is one panel."""
    if len(sheet.rows) == 1 and unit_of(sheet.cells) is not None:
        title = sheet.rows[0] or unit_name(sheet.cells[0].unit)
        return [(title, [(cell.column, cell) for cell in sheet.cells])]
    panels: dict[tuple[str, str], list[tuple[str, Compared]]] = {}
    for column in sheet.columns:
        for cell in column_cells(sheet, column):
            panels.setdefault((column, cell.unit), []).append((cell.row, cell))
    return [(column, cells) for (column, _), cells in panels.items()]


def draw_panel(axes: Axes, cells: Sequence[tuple[str, Compared]], *, compare: bool) -> None:
    """Rows from top to bottom."""
    for y, (_, cell) in enumerate(cells):
        if cell.ours is not None:
            ours, ends = cell.ours.mean, [[cell.ours.mean - cell.ours.low], [cell.ours.high - cell.ours.mean]]
            axes.errorbar(ours, y - 0.12, xerr=np.maximum(ends, 0), fmt="o", color=LIGHT["red"], markersize=5)
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
    axes.set_xlabel(unit_name(unit))
    if unit in LOGARITHMIC and all(cell.ours is None or cell.ours.low > 0 for _, cell in cells):
        axes.set_xscale("log")


def legend(*, compare: bool) -> list[Line2D]:
    """What the marks mean."""
    ours = Line2D([], [], marker="o", color=LIGHT["red"], label="ours")
    paper = Line2D([], [], marker="D", linestyle="--", color=LIGHT["soft"], markerfacecolor="none", label="the paper")
    return [ours, paper] if compare else [ours]


def in_words(title: str, cells: Sequence[tuple[str, Compared]], *, compare: bool) -> str:
    """The highest and the lowest of a panel, with the paper's."""
    known = [(label, cell.ours.mean, cell) for label, cell in cells if cell.ours is not None]
    known.sort(key=lambda entry: -entry[1])
    ends = known[:1] if len(known) == 1 else [known[0], known[-1]]
    words = ["highest", "lowest"] if len(ends) == 2 else ["only"]
    parts = [
        f"{word} {label}, {number(mean, cell.unit)}"
        + (f" (the paper {printed(cell.printed, cell.unit)})" if compare and cell.printed is not None else "")
        for word, (label, mean, cell) in zip(words, ends, strict=True)
    ]
    return f"{title}: {'; '.join(parts)}."
