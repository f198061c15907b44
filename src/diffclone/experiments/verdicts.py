"""Decide which claims of the paper hold, from the outcome of every seed on every start.

A test has one or more contrasts D_k, each a difference between cells on the same starts (statistics.py), and a margin δ
that was fixed before the results were known. Three statements are tested, each with a one-sided p-value:

    comparison   holds                    fails                      equivalent
    above        all D_k > 0              some D_k < 0               all |D_k| < δ
    level        all D_k > −δ             some D_k < −δ              –
    within       all |D_k| < δ            some |D_k| > δ             –

    p of "all"   = max_k p_k              every part must be shown
    p of "some"  = K · min_k p_k          of K parts (Bonferroni)
    P            = 2 · min(p_holds, p_fails, p_equivalent)       each statement counts for both directions
    adjusted     Holm's correction of P over all tests with data: P times a factor f, which falls as P grows

    equivalent    2 f p_equivalent ≤ α       the difference, if there is one, is smaller than the margin
    reproduced    2 f p_holds ≤ α            and not equivalent
    contradicted  2 f p_fails ≤ α            and not equivalent
    no headroom   none of these, or equivalent, and the expert is less than δ above the baseline
    unresolved    otherwise

So a table has a wrong verdict with a probability of about α at most. There is no verdict from fewer than MIN_SEEDS
seeds of a cell, from Records without the outcomes of every start, or from quick runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from diffclone.statistics import Estimate, holm

ALPHA = 0.05
MIN_SEEDS = 10

Comparison = Literal["above", "level", "within"]
Verdict = Literal["reproduced", "equivalent", "contradicted", "unresolved", "no headroom", "not run"]
RULE = (
    f"A verdict needs the outcomes of at least {MIN_SEEDS} seeds on the same starts. Reproduced: the difference has "
    "the sign that the paper claims. Contradicted: it has the other sign. Equivalent: it is smaller than the margin. "
    "No headroom: nothing was shown, and the expert is less than the margin above the baseline. Unresolved: nothing "
    "was shown. Seeds and starts are both random effects, and Holm's correction keeps the probability of any wrong "
    f"verdict in the table at about {100 * ALPHA:g} %. Intervals are 95 %, without this correction."
)


@final
@dataclass(frozen=True)
class Evidence:
    """What is known about one test."""

    comparison: Comparison
    estimates: tuple[Estimate, ...]
    """D_k; empty if something was not run."""
    margin: float
    """δ, in the unit of the estimates."""
    headroom: float | None = None
    """The expert's score minus the baseline's, for claims that need room for improvement."""
    problem: str | None = None
    """Why there can be no verdict: not run, quick, no outcomes recorded."""
    missing: bool = False
    """Whether something was not run."""


@final
@dataclass(frozen=True)
class Decision:
    """The verdict of one test."""

    verdict: Verdict
    p: float | None
    """Adjusted by Holm's method; None without a test."""
    reason: str | None = None
    """Why nothing is resolved, where it is known."""


@final
@dataclass(frozen=True)
class PValues:
    """The p-values of the three statements of a test."""

    holds: float
    fails: float
    equivalent: float

    @property
    def smallest(self) -> float:
        """P, without a correction for several tests."""
        return min(1.0, 2 * min(self.holds, self.fails, self.equivalent))


def compute_p_values(data: Evidence) -> PValues:
    """Apply the table at the top of this file."""
    margin, estimates, count = data.margin, data.estimates, len(data.estimates)
    inside = max(max(d.p_below(margin), d.p_above(-margin)) for d in estimates)
    if data.comparison == "above":
        fails = min(d.p_below(0.0) for d in estimates)
        return PValues(max(d.p_above(0.0) for d in estimates), min(1.0, count * fails), inside)
    if data.comparison == "level":
        fails = min(d.p_below(-margin) for d in estimates)
        return PValues(max(d.p_above(-margin) for d in estimates), min(1.0, count * fails), 1.0)
    outside = min(min(d.p_above(margin), d.p_below(-margin)) for d in estimates)
    return PValues(inside, min(1.0, 2 * count * outside), 1.0)


def decide_all(tests: Sequence[Evidence], alpha: float = ALPHA) -> list[Decision]:
    """Return the verdict of each test of a table."""
    tested = [k for k, data in enumerate(tests) if find_problem(data) is None]
    values = {k: compute_p_values(tests[k]) for k in tested}
    raw = [values[k].smallest for k in tested]
    adjusted = dict(zip(tested, holm(raw), strict=True))
    return [
        decide(data, values[k], adjusted[k], alpha) if k in values else undecided(data) for k, data in enumerate(tests)
    ]


def find_problem(data: Evidence) -> str | None:
    """Return why a test has no verdict, or None."""
    if data.problem is not None:
        return data.problem
    seeds = min(estimate.seeds for estimate in data.estimates)
    return f"{seeds} seed{'s' * (seeds != 1)}" if seeds < MIN_SEEDS else None


def undecided(data: Evidence) -> Decision:
    """Return the verdict of a test that cannot be decided."""
    return Decision("not run" if data.missing else "unresolved", None, find_problem(data))


def decide(data: Evidence, p: PValues, adjusted: float, alpha: float) -> Decision:
    """Return the verdict of a test, given its p-values and its adjusted P."""
    factor = adjusted / p.smallest if p.smallest > 0 else 1.0

    def shown(value: float) -> bool:
        return adjusted <= alpha and 2 * factor * value <= alpha

    if not shown(p.equivalent):
        if shown(p.holds):
            return Decision("reproduced", adjusted)
        if shown(p.fails):
            return Decision("contradicted", adjusted)
    if data.headroom is not None and data.headroom < data.margin:
        return Decision("no headroom", adjusted, "the baseline is as good as the expert")
    return Decision("equivalent" if shown(p.equivalent) else "unresolved", adjusted)
