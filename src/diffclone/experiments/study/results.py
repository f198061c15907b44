"""What the Records of the study say: scores of candidates, the choice, tuned rows, success along training.

    score(configuration, snapshot) = mean over tuning seeds and validation starts
    choice                         = the highest score; among equal ones the shortest training
    reported                       = the choice, trained again with fresh seeds, on evaluation starts

Success is in percent. Imports no torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from diffclone.records import Record
from diffclone.settings import describe_values
from diffclone.statistics import Interval, Table, difference_interval, mean_interval
from diffclone.tasks import TASKS

Configuration = Mapping[str, Any]
BASELINE = "BC"
"""The method that others are compared with."""


@final
@dataclass(frozen=True)
class Candidate:
    """One try: a configuration at a snapshot."""

    configuration: Configuration
    snapshot: int
    score: float
    """Mean over tuning seeds and validation starts."""


@final
@dataclass(frozen=True, eq=False)
class Estimate:
    """Outcomes of one method at one snapshot."""

    seeds: tuple[int, ...]
    outcomes: Table
    """(seeds, starts): success or return."""
    snapshot: int

    @property
    def mean(self) -> float:
        """Mean over seeds and starts."""
        return scale(self.outcomes) * float(self.outcomes.mean())

    @property
    def interval(self) -> Interval:
        """95 % interval over seeds and starts."""
        low, high = mean_interval(self.outcomes)
        return scale(self.outcomes) * low, scale(self.outcomes) * high


@final
@dataclass(frozen=True, eq=False)
class Difference:
    """The paired difference of two methods on the same seeds and starts."""

    mean: float
    interval: Interval
    seeds: int
    starts: int


def study_records(
    records: Iterable[Record], study: str, setting: str, method: str, *, starts: str | None = None
) -> list[Record]:
    """Return the Records of one method on one setting, without shortened runs if there are others."""
    wanted = {"study": study, "setting": setting, "method": method, **({"starts": starts} if starts else {})}
    found = [r for r in records if all(r.results.get(key) == value for key, value in wanted.items())]
    return [r for r in found if not r.quick] or found


def read_outcomes(record: Record) -> Table:
    """Return the outcome of every episode, (members, starts): success or return."""
    outcomes = record.results["outcomes"]
    if TASKS[record.results["task"]].metric == "success":
        return np.array([[letter == "1" for letter in row] for row in outcomes["success"]])
    return np.array(outcomes["returns"], dtype=np.float64)


def scale(outcomes: Table) -> float:
    """Return 100 for success, which is reported in percent."""
    return 100.0 if outcomes.dtype == np.bool_ else 1.0


def list_candidates(records: Iterable[Record], setting: str, method: str) -> list[Candidate]:
    """Return every try of a method on a setting with its score on validation starts."""
    candidates: list[Candidate] = []
    for record in study_records(records, "tuning", setting, method, starts="validation"):
        scores: dict[str, list[float]] = {}
        configurations: dict[str, Configuration] = {}
        table = read_outcomes(record)
        for member, outcomes in zip(record.members, scale(table) * table, strict=True):
            own = {key: value for key, value in member.items() if key != "seed"}
            configuration = {**record.results["fields"], **own}
            configurations[str(configuration)] = configuration
            scores.setdefault(str(configuration), []).append(float(outcomes.mean()))
        snapshot = int(record.results["snapshot"])
        candidates += [Candidate(configurations[k], snapshot, sum(s) / len(s)) for k, s in scores.items()]
    return candidates


def choose_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the highest score; among equal ones the shortest training, then the first.

    Scores are rounded first: equal ones may differ in their last digits, and not in the same way on every machine.
    """
    return min(candidates, key=lambda c: (-round(c.score, 6), c.snapshot))


def estimate(record: Record, starts: int | None = None) -> Estimate:
    """Return the outcomes of a Record, of the first `starts` starts if given. Seeds are in increasing order."""
    seeds = [int(member["seed"]) for member in record.members]
    order = sorted(range(len(seeds)), key=seeds.__getitem__)
    outcomes = read_outcomes(record)[order, :starts]
    return Estimate(tuple(seeds[k] for k in order), outcomes, int(record.results["snapshot"]))


def chosen_estimate(records: Iterable[Record], setting: str, method: str) -> Estimate | None:
    """Return the outcomes of fresh seeds at the chosen snapshot; None if they were not run."""
    found = study_records(records, "fresh", setting, method, starts="evaluation")
    chosen = [r for r in found if r.results["snapshot"] == r.results.get("chosen")]
    return estimate(chosen[-1]) if chosen else None


def training_length(records: Iterable[Record], study: str, setting: str, method: str) -> list[Estimate]:
    """Return success along training: fresh seeds at every snapshot, on the starts that all snapshots have."""
    found = {r.results["snapshot"]: r for r in study_records(records, study, setting, method, starts="evaluation")}
    common = min((int(r.results["episodes"]) for r in found.values()), default=0)
    return [estimate(found[update], common) for update in sorted(found)]


def difference(ours: Estimate, theirs: Estimate) -> Difference:
    """Return ours minus theirs on the seeds and starts that both have."""
    seeds = [seed for seed in ours.seeds if seed in theirs.seeds]
    starts = min(ours.outcomes.shape[1], theirs.outcomes.shape[1])
    first, second = (own.outcomes[[own.seeds.index(seed) for seed in seeds], :starts] for own in (ours, theirs))
    factor = scale(first)
    low, high = difference_interval(first, second)
    mean = float(first.mean() - second.mean())
    return Difference(factor * mean, (factor * low, factor * high), len(seeds), starts)


@final
@dataclass(frozen=True, eq=False)
class TunedRow:
    """A tuned method on a setting."""

    setting: str
    method: str
    tries: int
    chosen: Candidate
    tuning: tuple[int, int]
    """Seeds and validation starts of each try."""
    reported: Estimate | None
    """The choice with fresh seeds on evaluation starts."""
    minus_bc: Difference | None


def tuned_rows(records: Sequence[Record]) -> list[TunedRow]:
    """Return one row per setting and method that has been tuned, in the order of the Records."""
    tuned = [r for r in records if r.results.get("study") == "tuning"]
    rows: list[TunedRow] = []
    for setting, method in dict.fromkeys((r.results["setting"], r.results["method"]) for r in tuned):
        candidates = list_candidates(records, setting, method)
        reported, bc = (chosen_estimate(records, setting, name) for name in (method, BASELINE))
        first = study_records(tuned, "tuning", setting, method)[0]
        seeds = len({member["seed"] for member in first.members})
        rows.append(
            TunedRow(
                setting,
                method,
                len(candidates),
                choose_candidate(candidates),
                (seeds, int(first.results["episodes"])),
                reported,
                difference(reported, bc) if reported and bc and method != BASELINE else None,
            )
        )
    return rows


def describe_configuration(configuration: Configuration) -> str:
    """Return the values of a configuration in words."""
    return describe_values(configuration) or "preset"
