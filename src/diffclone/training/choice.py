"""Choose a configuration and a training length from metrics on held-out episodes.

    m(c)   = mean over seeds of the rule's metric for candidate c
    S(c)   = log(m(c) / min over candidates of m)
    choice = the smallest S

A candidate is a configuration at one snapshot of its training. The metric is `track_K`: policies run for K steps in
dynamics that are learned from the demonstrations, and are judged by their distance from held-out demonstrations. K is
the longest horizon at which this tells policies apart:

- The dynamics can be trusted: replayed with the expert's own actions, they are at most half as far off as the best
  candidate.
- The best candidate follows the demonstrations: its distance is at most 3/4. The mean state has a distance of 1. In a
  gait every policy loses the phase in the end; the one that moves least is then the closest, and the worst.

If there is no such K, the metric is the absolute error of held-out actions.
Candidates with weights that are not finite are not considered. docs/training.md compares this rule with others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.settings import describe_method, describe_values

ERROR = "error_absolute"
HORIZONS = (50, 20, 10, 5)
TRUST = 0.5
"""Largest error of the dynamics, relative to the best candidate's distance."""
FOLLOWS = 0.75
"""Largest distance of the best candidate, in standard deviations of the states."""
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


def rule_metric(candidates: Sequence[Candidate]) -> str:
    """Return the name of the metric that candidates are chosen by."""
    for k in HORIZONS:
        track, model = (column(candidates, f"{name}_{k}") for name in ("track", "model"))
        finite = np.isfinite(column(candidates, ERROR))
        known = finite.any() and np.isfinite(track[finite]).all()
        if known and model[finite].max() <= TRUST * track[finite].min() <= TRUST * FOLLOWS:
            return f"track_{k}"
    return ERROR


def column(candidates: Sequence[Candidate], metric: str) -> npt.NDArray[np.float64]:
    """Return a metric of all candidates."""
    return np.array([c.metrics.get(metric, np.nan) for c in candidates], dtype=np.float64)


def scores(candidates: Sequence[Candidate], metrics: Sequence[str] = ()) -> npt.NDArray[np.float64]:
    """Return S of each candidate; infinite for one whose held-out error is not finite.

    `metrics` are used instead of the rule's metric: S is then their mean. One that is not known for all is left out.
    """
    finite = np.isfinite(column(candidates, ERROR))
    total, used = np.zeros(len(candidates)), 0
    for values in (column(candidates, name) for name in metrics or (rule_metric(candidates),)):
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
    found, metrics = scores(candidates), list(dict.fromkeys([rule_metric(candidates), ERROR]))
    order = sorted(range(len(found)), key=lambda k: (k != chosen, found[k]))
    same = set[tuple[str, float]].intersection(*(set(candidate.fields.items()) for candidate in candidates))
    rows: list[list[str]] = []
    for k in order[:most]:
        candidate = candidates[k]
        fields = {name: value for name, value in candidate.fields.items() if (name, value) not in same}
        values = [candidate.metrics.get(name, np.nan) for name in metrics]
        shown = [f"{value:.3f}" if np.isfinite(value) else "–" for value in (*values, found[k])]
        mark = "chosen" if k == chosen else ""
        rows.append(
            [describe_method(candidate.method), describe_values(fields), f"{candidate.updates:,}", *shown, mark]
        )
    return ["method", "settings", "updates", *metrics, "score", ""], rows


def describe_choice(choice: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return the choice and its reason in one line."""
    parts = [f"{describe_method(choice.method)} with {describe_values(choice.fields)}, {choice.updates:,} updates"]
    metric, best = rule_metric(candidates), candidates[choose(candidates)]
    reason = f"lowest {metric} of {len(candidates)} candidates ({choice.metrics[metric]:.3f})"
    late = best.metrics[metric] < choice.metrics[metric]
    if late:
        reason = f"lowest {metric} for which a final training fits into the time left ({choice.metrics[metric]:.3f})"
    if metric != ERROR:
        k = metric.rpartition("_")[2]
        reason += f", the distance from held-out demonstrations after {k} steps in learned dynamics"
        reason += f" (with the expert's actions {choice.metrics[f'model_{k}']:.3f})"
    elif np.isfinite(column(candidates, "model_5")).any():
        reason += ", the error of held-out actions, because policies cannot be compared in the learned dynamics"
    parts.append(reason)
    if late:
        better = f"{describe_method(best.method)} with {best.updates:,} updates had {best.metrics[metric]:.3f}"
        parts.append(f"{better}: a larger --budget would train that")
    if choice.updates == max(c.updates for c in candidates):
        parts.append("the longest training tried: a larger --budget may find a better one")
    return "; ".join(parts)
