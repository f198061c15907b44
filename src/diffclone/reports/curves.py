"""Curves over something that varies: noise, a coefficient, the share of the demonstrations. The paper's are dashed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from matplotlib.axes import Axes

from diffclone.experiments.sheet import Compared, Sheet
from diffclone.reports.drawing import Drawing, drawn
from diffclone.reports.theme import LIGHT
from diffclone.reports.words import cell_at, number, unit_name

SERIES = (("orange", "o"), ("purple", "s"), ("blue", "^"), ("red", "D"), ("green", "v"), ("soft", "P"))
"""A colour and a mark: neither tells alone."""


@final
@dataclass(frozen=True)
class Line:
    """A curve of a table: what lies at each place."""

    label: str
    points: Sequence[tuple[float, Compared]]


def place_of(name: str) -> float | None:
    """The number in a name ("noise 1.25", "25 %"); none where there are several, as in "drop from 1 to 2"."""
    found = re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", name)
    return float(found[0]) if len(found) == 1 else None


def lines_of(sheet: Sheet) -> list[Line]:
    """A line a row where columns have numbers, else a line a column."""
    along = [(place, name) for name in sheet.columns if (place := place_of(name)) is not None]
    if len(along) > 1:
        names = sheet.rows
        cells = [[(place, cell_at(sheet, name, column)) for place, column in along] for name in names]
    else:
        along = [(place, name) for name in sheet.rows if (place := place_of(name)) is not None]
        names = sheet.columns
        cells = [[(place, cell_at(sheet, row, name)) for place, row in along] for name in names]
    lines = [Line(name, sorted_points(found)) for name, found in zip(names, cells, strict=True)]
    return [line for line in lines if any(cell.ours for _, cell in line.points)]


def sorted_points(found: Sequence[tuple[float, Compared | None]]) -> list[tuple[float, Compared]]:
    """From left to right, without holes."""
    return sorted(((x, cell) for x, cell in found if cell is not None), key=lambda point: point[0])


def draw_curves(sheet: Sheet, *, along: str, spread: bool = False) -> list[Drawing]:
    """One figure, or none where there is no number yet. `spread`: places lie by their ratios, from 0 on."""
    lines = lines_of(sheet)
    if not lines:
        return []
    with drawn(6.4, 3.8) as figure:
        axes = figure.add_subplot()
        for line, (colour, mark) in zip(lines, SERIES * len(lines), strict=False):
            draw_line(axes, line, LIGHT[colour], mark, compare=not sheet.quick)
        places = sorted({x for line in lines for x, _ in line.points})
        if spread:
            axes.set_xscale("symlog", linthresh=min((x for x in places if x > 0), default=1.0))
        axes.set_xticks(places, [f"{x:g}" for x in places])
        axes.minorticks_off()
        axes.set_xlabel(along)
        axes.set_ylabel(unit_name(lines[0].points[0][1].unit))
        axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    beside = "" if sheet.quick else "; the paper's are dashed"
    caption = f"{sheet.title}: our means with their 95 % intervals over {along}{beside}."
    return [Drawing(sheet.name, figure, caption, " ".join(in_words(line, along) for line in lines))]


def draw_line(axes: Axes, line: Line, colour: str, mark: str, *, compare: bool) -> None:
    """Ours, its band, and the paper's."""
    ours = [(x, cell.ours) for x, cell in line.points if cell.ours is not None]
    places = [x for x, _ in ours]
    axes.plot(places, [v.mean for _, v in ours], color=colour, marker=mark, markersize=4.5, label=line.label)
    axes.fill_between(
        places, [v.low for _, v in ours], [v.high for _, v in ours], color=colour, alpha=0.15, linewidth=0
    )
    paper = [(x, cell.printed.mean) for x, cell in line.points if cell.printed is not None]
    if compare and paper:
        axes.plot(
            *zip(*paper, strict=True),
            color=colour,
            marker=mark,
            markerfacecolor="none",
            markersize=4.5,
            linestyle="--",
            linewidth=1,
            label=f"{line.label}, the paper",
        )


def in_words(line: Line, along: str) -> str:
    """Both ends, and the highest between them."""
    known = [(x, cell.ours.mean, cell.unit) for x, cell in line.points if cell.ours is not None]
    (first, begins, unit), (last, ends, _) = known[0], known[-1]
    best, highest, _ = max(known, key=lambda point: point[1])
    peak = "" if best in (first, last) else f", highest at {best:g} with {number(highest, unit)}"
    return f"{line.label}: {number(begins, unit)} at {along} {first:g}, {number(ends, unit)} at {last:g}{peak}."
