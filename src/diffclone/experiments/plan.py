"""Plan experiments: which trainings, evaluations and measurements are missing, and how long they will take."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, final

from diffclone.errors import InvalidSettings
from diffclone.experiments.presets import preset_name, variant_method
from diffclone.experiments.record_index import (
    RecordIndex,
    ResultIdentity,
    identify_cell,
    identify_data,
    identify_measurement,
)
from diffclone.experiments.record_keys import TIMED
from diffclone.experiments.specification import Experiment, Measurement, RunOptions, Variant
from diffclone.methods import METHODS
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS

LABEL_LENGTH = 32
UPDATES_PER_SECOND = {"cpu": 60.0, "gpu": 1500.0}
"""The default for a stack without Records: about the rate of the brief presets with five seeds."""
STEPS_PER_SECOND = {"cpu": 2_000.0, "gpu": 10_000.0}
"""The default for all environments together without Records."""


@final
@dataclass(frozen=True)
class PlannedEvaluation:
    """Episodes to run."""

    identity: ResultIdentity
    select: Mapping[str, float]
    """The value of each varied field that chooses the members."""
    options: Mapping[str, Any]
    """Options of the environment."""
    episodes: int
    """Per member."""


@final
@dataclass(frozen=True)
class PlannedMeasurement:
    """A measurement to make."""

    identity: ResultIdentity
    measurement: Measurement


@final
@dataclass(frozen=True)
class Job:
    """At most one training, and everything that needs it."""

    name: str
    """The name of its folder."""
    task: str
    variant: Variant | None
    preset: str | None
    method: Method[Any] | None
    """None if nothing is trained."""
    seeds: tuple[int, ...]
    evaluations: tuple[PlannedEvaluation, ...]
    measurements: tuple[PlannedMeasurement, ...]

    @property
    def label(self) -> str:
        """A short name for progress bars."""
        return self.name if len(self.name) < LABEL_LENGTH else f"{self.name[: LABEL_LENGTH - 6]}…{self.name[-4:]}"

    @property
    def members(self) -> int:
        """The number of members that are trained together."""
        return len(self.seeds) * math.prod(len(values) for values in self.variant.vary.values()) if self.variant else 0

    @property
    def updates(self) -> dict[str, int]:
        """The number of updates of each model that is trained."""
        if self.method is None:
            return {}
        parts = {name: part for name, part in self.method.needs().items() if part.trained == "before"}
        return {name: part.training.updates for name, part in parts.items()} | {"policy": self.method.training.updates}

    @property
    def guide_key(self) -> str:
        """A string that is equal for jobs with the same guide, so that one process trains it once."""
        guide = None if self.method is None else self.method.needs().get("guide")
        if self.variant is None or guide is None or guide.trained != "before":
            return self.name
        return json.dumps([self.task, repr(self.variant.data), to_dict(guide)], sort_keys=True)


def plan(experiments: Sequence[Experiment], options: RunOptions, records: Iterable[Record]) -> list[Job]:
    """Return the jobs that are missing from the Records, in the order of the experiments."""
    check_options(options)
    index, seeds = RecordIndex(records), options.seed_list
    variants: dict[str, tuple[str, Variant | None]] = {}
    planned: dict[str, list[PlannedEvaluation | PlannedMeasurement]] = {}
    known: set[str] = set()

    def add(task: str, variant: Variant | None, item: PlannedEvaluation | PlannedMeasurement) -> None:
        episodes = item.episodes if isinstance(item, PlannedEvaluation) else 0
        if item.identity.key in known or index.covers(item.identity, seeds if variant else (), episodes):
            return
        known.add(item.identity.key)
        name = job_name(task, variant, options)
        variants.setdefault(name, (task, variant))
        planned.setdefault(name, []).append(item)

    for experiment in (filter_experiment(entry, options.only) for entry in experiments):
        for cell in experiment.cells:
            task, identity = cell.variant.task, identify_cell(cell, options)
            item = PlannedEvaluation(identity, cell.select, cell.options, options.episodes_for(task))
            add(task, cell.variant, item)
        for measurement in experiment.measurements:
            identity = identify_measurement(experiment.name, measurement, options)
            add(measurement.task_name, measurement.variant, PlannedMeasurement(identity, measurement))
    return [
        Job(
            name,
            task,
            variant,
            None if variant is None else preset_name(variant, options.source),
            None if variant is None else variant_method(variant, options),
            seeds,
            tuple(item for item in planned[name] if isinstance(item, PlannedEvaluation)),
            tuple(item for item in planned[name] if isinstance(item, PlannedMeasurement)),
        )
        for name, (task, variant) in variants.items()
    ]


def check_options(options: RunOptions) -> None:
    """Raise an error if no seeds, no episodes or unknown names are requested."""
    if options.seeds < 1 or (options.episodes is not None and options.episodes < 1):
        raise InvalidSettings(
            f"at least one seed and one episode are needed; {options.seeds} and {options.episodes} were requested."
        )
    for word in options.only:
        if word not in TASKS and word not in METHODS:
            known = ", ".join((*TASKS, *METHODS))
            raise InvalidSettings(f"--only takes tasks and methods; {word!r} is neither. Known: {known}.")
    for task in options.files:
        TASKS[task]


def is_selected(task: str, method: str | None, only: Sequence[str]) -> bool:
    """Return whether `only` includes the task and the method."""
    tasks, methods = ({word for word in only if word in registry} for registry in (TASKS, METHODS))
    return (not tasks or task in tasks) and (not methods or method in methods)


def filter_experiment(experiment: Experiment, only: Sequence[str]) -> Experiment:
    """Return the experiment with only these tasks and methods."""
    cells = tuple(cell for cell in experiment.cells if is_selected(cell.variant.task, cell.variant.method, only))
    measurements = tuple(
        measurement
        for measurement in experiment.measurements
        if is_selected(measurement.task_name, measurement.variant.method if measurement.variant else None, only)
    )
    rows = {*(cell.row for cell in cells), *(measurement.label for measurement in measurements)}
    derived = tuple(entry for entry in experiment.derived if {entry.first[0], entry.second[0]} <= rows)
    return replace(experiment, cells=cells, measurements=measurements, derived=derived)


def job_name(task: str, variant: Variant | None, options: RunOptions) -> str:
    """Return a readable name, which differs for trainings that differ in anything."""
    if variant is None:
        return task
    data, vary = variant.data, {name: list(values) for name, values in variant.vary.items()}
    method = to_dict(variant_method(variant, options))
    identity = [task, method, vary, list(options.seed_list), identify_data(task, data, options), options.quick]
    # Guides of version 0.1.0 had this field: with it, folders of that version keep their names and resume.
    identity = json.loads(
        json.dumps(identity), object_hook=lambda d: d | ({"t_shares": None} if "t_sampling" in d else {})
    )
    words = [
        preset_name(variant, options.source).replace("/", "-"),
        f"{100 * data.fraction:g}percent" if data.fraction < 1 else "",
        f"noise{data.action_noise:g}" if data.action_noise else "",
        "generated" if data.generated else "",
        *(f"{field}-{value}" for field, value in variant.overrides.items()),
        *variant.vary,
        "quick" if options.quick else "",
        hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8],
    ]
    return "-".join(word for word in words if word)


def group_jobs(jobs: Sequence[Job]) -> list[list[Job]]:
    """Group jobs with the same guide, which is trained once. The longest group comes first."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.guide_key, []).append(job)
    return sorted(groups.values(), key=lambda group: -sum(job.members * sum(job.updates.values()) for job in group))


