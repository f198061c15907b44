"""Line plots over something that varies: noise, a coefficient, the share of the demonstrations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diffclone.experiments.results import ComparedCell, ResultTable
from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, put_legend
from diffclone.reports.numbers import cell_at, format_number, unit_label
from diffclone.reports.theme import LIGHT

SERIES = (("orange", "o"), ("purple", "s"), ("blue", "^"), ("red", "D"), ("green", "v"), ("soft", "P"))
"""A colour and a marker per line, so that lines can be told apart without colours."""


@final
@dataclass(frozen=True)
class Line:
    """One line of a plot: x positions and their cells."""

    label: str
    points: Sequence[tuple[float, ComparedCell]]


def number_in(name: str) -> float | None:
    """Return the number in a name ("noise 1.25", "25 %"); None where there are several ("drop from 1 to 2")."""
    found = re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", name)
    return float(found[0]) if len(found) == 1 else None


def lines_of(sheet: ResultTable) -> list[Line]:
    """Return one line per row if the columns contain numbers, else one line per column."""
    along = [(x, name) for name in sheet.columns if (x := number_in(name)) is not None]
    if len(along) > 1:
        names = sheet.rows
        cells = [[(x, cell_at(sheet, name, column)) for x, column in along] for name in names]
    else:
        along = [(x, name) for name in sheet.rows if (x := number_in(name)) is not None]
        names = sheet.columns
        cells = [[(x, cell_at(sheet, row, name)) for x, row in along] for name in names]
    lines = [Line(name, _sort_points(found)) for name, found in zip(names, cells, strict=True)]
    return [line for line in lines if any(cell.ours for _, cell in line.points)]


def draw_curves(sheet: ResultTable, *, x_label: str, log_scale: bool = False) -> list[PageFigure]:
    """Draw our means with intervals and the paper's as dashed lines; no figure where there is no number yet."""
    lines = lines_of(sheet)
    if not lines:
        return []
    ticks = sorted({x for line in lines for x, _ in line.points})

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 3.4) if narrow else (8.0, 4.2))) as figure:
            axes = figure.add_subplot()
            for line, (colour, marker) in zip(lines, SERIES * len(lines), strict=False):
                _draw_line(axes, line, LIGHT[colour], marker, compare=not sheet.quick)
            if log_scale:
                axes.set_xscale("symlog", linthresh=min((x for x in ticks if x > 0), default=1.0))
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axes.minorticks_off()
            axes.set_xlabel(x_label)
            axes.set_ylabel(unit_label(lines[0].points[0][1].unit))
            axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
            put_legend(figure, narrow=narrow)
        return figure

    paper = "" if sheet.quick else "; the paper's are dashed"
    caption = f"{sheet.title}: our means with their 95 % intervals over {x_label}{paper}."
    return [draw_twice(sheet.name, draw, caption, " ".join(_describe(line, x_label) for line in lines))]


def _sort_points(found: Sequence[tuple[float, ComparedCell | None]]) -> list[tuple[float, ComparedCell]]:
    return sorted(((x, cell) for x, cell in found if cell is not None), key=lambda point: point[0])


def _draw_line(axes: Axes, line: Line, colour: str, marker: str, *, compare: bool) -> None:
    ours = [(x, cell.ours) for x, cell in line.points if cell.ours is not None]
    xs = [x for x, _ in ours]
    axes.plot(xs, [v.mean for _, v in ours], color=colour, marker=marker, markersize=4.5, label=line.label)
    axes.fill_between(xs, [v.low for _, v in ours], [v.high for _, v in ours], color=colour, alpha=0.15, linewidth=0)
    paper = [(x, cell.printed.mean) for x, cell in line.points if cell.printed is not None]
    if compare and paper:
        axes.plot(
            *zip(*paper, strict=True),
            color=colour,
            marker=marker,
            markerfacecolor="none",
            markersize=4.5,
            linestyle="--",
            linewidth=1,
            label=f"{line.label}, the paper",
        )


def _describe(line: Line, x_label: str) -> str:
    known = [(x, cell.ours.mean, cell.unit) for x, cell in line.points if cell.ours is not None]
    (first, start, unit), (last, end, _) = known[0], known[-1]
    best, highest, _ = max(known, key=lambda point: point[1])
    peak = "" if best in (first, last) else f", highest at {best:g} with {format_number(highest, unit)}"
    ends = f"{format_number(start, unit)} at {x_label} {first:g}, {format_number(end, unit)} at {last:g}"
    return f"{line.label}: {ends}{peak}."
