"""One configuration for all settings: what a method is worth to someone who cannot tune it.

    relative(c, k) = score of candidate c on setting k / highest score of any method's candidate on k, in percent
    shared         = the candidate with the highest mean of `relative` over all settings
    left out       = relative(c, k), with c chosen in the same way on all settings but k

A candidate is a configuration at one length of training. Scores are those of tuning, on validation starts: `shared` was
chosen with them, `left out` was not. Imports no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from diffclone.experiments.study.results import Configuration, list_candidates
from diffclone.records import Record

Scores = Mapping[str, float]
"""A candidate's relative score on each setting, in percent."""
Relative = Mapping[str, Sequence[tuple[Configuration, int, Scores]]]
"""The candidates of each method: configuration, snapshot and scores."""


@final
@dataclass(frozen=True)
class SharedConfiguration:
    """The candidate of a method that is best on average."""

    method: str
    configuration: Configuration
    snapshot: int
    relative: Scores
    left_out: Scores


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)


def relative_scores(records: Sequence[Record], settings: Sequence[str], methods: Sequence[str]) -> Relative:
    """Return each method's candidates that were tried on all settings, with their relative scores."""
    scores: dict[str, dict[str, dict[str, float]]] = {method: {} for method in methods}
    known: dict[str, tuple[Configuration, int]] = {}
    for setting in settings:
        tried = {method: list_candidates(records, setting, method) for method in methods}
        best = max(candidate.score for candidates in tried.values() for candidate in candidates)
        for method, candidates in tried.items():
            for c in candidates:
                key = f"{sorted(c.configuration.items())} {c.snapshot}"
                known[key] = (c.configuration, c.snapshot)
                scores[method].setdefault(key, {})[setting] = 100 * c.score / best
    return {
        method: [(*known[key], own) for key, own in found.items() if len(own) == len(settings)]
        for method, found in scores.items()
    }


def shared_configurations(relative: Relative, snapshot: int | None = None) -> list[SharedConfiguration]:
    """Return the shared configuration of each method; with `snapshot` only among candidates of that length."""
    found: list[SharedConfiguration] = []
    for method, candidates in relative.items():
        candidates = [c for c in candidates if snapshot in (None, c[1])]
        if not candidates:
            continue
        configuration, update, scores = max(candidates, key=lambda c: mean(list(c[2].values())))
        left_out = {
            setting: max(candidates, key=lambda c: mean([v for k, v in c[2].items() if k != setting]))[2][setting]
            for setting in scores
        }
        found.append(SharedConfiguration(method, configuration, update, scores, left_out))
    return found
