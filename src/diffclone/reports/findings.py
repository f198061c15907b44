"""What a report says in sum: how many cells agree with the paper, which do not, and what was not run."""

from collections.abc import Iterator, Sequence

from diffclone.experiments.sheet import Compared, Sheet, Verdict
from diffclone.reports.words import JUDGED, count, number, place, printed, signed

COMPUTED = "computed from two printed numbers"
"""A note that contradicts nothing."""
FIGURED = ("samples", "trajectories", "curves", "field")
"""Kinds of Records that are drawn, and in no table."""
ABSENT: tuple[Verdict, ...] = ("not run", "failed")


def tally(sheets: Sequence[Sheet]) -> dict[Verdict, int]:
    """Of cells that are compared."""
    cells = [cell for sheet in sheets if not sheet.quick for cell in sheet.cells]
    return {verdict: sum(cell.verdict == verdict for cell in cells) for verdict in JUDGED}


def tally_in_words(sheets: Sequence[Sheet]) -> str:
    """One sentence."""
    counts = tally(sheets)
    total = sum(counts.values())
    if not total:
        return "No cell is compared with the paper yet."
    return (
        f"Of {total} cell{'s' * (total != 1)} that can be compared with the paper, {counts['agrees']} agree, "
        f"{counts['better']} are better and {counts['short']} fall short."
    )


def judged(sheets: Sequence[Sheet], verdict: Verdict) -> Iterator[tuple[Sheet, Compared]]:
    """Cells with a verdict, of runs that are compared."""
    for sheet in sheets:
        for cell in sheet.cells:
            if not sheet.quick and cell.verdict == verdict:
                yield sheet, cell


def compared_in_words(cell: Compared) -> str:
    """Where, ours, the paper's, and by how much."""
    ours = "nothing" if cell.ours is None else f"{number(cell.ours.mean, cell.unit)} ({count(cell.ours)})"
    by = "" if cell.by is None else f", {signed(cell.by, cell.unit)}"
    return f"{place(cell)}: ours {ours}, the paper's {printed(cell.printed, cell.unit)}{by}"


def absent(sheet: Sheet) -> dict[str, list[str]]:
    """Places without a number, and figures without what they show, by why."""
    found: dict[str, list[str]] = {}
    for cell in sheet.cells:
        if cell.verdict in ABSENT:
            why = cell.verdict + ("" if cell.reason is None else f": {cell.reason}")
            found.setdefault(why, []).append(place(cell))
    for kind in FIGURED:
        if kind in sheet.measured and not sheet.measured[kind]:
            found.setdefault("not run", []).append(f"{kind}, of the figure")
    if not sheet.cells and not sheet.measured:
        found["not run"] = ["everything"]
    return found


def rule_of(sheets: Sequence[Sheet]) -> str:
    """How verdicts are found, as the sheets say."""
    return next((str(sheet.settings["rule"]) for sheet in sheets if "rule" in sheet.settings), "")


def contradictions(sheets: Sequence[Sheet]) -> dict[str, list[str]]:
    """What the paper says against itself, each with the places it is about."""
    found: dict[str, list[str]] = {}
    for sheet in sheets:
        for cell in sheet.cells:
            if cell.printed is not None and cell.printed.note not in (None, COMPUTED):
                found.setdefault(cell.printed.note, []).append(f"{sheet.title}, {place(cell)}")
    return found
