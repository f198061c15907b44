"""How numbers, counts and verdicts are written, in every table and figure alike."""

import html
from collections.abc import Sequence

from diffclone.experiments.sheet import Compared, Printed, Sheet, Value, Verdict

UNITS = {
    "success": "success, %",
    "return": "return",
    "ratio": "majority ratio",
    "mse": "mean squared error",
    "episodes/s": "episodes a second",
    "ms": "milliseconds an action",
    "drop": "success lost, %",
    "times": "times as many",
}
DECIMALS = {"success": 1, "return": 1, "ratio": 3, "mse": 4, "episodes/s": 2, "ms": 2, "drop": 1, "times": 1}
VERDICTS: dict[Verdict, str] = {
    "agrees": "= agrees",
    "better": "▲ better",
    "short": "▼ short",
    "not comparable": "not comparable",
    "not printed": "not printed",
    "not run": "not run",
    "failed": "✗ failed",
}
JUDGED: tuple[Verdict, ...] = ("agrees", "better", "short")
NONE = "–"


def number(value: float, unit: str) -> str:
    """With as many decimals as its unit has."""
    return f"{value:,.{DECIMALS[unit]}f}" if unit in DECIMALS else f"{value:,.4g}"


def signed(value: float, unit: str) -> str:
    """With its sign, the typographer's."""
    written = number(abs(value), unit)
    return f"{'−' if value < 0 else '+'}{written}"


def interval(value: Value, unit: str) -> str:
    """Both ends; nothing for what was measured once."""
    return "" if value.low == value.high else f"{number(value.low, unit)} … {number(value.high, unit)}"


def ours(value: Value | None, unit: str) -> str:
    """The mean, and its interval where it has one."""
    if value is None:
        return NONE
    ends = interval(value, unit)
    return number(value.mean, unit) + (f" ({ends})" if ends else "")


def count(value: Value) -> str:
    """Seeds × episodes, or seeds alone where nothing was played."""
    return f"{value.seeds} × {value.episodes}" if value.episodes else f"{value.seeds} seed{'s' * (value.seeds != 1)}"


def printed(value: Printed | None, unit: str) -> str:
    """The paper's, with its standard deviation."""
    if value is None:
        return NONE
    return number(value.mean, unit) + ("" if value.sd is None else f" ± {number(value.sd, unit)}")


def verdict(cell: Compared) -> str:
    """In words, with a sign and by how much."""
    by = f" ({signed(cell.by, cell.unit)})" if cell.verdict in JUDGED and cell.by is not None else ""
    return VERDICTS[cell.verdict] + by


def unit_of(cells: Sequence[Compared]) -> str | None:
    """The unit that all of them share."""
    units = {cell.unit for cell in cells}
    return next(iter(units)) if len(units) == 1 else None


def unit_name(unit: str) -> str:
    """In words."""
    return UNITS.get(unit, unit)


def place(cell: Compared) -> str:
    """Where a cell is in its table."""
    return ", ".join(part for part in (cell.row, cell.column) if part)


def cell_at(sheet: Sheet, row: str, column: str) -> Compared | None:
    """What stands there, if anything."""
    return next((cell for cell in sheet.cells if (cell.row, cell.column) == (row, column)), None)


def column_cells(sheet: Sheet, column: str) -> list[Compared]:
    """From top to bottom."""
    return [cell for cell in sheet.cells if cell.column == column]


def text(value: object) -> str:
    """Anything, for HTML."""
    return html.escape(str(value))
