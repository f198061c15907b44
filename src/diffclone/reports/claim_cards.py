"""The claims of the paper as cards: one per claim, with a line per test on an axis per unit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from diffclone.experiments.claims import ClaimRow, ClaimsTable
from diffclone.reports.claims import MARKS, SUFFIX, WORDS, describe_row, describe_verdict, format_signed, format_value
from diffclone.reports.intervals import Interval, IntervalPlot

UNITS = {
    "success": "difference in points of success",
    "return": "difference in return",
    "percent": "difference in percent",
    "ratio": "ratio, on a logarithmic axis",
}
QUICK = "quick"


@final
@dataclass(frozen=True)
class Share:
    """How many tests have a verdict."""

    verdict: str
    count: int

    @property
    def css(self) -> str:
        """The name of its class."""
        return self.verdict.replace(" ", "-")

    @property
    def mark(self) -> str:
        """A sign that says the same as the colour."""
        return MARKS.get(self.verdict, "·")


@final
@dataclass(frozen=True)
class ClaimCard:
    """One claim with its tests."""

    name: str
    claim: str
    place: str
    note: str | None
    shares: tuple[Share, ...]
    plots: tuple[IntervalPlot, ...]
    """Tests that were run, by unit."""
    absent: tuple[str, ...]
    """Where it was not tested, and what is missing."""


def count_shares(rows: Sequence[ClaimRow]) -> tuple[Share, ...]:
    """Return the number of tests by verdict. Quick runs have none."""
    counts = Counter(QUICK if row.quick else row.verdict for row in rows)
    return tuple(Share(word, counts[word]) for word in (*WORDS, QUICK) if counts[word])


def make_cards(table: ClaimsTable) -> list[ClaimCard]:
    """Return the claims: first those with a verdict, then the unresolved, then those that were not tested."""
    claims: dict[str, list[ClaimRow]] = {}
    for row in table.rows:
        claims.setdefault(row.name, []).append(row)
    cards = [make_card(rows) for rows in claims.values()]
    order = {word: k for k, word in enumerate(("contradicted", "reproduced", "equivalent"))}

    def place(card: ClaimCard) -> int:
        found = [order[share.verdict] for share in card.shares if share.verdict in order]
        return 0 if found else 1 if card.plots else 2

    return sorted(cards, key=place)


def make_card(rows: Sequence[ClaimRow]) -> ClaimCard:
    """Return the card of one claim."""
    first, units = rows[0], dict.fromkeys(row.unit for row in rows if row.difference is not None)
    plots = [
        IntervalPlot(
            title="",
            unit=UNITS[unit],
            rows=[make_line(row) for row in rows if row.unit == unit and row.difference is not None],
            log=unit == "ratio",
            reference=1.0 if unit == "ratio" else 0.0,
        )
        for unit in units
    ]
    absent = [row.on + (f" (missing: {row.reason})" if row.reason else "") for row in rows if row.difference is None]
    shares = count_shares(rows)
    return ClaimCard(first.name, first.claim, first.place, first.note, shares, tuple(plots), tuple(absent))


def make_line(row: ClaimRow) -> Interval:
    """Return the line of a test that was run."""
    assert row.difference is not None, "the caller leaves out tests that were not run"
    text, words = describe_row(row), []
    if row.unit == "ratio":
        number = f"{format_value(row.difference, row.unit)}{SUFFIX[row.unit]}"
    else:
        number = format_signed(row.difference, row.unit)
        words = [f"{row.compared}{f', the least of {row.parts}' if row.parts > 1 else ''}"]
        words += [] if row.seeds is None else [f"{text.count} seeds × starts"]
        words += [] if row.margin is None else [f"margin {text.margin}"]
    interval = "" if row.interval is None else " … ".join(format_signed(end, row.unit) for end in row.interval)
    return Interval(
        label=row.on,
        text=number,
        value=row.difference,
        interval=row.interval,
        about="; ".join(words),
        other_text=interval,
        margin=None if row.unit == "ratio" else row.margin,
        status=QUICK if row.quick else row.verdict.replace(" ", "-"),
        status_text=describe_verdict(row),
        records=row.records,
    )
