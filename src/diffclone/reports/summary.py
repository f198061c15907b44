"""Summarise a report: which levels can be compared, what was not run, where the paper contradicts itself."""

from collections.abc import Sequence

from diffclone.experiments.results import ResultTable, Status
from diffclone.reports.numbers import cell_label

COMPUTED = "computed from two printed numbers"
"""A note on a printed number that is not a contradiction."""
FIGURE_KINDS = ("samples", "trajectories", "curves", "field", "reconstruction-curve")
"""Kinds of Records that appear in figures only, not in a table."""
ABSENT: tuple[Status, ...] = ("not run", "failed")


def describe_levels(sheets: Sequence[ResultTable]) -> str:
    """Return how many levels can be compared with the paper's, as one sentence."""
    cells = [cell for sheet in sheets if not sheet.quick for cell in sheet.cells]
    count = sum(cell.status == "compared" for cell in cells)
    if not count:
        return "No level is compared with the paper's: none comes from the demonstrations that the authors released."
    return f"Levels from the authors' demonstrations, which can be compared with the paper's: {count}."


def list_absent(sheet: ResultTable) -> dict[str, list[str]]:
    """Return the cells without a number and the figures without Records, by reason."""
    found: dict[str, list[str]] = {}
    for cell in sheet.cells:
        if cell.status in ABSENT:
            reason = cell.status + ("" if cell.reason is None else f": {cell.reason}")
            found.setdefault(reason, []).append(cell_label(cell))
    for kind in FIGURE_KINDS:
        if kind in sheet.measured and not sheet.measured[kind]:
            found.setdefault("not run", []).append(f"{kind}, of the figure")
    if (not sheet.cells and not sheet.measured) or found.get("not run", []) == [cell_label(c) for c in sheet.cells]:
        found["not run"] = ["everything"]
    return found


def list_contradictions(sheets: Sequence[ResultTable]) -> dict[str, list[str]]:
    """Return the notes on contradictions within the paper, each with the cells that it concerns."""
    found: dict[str, list[str]] = {}
    for sheet in sheets:
        for cell in sheet.cells:
            if cell.printed is not None and cell.printed.note not in (None, COMPUTED):
                found.setdefault(cell.printed.note, []).append(f"{sheet.title}, {cell_label(cell)}")
    return found
