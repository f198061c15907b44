"""Summarise a report: how many cells agree with the paper, what was not run, where the paper contradicts itself."""

from collections.abc import Iterator, Sequence

from diffclone.experiments.results import ComparedCell, ResultTable, Verdict
from diffclone.reports.numbers import COMPARED, cell_label, format_count, format_number, format_printed, format_signed

COMPUTED = "computed from two printed numbers"
"""A note on a printed number that is not a contradiction."""
FIGURE_KINDS = ("samples", "trajectories", "curves", "field")
"""Kinds of Records that appear in figures only, not in a table."""
ABSENT: tuple[Verdict, ...] = ("not run", "failed")


def count_verdicts(sheets: Sequence[ResultTable]) -> dict[Verdict, int]:
    """Count the compared cells by verdict. Quick runs are not compared."""
    cells = [cell for sheet in sheets if not sheet.quick for cell in sheet.cells]
    return {verdict: sum(cell.verdict == verdict for cell in cells) for verdict in COMPARED}


def describe_verdicts(sheets: Sequence[ResultTable]) -> str:
    """Return the counts of verdicts as one sentence."""
    counts = count_verdicts(sheets)
    total = sum(counts.values())
    if not total:
        return "No cell is compared with the paper yet."
    return (
        f"Of {total} cell{'s' * (total != 1)} that can be compared with the paper, {counts['agrees']} agree, "
        f"{counts['better']} are better and {counts['short']} fall short."
    )


def cells_with_verdict(sheets: Sequence[ResultTable], verdict: Verdict) -> Iterator[tuple[ResultTable, ComparedCell]]:
    """Yield the cells with this verdict, leaving out quick runs."""
    for sheet in sheets:
        for cell in sheet.cells:
            if not sheet.quick and cell.verdict == verdict:
                yield sheet, cell


def describe_cell(cell: ComparedCell) -> str:
    """Return where the cell is, our number, the paper's number and the difference."""
    ours = "nothing" if cell.ours is None else f"{format_number(cell.ours.mean, cell.unit)} ({format_count(cell.ours)})"
    by = "" if cell.by is None else f", {format_signed(cell.by, cell.unit)}"
    return f"{cell_label(cell)}: ours {ours}, the paper's {format_printed(cell.printed, cell.unit)}{by}"


def list_absent(sheet: ResultTable) -> dict[str, list[str]]:
    """Return the cells without a number and the figures without Records, by reason."""
    found: dict[str, list[str]] = {}
    for cell in sheet.cells:
        if cell.verdict in ABSENT:
            reason = cell.verdict + ("" if cell.reason is None else f": {cell.reason}")
            found.setdefault(reason, []).append(cell_label(cell))
    for kind in FIGURE_KINDS:
        if kind in sheet.measured and not sheet.measured[kind]:
            found.setdefault("not run", []).append(f"{kind}, of the figure")
    if not sheet.cells and not sheet.measured:
        found["not run"] = ["everything"]
    return found


def verdict_rule(sheets: Sequence[ResultTable]) -> str:
    """Return the rule that decides verdicts, as the sheets state it."""
    return next((str(sheet.settings["rule"]) for sheet in sheets if "rule" in sheet.settings), "")


def list_contradictions(sheets: Sequence[ResultTable]) -> dict[str, list[str]]:
    """Return the notes on contradictions within the paper, each with the cells that it concerns."""
    found: dict[str, list[str]] = {}
    for sheet in sheets:
        for cell in sheet.cells:
            if cell.printed is not None and cell.printed.note not in (None, COMPUTED):
                found.setdefault(cell.printed.note, []).append(f"{sheet.title}, {cell_label(cell)}")
    return found
