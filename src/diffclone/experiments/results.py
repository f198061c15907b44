"""Results of an experiment beside the paper's numbers: plain values for reports and tables. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from diffclone.records import Record

Status = Literal["compared", "other demonstrations", "not comparable", "not printed", "not run", "failed"]
"""Whether our number can be compared with the paper's (`compare.py`). Claims have verdicts, levels have none."""


@final
@dataclass(frozen=True)
class MeasuredValue:
    """One of our numbers with its 95 % interval. Success is in percent."""

    mean: float
    low: float
    high: float
    seeds: int
    episodes: int
    """Per seed; 0 if no episodes were run."""
    record: Record
    """The Record that the number comes from."""


@final
@dataclass(frozen=True)
class PrintedValue:
    """A number of the paper."""

    mean: float
    sd: float | None
    seeds: int | None
    note: str | None = None
    """What contradicts it elsewhere in the paper."""


@final
@dataclass(frozen=True)
class ComparedCell:
    """One cell of a table."""

    row: str
    column: str
    unit: str
    """success, return, ratio, mse, episodes/s, ms, drop (percent lost) or times."""
    ours: MeasuredValue | None
    printed: PrintedValue | None
    status: Status
    by: float | None
    """Our number minus the paper's, if they can be compared."""
    reason: str | None = None
    """Why there is no number, or why it cannot be compared."""
    task: str = ""
    """The task and the method that it belongs to, by their names; empty if there is none."""
    method: str = ""


@final
@dataclass(frozen=True)
class ResultTable:
    """The results of one experiment."""

    name: str
    title: str
    about: str
    """The question the experiment answers."""
    source: str
    """Where the settings come from: "ours", "paper" or "release"."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[ComparedCell, ...]
    measured: Mapping[str, tuple[Record, ...]]
    """Records of measurements by kind, in the order of the specification; results["label"] names each."""
    quick: bool
    """Whether it holds shortened runs, which are never compared."""
    settings: Mapping[str, Any]
    """What the paper leaves open and what we chose, by topic."""
