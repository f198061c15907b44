"""The table of the paper's claims: text of its cells, as Markdown and as LaTeX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from diffclone.experiments.claims import ClaimRow, ClaimsTable
from diffclone.reports.numbers import MISSING, format_p
from diffclone.reports.text_tables import escape_latex, escape_markdown, markdown_row

HEADS = ("claim", "in the paper", "tested on", "difference (95 %)", "margin", "seeds × starts", "headroom", "verdict")
QUICK = "Quick runs: they show that the chain works. They have no verdicts."
DECIMALS = {"success": 1, "return": 0, "percent": 1, "ratio": 2}
SUFFIX = {"success": " points", "return": "", "percent": " %", "ratio": " times"}
MARKS = {"reproduced": "✓", "contradicted": "✗", "equivalent": "="}
WORDS = ("reproduced", "equivalent", "contradicted", "unresolved", "no headroom", "not run")


@final
@dataclass(frozen=True)
class ClaimText:
    """A row as text."""

    claim: str
    place: str
    on: str
    difference: str
    margin: str
    count: str
    headroom: str
    verdict: str

    @property
    def parts(self) -> list[str]:
        """The cells from left to right."""
        return [
            self.claim,
            self.place,
            self.on,
            self.difference,
            self.margin,
            self.count,
            self.headroom,
            self.verdict,
        ]


def describe_row(row: ClaimRow) -> ClaimText:
    """Return the cells of a row as text."""
    return ClaimText(
        row.claim,
        row.place,
        row.on,
        describe_difference(row),
        MISSING if row.margin is None else format_value(row.margin, row.unit) + SUFFIX[row.unit],
        MISSING if row.seeds is None else f"{row.seeds} × {row.starts}",
        MISSING if row.headroom is None else format_signed(row.headroom, row.unit),
        describe_verdict(row),
    )


def describe_difference(row: ClaimRow) -> str:
    """Return what is compared and the difference; of several, the one nearest to failing."""
    if row.difference is None:
        return f"{row.compared}: {MISSING}"
    if row.unit == "ratio":
        return f"{format_value(row.difference, row.unit)}{SUFFIX[row.unit]}"
    interval = "" if row.interval is None else f" ({' … '.join(format_signed(end, row.unit) for end in row.interval)})"
    least = f", the least of {row.parts}" if row.parts > 1 else ""
    return f"{row.compared}: {format_signed(row.difference, row.unit)}{interval}{least}"


def describe_verdict(row: ClaimRow) -> str:
    """Return the verdict with its p-value or its reason. Quick runs have none."""
    if row.quick:
        return "quick, no verdict"
    mark = f"{MARKS[row.verdict]} " if row.verdict in MARKS else ""
    why = f" ({row.reason})" if row.reason else "" if row.p is None else f" (p {format_p(row.p).replace('< ', '<')})"
    return f"{mark}{row.verdict}{why}"


def format_value(value: float, unit: str) -> str:
    """Format a number with the decimals of its unit."""
    return f"{value:,.{DECIMALS[unit]}f}"


def format_signed(value: float, unit: str) -> str:
    """Format a difference with its sign."""
    return f"{'−' if value < 0 else '+'}{format_value(abs(value), unit)}"


def count_verdicts(table: ClaimsTable) -> str:
    """Return the number of tests by verdict, as one sentence."""
    counts: Mapping[str, int] = table.counts
    found = [f"{counts[word]} {word}" for word in WORDS if counts.get(word)]
    return f"{count_claims(table)}: {', '.join(found)}."


def count_claims(table: ClaimsTable) -> str:
    """Return the number of claims and of their tests."""
    claims = len({row.name for row in table.rows})
    return f"{claims} claim{'s' * (claims != 1)} of the paper, {len(table.rows)} tests"


def claims_markdown(table: ClaimsTable) -> str:
    """Return a Markdown table with one line per test."""
    lines = [*([QUICK, ""] if table.quick else []), markdown_row(list(HEADS)), "|" + "---|" * len(HEADS)]
    return "\n".join([*lines, *(markdown_row(parts) for parts in text_rows(table.rows))]) + "\n"


def text_rows(rows: Sequence[ClaimRow]) -> list[list[str]]:
    """Return the cells of all rows; a claim and its place are given once, in its first row."""
    found: list[list[str]] = []
    for k, row in enumerate(rows):
        repeated = k > 0 and rows[k - 1].name == row.name
        parts = describe_row(row).parts
        found.append(["", "", *parts[2:]] if repeated else parts)
    return found


def claims_latex(table: ClaimsTable) -> str:
    """Return a LaTeX table with one line per test."""
    heads = " & ".join(map(escape_latex, HEADS))
    lines = [r"\begin{tabular}{" + "l" * len(HEADS) + "}", r"\toprule", f"{heads} \\\\", r"\midrule"]
    lines = [*([f"% {QUICK}"] if table.quick else []), *lines]
    lines += [f"{' & '.join(map(escape_latex, parts))} \\\\" for parts in text_rows(table.rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def list_notes(table: ClaimsTable) -> list[str]:
    """Return what limits the tests of some claims."""
    notes = {row.claim: row.note for row in table.rows if row.note is not None}
    return [f"{claim} {note}" for claim, note in notes.items()]


def markdown_notes(table: ClaimsTable) -> str:
    """Return the notes as a Markdown list."""
    return "\n".join(f"- {escape_markdown(note)}" for note in list_notes(table))
