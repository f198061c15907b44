"""What a plan will cost, in seconds: updates and episodes over rates measured earlier, or else over a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, final

from diffclone.experiments.plan import Job
from diffclone.records import Record
from diffclone.tasks import TASKS

UPDATES = {"cpu": 60.0, "cuda": 1500.0}
"""Updates a second of a stack, where nothing was measured: about what the brief presets have with five seeds."""
STEPS = {"cpu": 2_000.0, "cuda": 10_000.0}
"""Steps a second of all environments together, where nothing was measured."""


@final
@dataclass(frozen=True)
class Cost:
    """Of one job."""

    seconds: float
    measured: bool
    """Whether all of it is by rates of earlier Records."""


def costs(jobs: Sequence[Job], records: Sequence[Record], device: str) -> list[Cost]:
    """Of each; a guide that several share is counted once."""
    paid: set[str] = set()
    found: list[Cost] = []
    for job in jobs:
        found.append(cost(job, records, device, with_parts=job.shared not in paid))
        paid.add(job.shared)
    return found


def cost(job: Job, records: Sequence[Record], device: str, *, with_parts: bool = True) -> Cost:
    """Training and playing; measures are short beside them."""
    kind = None if job.variant is None else job.variant.method
    trained = [
        updates(record.settings) / record.seconds
        for record in of_kind(records, "training", device)
        if record.settings.get("type") == kind and record.seconds > 1
    ]
    played = [
        float(record.results["episodes_per_second"])
        for record in of_kind(records, "evaluation", device)
        if record.settings.get("type") == kind and record.results.get("task") == job.task
    ]
    rate = median(trained) if trained else UPDATES[device]
    pace = median(played) if played else STEPS[device] / TASKS[job.task].horizon
    episodes = sum(play.episodes for play in job.plays) * len(job.seeds)
    stages = job.stages if with_parts else {name: count for name, count in job.stages.items() if name == "policy"}
    seconds = sum(stages.values()) / rate + episodes / pace
    return Cost(seconds, bool(trained or not job.stages) and bool(played or not job.plays))


def of_kind(records: Iterable[Record], kind: str, device: str) -> list[Record]:
    """Whole ones of a kind of device."""
    return [r for r in records if r.kind == kind and not r.quick and (r.device == "cpu") == (device == "cpu")]


def updates(settings: Mapping[str, Any]) -> int:
    """Of a method and of what it needs that is trained before it."""
    parts = [settings.get("guide"), settings.get("encoder")]
    before = [part for part in parts if part and part.get("type") != "gan"]
    return sum(int(model["training"]["updates"]) for model in (settings, *before))
