"""Format numbers, counts, levels and p-values, in the same way in every table, figure and message."""

from collections.abc import Sequence

from diffclone.experiments.results import ComparedCell, MeasuredValue, PrintedValue, ResultTable, Status

UNIT_LABELS = {
    "success": "success, %",
    "return": "return",
    "ratio": "majority ratio",
    "mse": "mean squared error",
    "episodes/s": "episodes per second",
    "ms": "milliseconds per action",
    "drop": "success lost, %",
    "times": "times as many",
}
DECIMALS = {"success": 1, "return": 1, "ratio": 3, "mse": 4, "episodes/s": 2, "ms": 2, "drop": 1, "times": 1}
STATUS_LABELS: dict[Status, str] = {
    "compared": "compared",
    "other demonstrations": "other demonstrations",
    "not comparable": "not comparable",
    "not printed": "not printed",
    "not run": "not run",
    "failed": "✗ failed",
}
SMALLEST_P = 0.001
"""Smaller p-values are shown as smaller than this."""
MISSING = "–"


def percent(rate: float) -> str:
    """Format a rate between 0 and 1 as a percentage."""
    return f"{100 * rate:.1f} %"


def percent_interval(interval: tuple[float, float]) -> str:
    """Format both ends of an interval of a rate."""
    return f"{100 * interval[0]:.1f} … {100 * interval[1]:.1f}"


def format_score(value: float, metric: str) -> str:
    """Format a success rate or a return."""
    return percent(value) if metric == "success" else f"{value:.1f}"


def format_score_interval(interval: Sequence[float], metric: str) -> str:
    """Format both ends of the interval of a success rate or a return."""
    low, high = interval
    return percent_interval((low, high)) if metric == "success" else f"{low:.1f} … {high:.1f}"


def format_number(value: float, unit: str) -> str:
    """Format a number with the decimals of its unit, and a minus sign as in `format_signed`."""
    text = f"{value:,.{DECIMALS[unit]}f}" if unit in DECIMALS else f"{value:,.4g}"
    return f"−{text[1:]}" if text.startswith("-") else text


def format_signed(value: float, unit: str) -> str:
    """Format a difference with its sign."""
    return f"{'−' if value < 0 else '+'}{format_number(abs(value), unit)}"


def format_interval(value: MeasuredValue, unit: str) -> str:
    """Format both ends of the interval; empty for a single measurement."""
    return "" if value.low == value.high else f"{format_number(value.low, unit)} … {format_number(value.high, unit)}"


def format_estimate(value: MeasuredValue | None, unit: str) -> str:
    """Format the mean, with its interval where there is one."""
    if value is None:
        return MISSING
    interval = format_interval(value, unit)
    return format_number(value.mean, unit) + (f" ({interval})" if interval else "")


def format_count(value: MeasuredValue) -> str:
    """Format seeds × episodes, or seeds alone where there are no episodes."""
    return f"{value.seeds} × {value.episodes}" if value.episodes else f"{value.seeds} seed{'s' * (value.seeds != 1)}"


def format_printed(value: PrintedValue | None, unit: str) -> str:
    """Format the paper's number, with its standard deviation where it is printed."""
    if value is None:
        return MISSING
    return format_number(value.mean, unit) + ("" if value.sd is None else f" ± {format_number(value.sd, unit)}")


def format_status(cell: ComparedCell) -> str:
    """Return the difference to the paper's level, or why there is none."""
    if cell.status == "compared" and cell.by is not None:
        return f"{format_signed(cell.by, cell.unit)} to the paper"
    return STATUS_LABELS[cell.status]


def format_p(p: float) -> str:
    """Format a p-value; none is 0."""
    return f"< {SMALLEST_P:g}" if p < SMALLEST_P else f"{p:.3f}"


def unit_label(unit: str) -> str:
    """Return the unit in words."""
    return UNIT_LABELS.get(unit, unit)


def common_unit(cells: Sequence[ComparedCell]) -> str | None:
    """Return the unit that all cells share, or None."""
    units = {cell.unit for cell in cells}
    return next(iter(units)) if len(units) == 1 else None


def cell_label(cell: ComparedCell) -> str:
    """Return the row and the column of a cell as text."""
    return ", ".join(part for part in (cell.row, cell.column) if part)


def cell_at(sheet: ResultTable, row: str, column: str) -> ComparedCell | None:
    """Return the cell in this row and column, or None."""
    return next((cell for cell in sheet.cells if (cell.row, cell.column) == (row, column)), None)


def column_cells(sheet: ResultTable, column: str) -> list[ComparedCell]:
    """Return the cells of a column from top to bottom."""
    return [cell for cell in sheet.cells if cell.column == column]
