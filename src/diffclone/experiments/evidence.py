"""Find the outcomes that the claims of the paper need among Records."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from diffclone.experiments.claims import Cell
from diffclone.experiments.paper import paper
from diffclone.experiments.record_index import (
    RecordIndex,
    ResultIdentity,
    count_episodes,
    identify_cell,
    identify_measurement,
)
from diffclone.experiments.specification import Measurement, RunOptions
from diffclone.experiments.verdicts import MIN_SEEDS
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.tasks.experts import EXPERT_RECORDS

NOT_RUN, NO_OUTCOMES, QUICK = "not run", "no outcomes recorded", "quick"


@final
@dataclass(frozen=True)
class RecipeKind:
    """Which Records of the paper's recipe to use: all cells of a comparison have the same kind."""

    authors: bool
    """Whether they are trained on the demonstrations that the authors released."""
    precision: str | None
    """Of matrix products in training; None: any."""


RECIPE_KINDS = tuple(
    RecipeKind(authors, precision) for precision in ("float32", "tf32", "bfloat16", None) for authors in (True, False)
)
"""In the order of preference. Different precisions are compared only where there is nothing else."""


@final
@dataclass(frozen=True, eq=False)
class FoundCell:
    """Outcomes of a cell, or why there are none."""

    outcomes: Mapping[int, Sequence[float]]
    """By seed: the score of each start, in percent for success."""
    mean: float | None
    """Also known for Records without outcomes."""
    records: tuple[Record, ...]
    problem: str | None
    """NOT_RUN, NO_OUTCOMES, QUICK or None."""


class CellFinder:
    """Finds cells among Records. Quick Records are used only where there are no others."""

    def __init__(self, records: Iterable[Record], files: Mapping[str, str] | None = None):
        self.records = list(records)
        self.index = RecordIndex(self.records)
        self.files = files or {}
        bundled = Record.read_all(EXPERT_RECORDS)
        experts = [*bundled, *(r for r in self.records if replaces_expert(r, bundled))]
        self.experts = {str(r.results.get("setting") or r.results["task"]): r for r in experts}

    def find(self, cell: Cell, kind: RecipeKind) -> FoundCell:
        """Return the outcomes of a cell."""
        if cell.measured is not None:
            experiment, measurement, result = cell.measured
            record = self.find_measurement(experiment, measurement, small=cell.small)
            values = {} if record is None else read_measured(record, result)
            return self.join([] if record is None else [record], values)
        if cell.trained is not None:
            trained = cell.trained
            found = self.find_records(lambda options: identify_cell(trained, options), small=cell.small)
        else:
            found = self.find_named(cell, kind)
        found = [r for r in found if not r.quick] or found
        if cell.study is not None:
            found = keep_latest_choice(found)
        rows: dict[int, Sequence[float]] = {}
        for record in sorted(found, key=lambda r: (int(r.results["episodes"]), r.when)):
            rows |= read_outcomes(record)
        return self.join(found, rows)

    def join(self, records: Sequence[Record], rows: Mapping[int, Sequence[float]]) -> FoundCell:
        """Return the cell with its mean and what is wrong with it."""
        if not records:
            return FoundCell({}, None, (), NOT_RUN)
        if not rows:
            metric = TASKS[records[0].results["task"]].metric
            largest = max(records, key=lambda r: len(r.members))
            mean = largest.results["mean_return" if metric == "return" else "success_rate"]
            scaled = float(mean) * (100 if metric == "success" else 1)
            return FoundCell({}, scaled, (largest,), NO_OUTCOMES)
        quick = any(record.quick for record in records)
        return FoundCell(rows, mean_of_rows(rows), tuple(records), QUICK if quick else None)

    def list_options(self, *, small: bool) -> list[RunOptions]:
        """Return the options of full Records, then those of shortened ones."""
        source = "small" if small else "ours"
        return [RunOptions(source, quick=quick, files=self.files) for quick in (False, True)]

    def find_records(self, identify: Callable[[RunOptions], ResultIdentity], *, small: bool) -> list[Record]:
        """Return the Records with an identity, shortened ones included."""
        identities = [identify(options) for options in self.list_options(small=small)]
        return [record for identity in identities for record in self.index.finished.get(identity.key, [])]

    def find_named(self, cell: Cell, kind: RecipeKind) -> list[Record]:
        """Return the Records of the paper's recipe or of the study."""
        evaluations = [r for r in self.records if r.kind == "evaluation" and r.results.get("starts") == "evaluation"]
        if cell.recipe is not None:
            task, preset = cell.recipe
            wanted = {"preset": f"{task}/{preset}", "protocol": "fixed", "options": {}}
            found = [r for r in evaluations if all(r.results.get(name) == value for name, value in wanted.items())]
            found = [r for r in found if kind.precision in (r.results.get("precision", "float32"), None)]
            return [r for r in found if (r.data.get("fingerprint") == paper()["authors"].get(task)) == kind.authors]
        assert cell.study is not None, "a cell has one source"
        setting, method = cell.study
        wanted = {"study": "fresh", "setting": setting, "method": method}
        found = [r for r in evaluations if all(r.results.get(name) == value for name, value in wanted.items())]
        found = [r for r in found if r.results.get("small", False) == cell.small]
        return [r for r in found if r.results.get("snapshot") == r.results.get("chosen")]

    def find_measurement(self, experiment: str, measurement: Measurement, *, small: bool = False) -> Record | None:
        """Return the Record of a measurement."""
        for options in self.list_options(small=small):
            record = self.index.best(identify_measurement(experiment, measurement, options))
            if record is not None:
                return record
        return None

    def expert_score(self, task: str, setting: str | None, *, authors: bool) -> float:
        """Return the expert's success in percent, or its return.

        It is that of the setting if its expert was evaluated, or that of the demonstrations that the authors released.
        """
        if authors and task in paper()["authors"]:
            return float(paper()["authors"]["expert"][task])
        results = self.experts[setting if setting in self.experts else task].results
        return results["mean_return"] if TASKS[task].metric == "return" else 100 * results["success_rate"]


