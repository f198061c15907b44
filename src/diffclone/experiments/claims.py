"""Claims of the paper as data: what each says, where, and which cells test it. `catalogue/claims.py` has the list.

A test needs cells: outcomes of one method on one setting. They are found in Records (evidence.py):

    trained    a TableCell: the method, settings and data of a training; any Record of such an evaluation counts
    recipe     the paper's own recipe at full length, found by the name of its preset
    study      a tuned method with fresh seeds on evaluation starts, found by setting and method
    measured   numbers of a measurement, one per seed: losses, errors
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from diffclone.experiments.specification import Measurement, TableCell
from diffclone.experiments.verdicts import Comparison

Unit = Literal["success", "return", "percent", "ratio"]
"""Points of success, return, percent of a value at the beginning, ratio of two numbers."""
MARGIN = {"success": 2.0, "percent": 2.0}
"""δ in the unit of a test, fixed beforehand."""
RETURN_MARGIN = 0.02
"""δ of a return, as a fraction of the expert's return."""


@final
@dataclass(frozen=True)
class Cell:
    """Outcomes of one method, and where they come from."""

    method: str
    """The name in the table, which says whose settings they are: "DBC (paper)", "BC (tuned)"."""
    trained: TableCell | None = None
    recipe: tuple[str, str] | None = None
    """Task, and method with preset: ("maze", "dbc/paper"). The authors' demonstrations where they were released."""
    study: tuple[str, str] | None = None
    """Setting and method: ("fetch-pick-27", "BC")."""
    small: bool = False
    """Whether it has small networks and few updates; a study then also has few tries."""
    measured: tuple[str, Measurement, str] | None = None
    """Experiment, measurement and which of its numbers: "mse", or the name of a loss."""


Contrast = tuple[tuple[float, Cell], ...]
"""Weights and cells."""


@final
@dataclass(frozen=True)
class ClaimTest:
    """One test of a claim."""

    on: str
    """Task, data and schedule."""
    contrasts: tuple[Contrast, ...]
    """Differences that must all have the claimed sign."""
    task: str
    """The task whose metric is the unit, and whose expert limits what can be reached."""
    unit: Unit = "success"
    margin: float | None = None
    """δ if it is not the usual one."""
    needs_headroom: bool = False
    """Whether the second cell of a contrast must be below the expert for the claim to be testable."""
    setting: str | None = None
    """The task setting, if the expert is that of a setting."""


@final
@dataclass(frozen=True)
class MeasuredRatio:
    """A claim about two numbers that are measured once, such as times: no test, only a bound on their ratio."""

    on: str
    first: tuple[str, Measurement]
    """Experiment and measurement."""
    second: tuple[str, Measurement]
    result: str
    """The number: "milliseconds", "ratio"."""
    least: float = 0.0
    most: float = float("inf")
    """first / second must lie between them."""


@final
@dataclass(frozen=True)
class Claim:
    """One claim of the paper."""

    name: str
    claim: str
    """In one sentence."""
    place: str
    """Section, table or figure of the paper."""
    comparison: Comparison
    tests: tuple[ClaimTest | MeasuredRatio, ...]
    note: str | None = None
    """What limits its tests."""


@final
@dataclass(frozen=True)
class ClaimRow:
    """The result of one test, for tables."""

    claim: str
    place: str
    on: str
    compared: str
    """What is compared: "DBC (paper) − BC (paper)"."""
    difference: float | None
    """The difference; of several, the one nearest to failing."""
    interval: tuple[float, float] | None
    parts: int
    """The number of differences that must all hold."""
    unit: str
    margin: float | None
    """δ."""
    seeds: int | None
    """The least number of seeds of a cell."""
    starts: int | None
    headroom: float | None
    """The expert's score minus the baseline's."""
    verdict: str
    p: float | None
    """Adjusted for the whole table."""
    reason: str | None
    quick: bool
    records: tuple[Any, ...] = ()
    """The Records behind it."""
    name: str = ""
    """Of the claim."""
    note: str | None = None


@final
@dataclass(frozen=True)
class ClaimsTable:
    """All claims with their verdicts."""

    rows: tuple[ClaimRow, ...]
    rule: str
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Tests by verdict."""

    @property
    def quick(self) -> bool:
        """Whether some rows come from shortened runs."""
        return any(row.quick for row in self.rows)
