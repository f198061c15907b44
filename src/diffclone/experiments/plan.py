"""What of some experiments is still to do: the trainings, each once, and what is played and measured with them."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from diffclone.errors import InvalidSettings
from diffclone.experiments.choices import QUICK_EPISODES, QUICK_SEEDS, Options, method_of, preset_of
from diffclone.experiments.content import Content, Found, cell_content, measure_content
from diffclone.experiments.material import Material
from diffclone.experiments.specification import Experiment, Measurement, Variant
from diffclone.methods import METHODS
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS

SHOWN = 32
"""Letters of a name in a line of progress."""


@final
@dataclass(frozen=True)
class Play:
    """Episodes to play."""

    select: Mapping[str, float]
    options: Mapping[str, Any]
    episodes: int
    """A member."""
    content: Content


@final
@dataclass(frozen=True)
class Look:
    """Something to measure."""

    experiment: str
    measure: Measurement
    content: Content


@final
@dataclass(frozen=True)
class Job:
    """One training, unless nothing needs one, and what is wanted of it."""

    name: str
    """Of its folder."""
    task: str
    variant: Variant | None
    preset: str | None
    method: Method[Any] | None
    seeds: tuple[int, ...]
    plays: tuple[Play, ...]
    looks: tuple[Look, ...]

    @property
    def label(self) -> str:
        """Short, for a line of progress."""
        return self.name if len(self.name) < SHOWN else f"{self.name[: SHOWN - 6]}…{self.name[-4:]}"

    @property
    def members(self) -> int:
        """Trained together."""
        count = len(self.seeds)
        for values in self.variant.vary.values() if self.variant else ():
            count *= len(values)
        return count

    @property
    def stages(self) -> dict[str, int]:
        """Updates of each model that is trained."""
        if self.method is None:
            return {}
        needs = {name: part for name, part in self.method.needs().items() if part.trained == "before"}
        return {**{name: part.training.updates for name, part in needs.items()}, "policy": self.method.training.updates}

    @property
    def shared(self) -> str:
        """Equal for jobs that need the same guide, so that one process trains it once."""
        guide = None if self.method is None else self.method.needs().get("guide")
        if self.variant is None or guide is None or guide.trained != "before":
            return self.name
        return json.dumps([self.task, repr(self.variant.data), to_dict(guide)], sort_keys=True)


def seeds_of(options: Options) -> tuple[int, ...]:
    """0, 1, …"""
    return tuple(range(min(options.seeds, QUICK_SEEDS) if options.quick else options.seeds))


def episodes_of(task: str) -> int:
    """Return the default number of episodes per member, as in the paper."""
    return {"cheetah": 30, "walker": 30}.get(task, 100)


def count_of(options: Options, task: str) -> int:
    """Episodes a member."""
    if options.quick:
        return min(options.episodes or QUICK_EPISODES, QUICK_EPISODES)
    return options.episodes or episodes_of(task)


def plan(experiments: Sequence[Experiment], options: Options, records: Iterable[Record]) -> list[Job]:
    """Jobs, in the order in which they are first needed."""
    check(options)
    material, found = Material(options), Found(records)
    seeds, claimed = seeds_of(options), set[str]()
    arms: dict[str, tuple[str, Variant | None]] = {}
    plays: dict[str, list[Play]] = {}
    looks: dict[str, list[Look]] = {}

    def name(task: str, arm: Variant | None) -> str:
        known = job_name(task, arm, seeds, options, material)
        arms.setdefault(known, (task, arm))
        return known

    for experiment in (narrowed(entry, options.only) for entry in experiments):
        for cell in experiment.cells:
            content, episodes = cell_content(cell, options, material), count_of(options, cell.variant.task)
            if content.key not in claimed and not found.suffices(content, seeds, episodes):
                claimed.add(content.key)
                play = Play(cell.select, cell.options, episodes, content)
                plays.setdefault(name(cell.variant.task, cell.variant), []).append(play)
        for measure in experiment.measurements:
            content = measure_content(experiment.name, measure, options, material)
            if not found.suffices(content, seeds if measure.variant else (), 0):
                look = Look(experiment.name, measure, content)
                looks.setdefault(name(task_of(measure), measure.variant), []).append(look)
    return [
        Job(
            name,
            task,
            arm,
            None if arm is None else preset_of(arm, options.source),
            None if arm is None else method_of(arm, options.source, quick=options.quick),
            seeds,
            tuple(plays.get(name, ())),
            tuple(looks.get(name, ())),
        )
        for name, (task, arm) in arms.items()
    ]


def check(options: Options) -> None:
    """Refuse what makes no sense."""
    if options.seeds < 1 or (options.episodes is not None and options.episodes < 1):
        raise InvalidSettings(
            f"at least one seed and one episode are needed; {options.seeds} and {options.episodes} were asked for."
        )
    for word in options.only:
        if word not in TASKS and word not in METHODS:
            known = ", ".join((*TASKS, *METHODS))
            raise InvalidSettings(f"--only takes tasks and methods; {word!r} is neither. Known: {known}.")
    for task in options.files:
        TASKS[task]


def task_of(measure: Measurement) -> str:
    """That it looks at."""
    return measure.variant.task if measure.variant else str(measure.task)


def chosen(task: str, method: str | None, only: Sequence[str]) -> bool:
    """Whether a task and a method are among those asked for."""
    tasks, methods = ({word for word in only if word in registry} for registry in (TASKS, METHODS))
    return (not tasks or task in tasks) and (not methods or method in methods)


def narrowed(experiment: Experiment, only: Sequence[str]) -> Experiment:
    """The same with these tasks and methods alone."""
    cells = tuple(cell for cell in experiment.cells if chosen(cell.variant.task, cell.variant.method, only))
    measures = tuple(
        measure
        for measure in experiment.measurements
        if chosen(task_of(measure), measure.variant.method if measure.variant else None, only)
    )
    rows = {*(cell.row for cell in cells), *(measure.label for measure in measures)}
    derived = tuple(entry for entry in experiment.derived if {entry.first[0], entry.second[0]} <= rows)
    return replace(experiment, cells=cells, measurements=measures, derived=derived)


def job_name(task: str, arm: Variant | None, seeds: Sequence[int], options: Options, material: Material) -> str:
    """Readable, and other for anything that is other."""
    if arm is None:
        return task
    method = to_dict(method_of(arm, options.source, quick=options.quick))
    vary = {name: list(values) for name, values in arm.vary.items()}
    identity = [task, method, vary, list(seeds), material.identity(task, arm.data), options.quick]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    data = arm.data
    words = [
        preset_of(arm, options.source).replace("/", "-"),
        f"{100 * data.fraction:g}percent" if data.fraction < 1 else "",
        f"noise{data.action_noise:g}" if data.action_noise else "",
        "generated" if data.generated else "",
        *(f"{field}-{value}" for field, value in arm.overrides.items()),
        *arm.vary,
        "quick" if options.quick else "",
        digest,
    ]
    return "-".join(word for word in words if word)
