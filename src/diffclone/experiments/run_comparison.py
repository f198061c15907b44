"""Compare runs with each other: paired differences on the same starts, settings that differ, losses of training.

The first run is the baseline. Each other run has one contrast D = its mean − the baseline's (statistics.py), with seeds
and starts as random effects; runs with the same seeds are paired by seed. p is that of D ≠ 0, two-sided, and is
corrected for the number of runs by Holm's method. Imports no torch.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.files import read_lines
from diffclone.records import Record
from diffclone.statistics import Estimate, Interval, Table, estimate_contrast, holm, mean_interval

LOSSES = ("L_BC", "loss")
"""Losses of the policy that are shown: the first one that a run has."""
HELD_OUT = "held_out/"
HEADER = ("run", "mean (95 %)", "minus the first (95 %)", "p (Holm)")
"""Columns of a comparison."""
Curve = tuple[list[int], npt.NDArray[np.float64]]
"""Updates, and the loss (reports, members)."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class ComparedRun:
    """The outcomes of one run."""

    name: str
    """The folder of the run, for tables."""
    record: Record
    """Its evaluation."""
    seeds: tuple[int, ...]
    """The seeds of its members, in increasing order."""
    outcomes: Table
    """(seeds, starts), in the order of the seeds: success, or return."""
    settings: Mapping[str, Any]
    """What the run was trained with: method, data, precision."""
    reused: bool
    """Whether the evaluation had been recorded before."""
    losses: Mapping[str, Curve]
    """Losses of training by name; empty if there is no file of them."""

    @property
    def mean(self) -> float:
        """Mean over seeds and starts, in percent for success."""
        return scale(self.outcomes) * float(self.outcomes.mean())

    @property
    def interval(self) -> Interval:
        """95 % interval of the mean."""
        low, high = mean_interval(self.outcomes)
        return scale(self.outcomes) * low, scale(self.outcomes) * high

    def __repr__(self) -> str:
        sizes = f"{len(self.seeds)} seeds × {self.outcomes.shape[1]} starts"
        return f"ComparedRun({self.name}, {sizes}, mean {describe_mean(self.mean, self.interval)})"


@final
@dataclass(frozen=True)
class RunDifference:
    """One run minus the baseline."""

    estimate: Estimate
    """In percentage points for success."""
    p: float
    """Two-sided."""
    adjusted: float
    """p after Holm's correction."""
    paired: bool
    """Whether both have the same seeds."""

    @property
    def interval(self) -> Interval:
        """95 % interval, without the correction."""
        return self.estimate.interval()


