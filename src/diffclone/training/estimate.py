"""Measure how long a training will take, from a few updates of each stage.

    seconds of a stage = updates × the time of one, measured with the same members on the same cores

The measurement is a training of its own, whose weights are dropped.
"""

import dataclasses
import math
from dataclasses import replace
from typing import Any, TypeVar

from diffclone.data import AnyDemonstrations, Demonstrations
from diffclone.fit import Diverged, FitOptions, choose_device, fit_with_options
from diffclone.model import Method, Model, Training
from diffclone.training import Progress
from diffclone.training.step import BLOCK

M = TypeVar("M", bound=Model[Any])

ROWS = 4096
"""Steps of the demonstrations that are used: the speed hardly depends on their number."""
FEW, SOME, MANY = 2, 8, 4096
"""Updates of the first measurements, whose time tells how many can be afforded, and the most of the last one."""
LONGEST, SHARE = 3.0, 0.015
"""Seconds per stage of the last measurement, and its share of the whole training."""
SLOW = 10.0
"""Seconds of two blocks of updates above which the last measurement is left out."""
SHORT = 10.0
"""Seconds of a training for which the first measurement is enough."""


def estimate_seconds(method: Method[Any], demos: AnyDemonstrations, options: FitOptions) -> dict[str, float]:
    """Return about how many seconds each stage takes; nothing on a GPU, where the first updates are not like others."""
    if choose_device(options.device).type != "cpu":
        return {}
    updates, some = stage_updates(method), first_steps(demos)

    def measure(options: FitOptions, count: int, patience: float = math.inf) -> dict[str, float]:
        times = seconds_per_update(method, some, options, count, patience)
        return {stage: times[stage] * updates[stage] for stage in times}

    # A loss on held-out data follows every report. A few updates would have too large a share of it.
    without = replace(options, held_out=None)
    try:
        seconds = measure(without, FEW)
        if sum(seconds.values()) > SHORT:  # the first updates of a process are slow
            seconds = measure(without, SOME)
        blocks = {stage: 2 * BLOCK * value / updates[stage] for stage, value in seconds.items()}
        if sum(seconds.values()) > SHORT and max(blocks.values()) < SLOW:
            seconds = measure(options, MANY, min(LONGEST, SHARE * sum(seconds.values())))
    except Diverged:  # the training itself reports it
        return {}
    return seconds


def seconds_per_update(
    method: Method[Any], demos: Demonstrations, options: FitOptions, updates: int, patience: float = math.inf
) -> dict[str, float]:
    """Return the time of an update of each stage; the first report is not counted if there are others.

    At most `updates` are done, and no more after `patience` seconds of a stage.
    """
    reports: dict[str, list[Progress]] = {}

    def report(now: Progress) -> None:
        reports.setdefault(now.stage, []).append(now)

    def enough(now: Progress) -> bool:
        return len(reports[now.stage]) > 1 and now.seconds - reports[now.stage][0].seconds > patience

    own = replace(options, snapshots=(), checkpoints=None, cache=None, enough=enough)
    fit_with_options(limit_updates(method, updates), demos, own, report)
    times: dict[str, float] = {}
    for stage, found in reports.items():
        first, last = found[0], found[-1]
        begun, done = (first.seconds, first.update) if last.update > first.update else (0.0, 0)
        times[stage] = (last.seconds - begun) / (last.update - done)
    return times


def limit_updates(model: M, updates: int) -> M:
    """Return the model with at most this many updates, and so the models in its fields."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(model):
        value: Any = getattr(model, field.name)
        if isinstance(value, Model):
            changes[field.name] = limit_updates(value, updates)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, Training):
            changes[field.name] = replace(value, updates=min(updates, value.updates))
    return replace(model, **changes)


def stage_updates(model: Model[Any], stage: str = "policy") -> dict[str, int]:
    """Return the updates of each stage by its name: "guide", "guide.encoder", …, "policy"."""
    found: dict[str, int] = {}
    for name, part in model.needs().items():
        full = name if stage == "policy" else f"{stage}.{name}"
        found |= stage_updates(part, full)
        if part.trained != "before":
            del found[full]
    return {**found, stage: model.training.updates}


def first_steps(demos: AnyDemonstrations) -> Demonstrations:
    """Return the first episodes, of about `ROWS` steps, and the longest one, so that windows fit as in all the data."""
    count = int((demos.episode_ends <= ROWS).sum())
    chosen = sorted({*range(max(1, count)), int(demos.lengths.argmax())})
    return demos.take(chosen) if isinstance(demos, Demonstrations) else demos.load(chosen)
