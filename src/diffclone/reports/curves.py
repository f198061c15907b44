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
METHODS = {
    "BC": ("orange", "o"),
    "DBC": ("purple", "s"),
    "DBC (ours)": ("purple", "s"),
    "DBC (paper)": ("red", "D"),
    "Diffusion Policy": ("blue", "^"),
    "Implicit BC": ("green", "v"),
    "BC-GMM": ("blue", "P"),
    "MIP": ("green", "X"),
    "Flow matching": ("green", "P"),
}
"""The same for methods, which look the same in every figure."""
MOST_OVERLAID = 2
"""Lines up to which the paper's are drawn over ours; more are drawn beside them."""


@final
@dataclass(frozen=True)
class Line:
    """One line of a plot: x positions and their cells."""

    label: str
    points: Sequence[tuple[float, ComparedCell]]


def choose_series(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each name. A name with a comma is a variant of the name before it."""
    bases = dict.fromkeys(name.partition(",")[0] for name in names)
    taken = {METHODS[base] for base in bases if base in METHODS}
    free = [series for series in SERIES if series not in taken] or list(SERIES)
    others = [base for base in bases if base not in METHODS]
    chosen = {base: METHODS[base] for base in bases if base in METHODS}
    chosen |= {base: free[k % len(free)] for k, base in enumerate(others)}
    return {name: chosen[name.partition(",")[0]] for name in names}


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
    """Draw our means with intervals and the paper's; no figure where there is no number yet."""
    lines = lines_of(sheet)
    if not lines:
        return []
    ticks = sorted({x for line in lines for x, _ in line.points})
    series = choose_series([line.label for line in lines])
    printed = not sheet.quick and any(cell.printed for line in lines for _, cell in line.points)
    beside = printed and len(lines) > MOST_OVERLAID

    def draw(*, narrow: bool) -> Figure:
        wide, high = (NARROW, 3.4) if narrow else (8.0, 4.2)
        down, across = (2, 1) if beside and narrow else (1, 2 if beside else 1)
        with new_figure(wide * (1.3 if across == 2 else 1), high * (1.7 if down == 2 else 1)) as figure:
            panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
            for line in lines:
                colour, marker = LIGHT[series[line.label][0]], series[line.label][1]
                _draw_ours(panels[0], line, colour, marker)
                if printed:
                    _draw_paper(panels[-1], line, colour, marker, label=not beside)
            for axes, title in zip(panels, ("Ours", "The paper"), strict=False):
                if log_scale:
                    axes.set_xscale("symlog", linthresh=min((x for x in ticks if x > 0), default=1.0))
                axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
                axes.minorticks_off()
                axes.set_xlabel(x_label)
                axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
                if beside:
                    axes.set_title(title, loc="left")
            for axes in panels[:: 1 if down == 2 else 2]:
                axes.set_ylabel(unit_label(lines[0].points[0][1].unit))
            put_legend(figure, narrow=narrow, columns=4)
        return figure

    paper = (
        "; the paper's are dashed" if printed and not beside else "; beside them, the paper's means" if beside else ""
    )
    caption = f"{sheet.title}: our means with their 95 % intervals over {x_label}{paper}."
    return [draw_twice(sheet.name, draw, caption, " ".join(_describe(line, x_label) for line in lines))]


def _sort_points(found: Sequence[tuple[float, ComparedCell | None]]) -> list[tuple[float, ComparedCell]]:
    return sorted(((x, cell) for x, cell in found if cell is not None), key=lambda point: point[0])


def _draw_ours(axes: Axes, line: Line, colour: str, marker: str) -> None:
    ours = [(x, cell.ours) for x, cell in line.points if cell.ours is not None]
    xs = [x for x, _ in ours]
    axes.plot(xs, [v.mean for _, v in ours], color=colour, marker=marker, markersize=4.5, label=line.label)
    axes.fill_between(xs, [v.low for _, v in ours], [v.high for _, v in ours], color=colour, alpha=0.15, linewidth=0)


def _draw_paper(axes: Axes, line: Line, colour: str, marker: str, *, label: bool) -> None:
    paper = [(x, cell.printed.mean) for x, cell in line.points if cell.printed is not None]
    if paper:
        axes.plot(
            *zip(*paper, strict=True),
            color=colour,
            marker=marker,
            markerfacecolor="none",
            markersize=4.5,
            linestyle="--",
            linewidth=1.2,
            label=f"{line.label}, the paper" if label else None,
        )


def _describe(line: Line, x_label: str) -> str:
    known = [(x, cell.ours.mean, cell.unit) for x, cell in line.points if cell.ours is not None]
    (first, start, unit), (last, end, _) = known[0], known[-1]
    best, highest, _ = max(known, key=lambda point: point[1])
    peak = "" if best in (first, last) else f", highest at {best:g} with {format_number(highest, unit)}"
    ends = f"{format_number(start, unit)} at {x_label} {first:g}, {format_number(end, unit)} at {last:g}"
    return f"{line.label}: {ends}{peak}."
