"""Choose a configuration and a training length from metrics on held-out episodes.

    m(c)   = mean over seeds of the absolute error of held-out actions, for candidate c
    S(c)   = log(m(c) / min over candidates of m)
    choice = the smallest S

A candidate is a configuration at one snapshot of its training. Candidates with weights that are not finite are not
considered, and neither is DBC if another method was tried: its held-out error is low where its success is not.
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

    `metrics` are used instead of the absolute error: S is then their mean. One that is not known for all is left out.
    """
    finite = np.isfinite(column(candidates, ERROR))
    others = np.array([candidate.method != NOT_CHOSEN for candidate in candidates])
    finite &= others if not metrics and (finite & others).any() else True
    total, used = np.zeros(len(candidates)), 0
    for values in (column(candidates, name) for name in metrics or (ERROR,)):
        if finite.any() and np.isfinite(values[finite]).all():
            logs = np.log(values[finite] + TINY)
            total[finite] += logs - logs.min()
            used += 1
    total[~finite] = np.inf
    return total / max(1, used)


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
    late = best.metrics[ERROR] < own
    reason = f"lowest error of held-out actions of {len(candidates)} candidates ({own:.3f})"
    if late:
        reason = f"lowest error of held-out actions for which a final training fits into the time left ({own:.3f})"
    parts.append(reason)
    if late:
        better = f"{describe_method(best.method)} with {best.updates:,} updates had {best.metrics[ERROR]:.3f}"
        parts.append(f"{better}: a larger --budget would train that")
    if choice.updates == max(c.updates for c in candidates if c.method == choice.method):
        parts.append("the longest training tried: a larger --budget may find a better one")
    return "; ".join(parts)
