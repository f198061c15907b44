"""Choose a configuration and a training length from metrics on held-out episodes.

    m(c)   = mean over seeds of the absolute error of held-out actions, for candidate c
    n(c)   = m(c) / 1.1 for flow matching, m(c) for other methods
    S(c)   = log(n(c) / min over candidates of n)
    choice = the smallest S; of flow matching only the longest training is considered

So the choice is flow matching at its longest training, unless the error of another method is lower by more than a
tenth: the success of flow matching hardly falls with longer training, and at an equal error it is mostly higher than
that of BC. A candidate is a configuration at one snapshot of its training. Candidates with weights that are not finite
are not considered, and neither is DBC if another method was tried: its held-out error is low where its success is not.
docs/training.md compares this rule with others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.settings import describe_method, describe_values

ERROR = "error_absolute"
NOT_CHOSEN = "dbc"
"""A method that is shown and not chosen."""
PREFERRED, ADVANTAGE = "flow-matching", 1.1
"""A method that is chosen unless the error of another is lower by more than this factor."""
RULE = (
    f"The score is log(error / lowest error), where the error of {describe_method(PREFERRED)} is first divided by "
    f"{ADVANTAGE}. The lowest score is chosen. Candidates without a score are not considered: of "
    f"{describe_method(PREFERRED)} all but the longest training, and DBC."
)
"""For the page of a search."""
TINY = 1e-9
"""Added to metrics before the logarithm: an error may be exactly zero."""


@final
@dataclass(frozen=True)
class Candidate:
    """A configuration at one snapshot."""

    method: str
    """The method's name, e.g. "bc"."""
    fields: Mapping[str, float]
    """The values that its stack varies, with dots in nested names."""
    updates: int
    """The number of updates of the policy at the snapshot."""
    metrics: Mapping[str, float]
    """Selection metrics, each a mean over seeds; NaN where there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON, with None instead of NaN."""
        metrics = {name: value if np.isfinite(value) else None for name, value in self.metrics.items()}
        return {"method": self.method, "fields": dict(self.fields), "updates": self.updates, "metrics": metrics}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Candidate":
        """Return the candidate that `to_dict` wrote."""
        metrics = {name: np.nan if value is None else float(value) for name, value in values["metrics"].items()}
        return cls(values["method"], dict(values["fields"]), int(values["updates"]), metrics)


def list_candidates(
    method: str,
    updates: int,
    members: Sequence[Mapping[str, int | float]],
    metrics: Mapping[str, Sequence[float | None]],
    seeds: Sequence[int] | None = None,
) -> list[Candidate]:
    """Return the candidates of one snapshot of a stack, from metrics with one value per member.

    `seeds` leaves out members with other seeds.
    """
    groups: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for m, member in enumerate(members):
        if seeds is None or int(member["seed"]) in seeds:
            fields = tuple((name, float(value)) for name, value in member.items() if name != "seed")
            groups.setdefault(fields, []).append(m)
    found: list[Candidate] = []
    for fields, rows in groups.items():
        values = {
            name: np.array([np.nan if (value := column[m]) is None else value for m in rows], dtype=np.float64)
            for name, column in metrics.items()
        }
        found.append(Candidate(method, dict(fields), updates, {name: float(x.mean()) for name, x in values.items()}))
    return found


def column(candidates: Sequence[Candidate], metric: str) -> npt.NDArray[np.float64]:
    """Return a metric of all candidates."""
    return np.array([c.metrics.get(metric, np.nan) for c in candidates], dtype=np.float64)


def scores(candidates: Sequence[Candidate], metrics: Sequence[str] = ()) -> npt.NDArray[np.float64]:
    """Return S of each candidate; infinite for one that is not considered.

    With `metrics`, S is instead the mean of log(metric / its minimum) over these metrics, and candidates of all methods
    and lengths are considered. A metric that is not known for all is left out.
    """
    finite = np.isfinite(column(candidates, ERROR))
    advantage = np.zeros(len(candidates))
    if not metrics:
        finite &= _eligible(candidates, finite)
        advantage[[c.method == PREFERRED for c in candidates]] = np.log(ADVANTAGE)
    total, used = np.zeros(len(candidates)), 0
    for values in (column(candidates, name) for name in metrics or (ERROR,)):
        if finite.any() and np.isfinite(values[finite]).all():
            logs = np.log(values[finite] + TINY) - advantage[finite]
            total[finite] += logs - logs.min()
            used += 1
    total[~finite] = np.inf
    return total / max(1, used)


def _eligible(candidates: Sequence[Candidate], finite: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which candidates the rule considers: not DBC beside other methods, and of `PREFERRED` the longest."""
    others = np.array([c.method != NOT_CHOSEN for c in candidates])
    longest = max(
        (c.updates for c, known in zip(candidates, finite, strict=True) if known and c.method == PREFERRED), default=0
    )
    short = np.array([c.method == PREFERRED and c.updates < longest for c in candidates])
    return (others if (finite & others).any() else np.ones_like(others)) & ~short


def choose(candidates: Sequence[Candidate], metrics: Sequence[str] = ()) -> int:
    """Return the index of the choice; among equal scores the shortest training."""
    found = scores(candidates, metrics)
    return min(range(len(candidates)), key=lambda c: (found[c], candidates[c].updates))


def best_candidates(
    candidates: Sequence[Candidate], chosen: int | None, most: int
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of candidates: the choice first, then those with the lowest S.

    Of the settings, those that are equal in all candidates are left out.
    """
    found = scores(candidates)
    order = sorted(range(len(found)), key=lambda k: (k != chosen, found[k]))
    same = set[tuple[str, float]].intersection(*(set(candidate.fields.items()) for candidate in candidates))
    rows: list[list[str]] = []
    for k in order[:most]:
        candidate = candidates[k]
        fields = {name: value for name, value in candidate.fields.items() if (name, value) not in same}
        values = (candidate.metrics.get(ERROR, np.nan), found[k])
        shown = [f"{value:.3f}" if np.isfinite(value) else "–" for value in values]
        mark = "chosen" if k == chosen else ""
        rows.append(
            [describe_method(candidate.method), describe_values(fields), f"{candidate.updates:,}", *shown, mark]
        )
    return ["method", "settings", "updates", ERROR, "score", ""], rows


def describe_choice(choice: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return the choice and its reason in one line."""
    parts = [f"{describe_method(choice.method)} with {describe_values(choice.fields)}, {choice.updates:,} updates"]
    own, best = choice.metrics[ERROR], candidates[choose(candidates)]
    late = best is not choice
    others = [c for c in candidates if c.method not in (choice.method, NOT_CHOSEN) and np.isfinite(c.metrics[ERROR])]
    rival = min(others, key=lambda c: c.metrics[ERROR], default=None)
    if late:
        parts.append(
            f"the best for which a final training fits into the time left (error of held-out actions {own:.3f})"
        )
        better = f"{describe_method(best.method)} with {best.updates:,} updates had {best.metrics[ERROR]:.3f}"
        parts.append(f"{better}: a larger --budget would train that")
    elif choice.method == PREFERRED and rival is not None:
        parts.append(
            f"error of held-out actions {own:.3f}; {describe_method(rival.method)} has {rival.metrics[ERROR]:.3f}, and "
            f"would be chosen below {own / ADVANTAGE:.3f}"
        )
    else:
        parts.append(f"lowest error of held-out actions of {len(candidates)} candidates ({own:.3f})")
    if choice.updates == max(c.updates for c in candidates if c.method == choice.method):
        parts.append("the longest training tried: a larger --budget may find a better one")
    return "; ".join(parts)
