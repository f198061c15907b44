"""All numbers of a report in one list, and each experiment's as interval plots beside the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from diffclone.experiments.results import ComparedCell, ResultTable
from diffclone.reports.dot_plots import LOG_UNITS, list_panels
from diffclone.reports.intervals import Interval, IntervalPlot
from diffclone.reports.numbers import (
    MISSING,
    format_count,
    format_interval,
    format_number,
    format_printed,
    format_status,
    unit_label,
)

BOUNDS = {"success": (0.0, 100.0)}


@final
@dataclass(frozen=True)
class NumberRow:
    """A number of ours, the paper's beside it, and where both belong."""

    sheet: ResultTable
    cell: ComparedCell

    @property
    def what(self) -> str:
        """Row and column of the experiment's table, apart from what task and method say already."""
        known = {name.lower().replace("-", "").replace(" ", "") for name in (self.cell.task, self.cell.method)}
        parts = [p for p in (self.cell.row, self.cell.column) if p and p.lower().replace(" ", "") not in known]
        return ", ".join(parts) or MISSING

    @property
    def mean(self) -> str:
        """Our mean."""
        return MISSING if self.cell.ours is None else format_number(self.cell.ours.mean, self.cell.unit)

    @property
    def interval(self) -> str:
        """Our interval."""
        return (self.cell.ours and format_interval(self.cell.ours, self.cell.unit)) or MISSING

    @property
    def count(self) -> str:
        """Seeds × episodes."""
        return MISSING if self.cell.ours is None else format_count(self.cell.ours)

    @property
    def paper(self) -> str:
        """The paper's number. Quick runs are not compared."""
        return MISSING if self.sheet.quick else format_printed(self.cell.printed, self.cell.unit)

    @property
    def level(self) -> str:
        """The difference to the paper, or why there is none."""
        return "quick, not compared" if self.sheet.quick and self.cell.ours else format_status(self.cell)

    @property
    def notes(self) -> list[str]:
        """Why there is no number or no comparison, and what contradicts the paper's number in the paper."""
        cell = self.cell
        compared = not (self.sheet.quick and cell.ours)
        found = [cell.reason] if cell.reason and compared else []
        if cell.printed is not None and cell.printed.note is not None and not self.sheet.quick:
            found.append(f"The paper: {cell.printed.note}")
        return found

    @property
    def unit(self) -> str:
        """The unit in words."""
        return unit_label(self.cell.unit)


def list_numbers(sheets: Sequence[ResultTable]) -> list[NumberRow]:
    """Return one row per cell, in the order of the experiments."""
    return [NumberRow(sheet, cell) for sheet in sheets for cell in sheet.cells]


def make_plots(sheet: ResultTable) -> list[IntervalPlot]:
    """Return one plot per column of an experiment's table, without what has no number."""
    plots: list[IntervalPlot] = []
    for title, cells in list_panels(sheet):
        if any(cell.ours for _, cell in cells):
            unit, lines = cells[0][1].unit, [make_line(label, NumberRow(sheet, cell)) for label, cell in cells]
            rows = [line for line in lines if line.numbers]
            more = len(lines) - len(rows)
            absent = f"Not run: {more} more {'variants' if more > 1 else 'variant'}." if more else ""
            low = min((x for row in rows for x in row.numbers), default=0.0)
            log = unit in LOG_UNITS and low > 0
            bounds = BOUNDS.get(unit, (float("-inf"), float("inf")))
            plots.append(IntervalPlot(title, unit_label(unit), rows, log=log, bounds=bounds, absent=absent))
    return plots


def make_line(label: str, row: NumberRow) -> Interval:
    """Return our number with its interval and the paper's with its standard deviation."""
    ours, printed = row.cell.ours, None if row.sheet.quick else row.cell.printed
    spread = None
    if printed is not None and printed.sd is not None:
        spread = (printed.mean - printed.sd, printed.mean + printed.sd)
    return Interval(
        label=label,
        text=row.mean,
        value=None if ours is None else ours.mean,
        interval=None if ours is None else (ours.low, ours.high),
        other=None if printed is None else printed.mean,
        other_interval=spread,
        other_text="" if printed is None else f"paper {row.paper}",
        records=() if ours is None else (ours.record,),
    )
