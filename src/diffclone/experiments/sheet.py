"""What came out of an experiment, beside what is printed: plain values, for anything that shows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from diffclone.records import Record

Verdict = Literal["agrees", "better", "short", "not comparable", "not printed", "not run", "failed"]
"""Stated in `compare.py`, and computed there."""


@final
@dataclass(frozen=True)
class Value:
    """A number of ours. Success and its interval are in percent."""

    mean: float
    low: float
    """Of the 95 % interval."""
    high: float
    seeds: int
    episodes: int
    """A seed; 0 where nothing was played."""
    record: Record
    """Where it comes from."""


@final
@dataclass(frozen=True)
class Printed:
    """A number of the paper."""

    mean: float
    sd: float | None
    seeds: int | None
    note: str | None = None
    """What contradicts it elsewhere in the paper."""


@final
@dataclass(frozen=True)
class Compared:
    """One cell of a table."""

    row: str
    column: str
    unit: str
    """success, return, ratio, mse, episodes/s, ms, drop (percent lost) or times."""
    ours: Value | None
    printed: Printed | None
    verdict: Verdict
    by: float | None
    """Ours less the paper's."""
    reason: str | None = None
    """Why there is no number, or why it cannot be compared."""


@final
@dataclass(frozen=True)
class Sheet:
    """One experiment."""

    name: str
    title: str
    about: str
    source: str
    """Whose settings: "ours" or "paper"."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Compared, ...]
    measured: Mapping[str, tuple[Record, ...]]
    """Records of measures by kind, in the order of the spec; their label is in results["label"]."""
    quick: bool
    """Of shortened runs: shows that everything works, and is never compared."""
    settings: Mapping[str, Any]
    """What the paper leaves open and was chosen, in words, by name."""