@final
class Comparison(list[RunDifference]):
    """The differences of runs to the first of them. A notebook shows all runs as a table."""

    def __init__(self, runs: Sequence[ComparedRun], differences: Iterable[RunDifference]):
        super().__init__(differences)
        self.runs = runs
        """All runs; the first is the baseline."""

    def __repr__(self) -> str:
        lines = [", ".join(f"{name} {cell}" for name, cell in zip(HEADER, row, strict=True)) for row in self.rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from diffclone.data.notebook import html_table  # imports torch

        return html_table(f"Compared on {self.runs[0].outcomes.shape[1]} starts", self.rows(), HEADER)

    def rows(self) -> list[list[str]]:
        """Return the cells of the table: name, mean, difference to the first run and its p."""
        rows = [[self.runs[0].name, describe_mean(self.runs[0].mean, self.runs[0].interval), "–", "–"]]
        for run, found in zip(self.runs[1:], self, strict=True):
            gap = describe_mean(found.estimate.mean, found.interval, "+")
            rows.append([run.name, describe_mean(run.mean, run.interval), gap, f"{found.adjusted:.2g}"])
        return rows


def describe_mean(mean: float, interval: Interval, sign: str = "-") -> str:
    """Return a mean with its interval as text, with at least three digits."""
    middle, low, high = (f"{value:{sign}.4g}" for value in (mean, *interval))
    return f"{middle} ({low} … {high})"


def scale(outcomes: Table) -> float:
    """Return 100 for success, which is reported in percent."""
    return 100.0 if outcomes.dtype == np.bool_ else 1.0


def read_outcomes(record: Record, episodes: int) -> tuple[tuple[int, ...], Table]:
    """Return the seeds in increasing order and their outcomes from the first starts: success if it is known."""
    outcomes: Any = record.results["outcomes"]
    if metric_of(record) == "success":
        table: Table = np.array([[letter == "1" for letter in row] for row in outcomes["success"]], dtype=np.bool_)
    else:
        table = np.array(outcomes["returns"], dtype=np.float64)
    seeds = [int(member["seed"]) for member in record.members]
    order = sorted(range(len(seeds)), key=seeds.__getitem__)
    return tuple(seeds[k] for k in order), table[order, :episodes]


def metric_of(record: Record) -> str:
    """Return what a task is scored by; success in an environment that reported it."""
    from diffclone.tasks import TASKS

    if record.results["success_rate"] is None:
        return "return"
    task = str(record.results["task"])
    return TASKS[task].metric if task in TASKS else "success"


def by_return(run: ComparedRun) -> ComparedRun:
    """Return a run with its returns, for comparison with a run whose environment reported no success."""
    record = replace(run.record, results={**run.record.results, "success_rate": None})
    return replace(run, record=record, outcomes=read_outcomes(record, run.outcomes.shape[1])[1])


def find_evaluation(
    records: Sequence[Record],
    *,
    members: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    task: str,
    options: Mapping[str, Any],
    episodes: int,
    snapshot: int | None,
) -> Record | None:
    """Return the newest Record of these members from the first `episodes` evaluation starts of a task, or None."""
    wanted = {"task": task, "protocol": "fixed", "starts": "evaluation", "options": dict(options), "snapshot": snapshot}
    for record in reversed(records):
        results = record.results
        if (
            record.kind == "evaluation"
            and record.members == [dict(member) for member in members]
            and record.settings == settings
            and all(results.get(name) == value for name, value in wanted.items())
            and results.get("outcomes") is not None
            and int(results["episodes"]) >= episodes
        ):
            return record
    return None


def compare_runs(runs: Sequence[ComparedRun]) -> Comparison:
    """Return the difference of each run after the first to the first."""
    first, others = runs[0], runs[1:]
    found: list[tuple[Estimate, float, bool]] = []
    for run in others:
        if (run.outcomes.dtype, run.outcomes.shape[1]) != (first.outcomes.dtype, first.outcomes.shape[1]):
            sides = [f"{r.name} has {r.outcomes.shape[1]} starts scored by {metric_of(r.record)}" for r in (first, run)]
            raise InvalidSettings(f"{', '.join(sides)}: give all runs the same starts and the same kind of score.")
        paired, factor = run.seeds == first.seeds, scale(first.outcomes)
        estimate = estimate_contrast([run.outcomes, first.outcomes], [factor, -factor], paired=paired)
        found.append((estimate, two_sided_p(estimate, first.outcomes.shape[1]), paired))
    adjusted = holm([p for _, p, _ in found])
    differences = (RunDifference(e, p, q, paired) for (e, p, paired), q in zip(found, adjusted, strict=True))
    return Comparison(runs, differences)


def two_sided_p(estimate: Estimate, starts: int) -> float:
    """Return p of D ≠ 0. With one seed the contrast is over starts: if all differ alike, p is that of their signs."""
    if estimate.seeds == 1 and estimate.error == 0 and estimate.mean != 0:
        return 2.0 ** (1 - starts)
    return min(1.0, 2 * min(estimate.p_above(0.0), estimate.p_below(0.0)))


def differing_settings(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Return the settings in which runs differ, as text, one value per run; an empty text where a run has none."""
    flat = [flatten(run.settings) for run in runs]
    names = dict.fromkeys(name for own in flat for name in own)
    rows = {name: [own.get(name, "") for own in flat] for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def flatten(values: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Return nested settings as text by their dotted names; the name of a method or a guide without ".type"."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = path if key == "type" and path else f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            found |= flatten(cast(Mapping[str, Any], value), name)
        elif value is not None:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def read_losses(path: Path) -> dict[str, Curve]:
    """Return the losses of a run's policy from metrics.jsonl: of training, and on held-out episodes where recorded."""
    if not path.exists():
        return {}
    lines = [line for line in read_lines(path) if line.get("stage") == "policy"]
    name = next((name for name in LOSSES if any(name in line for line in lines)), None)
    if name is None:
        return {}
    found: dict[str, Curve] = {}
    for label, key in (("training", name), ("held-out", f"{HELD_OUT}{name}")):
        known = [(int(line["update"]), line[key]) for line in lines if key in line]
        if known:
            values = np.array([row for _, row in known], dtype=np.float64).reshape(len(known), -1)
            found[f"{name}, {label}"] = [update for update, _ in known], values
    return found