def replaces_expert(record: Record, bundled: Sequence[Record]) -> bool:
    """Return whether a Record has the score of a task's own expert, from as many starts as the bundled Record.

    With other options or weights it is another expert. Older Records do not name them, and count as without.
    """
    if record.kind != "expert" or record.results.get("starts") != "evaluation" or record.settings.get("options"):
        return False
    least = [count_episodes(r) for r in bundled if r.results["task"] == record.results["task"]]
    return count_episodes(record) >= max(least, default=1)


def keep_latest_choice(records: Sequence[Record]) -> list[Record]:
    """Return the Records of the latest choice: seeds of two choices are not seeds of one method."""

    def choice(record: Record) -> tuple[Any, Any]:
        return record.results.get("fields"), record.results.get("chosen")

    newest = max(reversed(records), key=lambda record: record.when, default=None)
    return [record for record in records if newest is not None and choice(record) == choice(newest)]


def mean_of_rows(rows: Mapping[int, Sequence[float]]) -> float:
    """Return the mean over seeds of the mean of each."""
    return float(np.mean([np.mean(row) for row in rows.values()]))


def use_common_starts(contrast: Sequence[tuple[float, FoundCell]]) -> list[tuple[float, FoundCell]]:
    """Return the cells of a contrast with the same number of starts of every seed.

    A seed with few episodes would take most starts from all others, so the number of starts is the one with the most
    seeds × starts, of those that leave enough seeds for a verdict if there are any. A seed with fewer starts is left
    out of every cell, so that cells with the same seeds stay paired.
    """
    lengths: dict[int, int] = {}
    for _, cell in contrast:
        for seed, row in cell.outcomes.items():
            lengths[seed] = min(len(row), lengths.get(seed, len(row)))

    def preference(starts: int) -> tuple[bool, int]:
        seeds = min(sum(lengths[seed] >= starts for seed in cell.outcomes) for _, cell in contrast)
        return seeds >= MIN_SEEDS, seeds * starts

    starts = max(sorted(lengths.values()), key=preference)  # of equal ones the one with the most seeds
    cut = [{s: row[:starts] for s, row in cell.outcomes.items() if lengths[s] >= starts} for _, cell in contrast]
    return [
        (w, replace(cell, outcomes=rows, mean=mean_of_rows(rows)))
        for (w, cell), rows in zip(contrast, cut, strict=True)
    ]


def read_outcomes(record: Record) -> dict[int, Sequence[float]]:
    """Return the score of each start by seed, in percent for success; nothing if it was not recorded."""
    outcomes: Any = record.results.get("outcomes")
    if outcomes is None:
        return {}
    if TASKS[record.results["task"]].metric == "success":
        rows = [[100.0 * (letter == "1") for letter in row] for row in outcomes["success"]]
    else:
        rows = outcomes["returns"]
    return {int(member["seed"]): row for member, row in zip(record.members, rows, strict=True)}


def read_measured(record: Record, result: str) -> dict[int, Sequence[float]]:
    """Return one number per seed: an error, or how far a loss falls during training, in percent.

    L_BC is compared with that of the mean action, which is 1 for normalised actions; another loss with its first value.
    """
    seeds = [int(member["seed"]) for member in record.members]
    if result == "mse":
        return {seed: [float(value)] for seed, value in zip(seeds, record.results["mse"], strict=True)}
    losses: Any = record.results["losses"][result]
    first, last = np.array(losses[0]), np.array(losses[-1])
    fallen = 100 * (1 - last / (1.0 if result == "L_BC" else first))
    return {seed: [float(value)] for seed, value in zip(seeds, fallen, strict=True)}