def split_timed(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Split jobs into what may run in parallel, and measurements of time, which need the machine to themselves."""

    def measurements(job: Job, *, timed: bool) -> tuple[PlannedMeasurement, ...]:
        return tuple(item for item in job.measurements if (item.measurement.kind in TIMED) == timed)

    parallel = [replace(job, measurements=measurements(job, timed=False)) for job in jobs]
    timed = [replace(job, evaluations=(), measurements=measurements(job, timed=True)) for job in jobs]
    return parallel, [job for job in timed if job.measurements]


@final
@dataclass(frozen=True)
class CostEstimate:
    """The time that a job will take."""

    seconds: float
    measured: bool
    """Whether all rates are from Records."""


def estimate_costs(jobs: Sequence[Job], records: Sequence[Record], device: str) -> list[CostEstimate]:
    """Estimate the time of each job. A guide that several jobs share is counted once."""
    guides: set[str] = set()
    estimates: list[CostEstimate] = []
    for job in jobs:
        updates = {n: u for n, u in job.updates.items() if n == "policy" or job.guide_key not in guides}
        guides.add(job.guide_key)
        estimates.append(estimate_cost(job, sum(updates.values()), records, device))
    return estimates


def estimate_cost(job: Job, updates: int, records: Sequence[Record], device: str) -> CostEstimate:
    """Estimate the time of training and evaluation; measurements are short in comparison."""
    similar = [
        record
        for record in records
        if not record.quick
        and (record.device == "cpu") == (device == "cpu")
        and record.settings.get("type") == (None if job.variant is None else job.variant.method)
    ]
    training_rates = [count_updates(r.settings) / r.seconds for r in similar if r.kind == "training" and r.seconds > 1]
    episode_rates = [
        float(r.results["episodes_per_second"])
        for r in similar
        if r.kind == "evaluation" and r.results.get("task") == job.task
    ]
    hardware = "cpu" if device == "cpu" else "gpu"
    training_rate = median(training_rates or [UPDATES_PER_SECOND[hardware]])
    episode_rate = median(episode_rates or [STEPS_PER_SECOND[hardware] / TASKS[job.task].horizon])
    episodes = sum(item.episodes for item in job.evaluations) * len(job.seeds)
    return CostEstimate(
        updates / training_rate + episodes / episode_rate,
        bool(training_rates or not job.updates) and bool(episode_rates or not job.evaluations),
    )


def count_updates(settings: Mapping[str, Any]) -> int:
    """Return the updates of a method and of the models that are trained before it."""
    parts = [settings.get("guide"), settings.get("encoder")]
    before = [part for part in parts if part and part.get("type") != "gan"]
    return sum(int(model["training"]["updates"]) for model in (settings, *before))
