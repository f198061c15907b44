"""Summarise a report: which levels can be compared, what was not run, where the paper contradicts itself."""

from collections.abc import Sequence

from diffclone.experiments.results import ResultTable, Status
from diffclone.reports.numbers import cell_label

COMPUTED = "computed from two printed numbers"
"""A note on a printed number that is not a contradiction."""
FIGURE_KINDS = ("samples", "trajectories", "curves", "field", "reconstruction-curve")
"""Kinds of Records that appear in figures only, not in a table."""
MOST_LISTED = 8
"""Missing cells of an experiment that are listed by name."""
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
    if not sheet.cells and not sheet.measured:
        found["not run"] = ["everything"]
    return {reason: shorten_list(places) for reason, places in found.items()}


def shorten_list(places: list[str]) -> list[str]:
    """Return the first entries of a long list, and how many more there are."""
    more = len(places) - MOST_LISTED
    return [*places[:MOST_LISTED], f"{more} more"] if more > 1 else places


def list_contradictions(sheets: Sequence[ResultTable]) -> dict[str, list[str]]:
    """Return the notes on contradictions within the paper, each with the cells that it concerns."""
    found: dict[str, list[str]] = {}
    for sheet in sheets:
        for cell in sheet.cells:
            if cell.printed is not None and cell.printed.note not in (None, COMPUTED):
                found.setdefault(cell.printed.note, []).append(f"{sheet.title}, {cell_label(cell)}")
    return found
