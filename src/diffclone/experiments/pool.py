"""Several jobs at once, each in a process of its own; the parent alone writes Records."""

import multiprocessing
import queue
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from diffclone.errors import DiffcloneError
from diffclone.experiments.choices import Options
from diffclone.experiments.execute import Place, Watch, do
from diffclone.experiments.plan import Job
from diffclone.records import Record
from diffclone.training import Progress

Guard = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Holds back an interruption until the function that it gives is called."""


TIMED = ("inference",)
"""Kinds of measures that say how long something takes."""


class WorkerLost(DiffcloneError, RuntimeError):
    """A process that ended by itself."""


def groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that need the same guide belong together: it is trained once."""
    together: dict[str, list[Job]] = {}
    for job in jobs:
        together.setdefault(job.shared, []).append(job)
    # The longest first, so that none is left for the end.
    return sorted(together.values(), key=lambda group: -sum(job.members * sum(job.stages.values()) for job in group))


def run_all(
    jobs: Sequence[Job],
    options: Options,
    place: Place,
    workers: int,
    guard: Guard,
    *,
    training: Callable[[str, Progress], None],
    count: Callable[[str, int, int], None],
) -> None:
    """Every job. Records are appended as they are made."""
    place.out.mkdir(parents=True, exist_ok=True)
    (place.out / "runs").mkdir(exist_ok=True)

    def keep(record: Record) -> None:
        record.append_to(place.records)

    def in_turn(jobs: Sequence[Job]) -> None:
        with guard() as stop:
            for group in groups(jobs):
                for job in group:
                    stop()
                    do(job, options, place, keep, Watch(training, count, stop))

    if workers == 1 or len(groups(jobs)) < 2:
        in_turn(jobs)
        return
    together, alone = parted(jobs)
    side_by_side(together, options, place, workers, guard, keep, training, count)
    in_turn(alone)


def parted(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """What may be done side by side, and what takes the time, which needs the machine to itself."""
    together = [replace(job, looks=tuple(look for look in job.looks if look.measure.kind not in TIMED)) for job in jobs]
    timed = [
        replace(job, plays=(), looks=tuple(look for look in job.looks if look.measure.kind in TIMED)) for job in jobs
    ]
    return together, [job for job in timed if job.looks]


def side_by_side(
    jobs: Sequence[Job],
    options: Options,
    place: Place,
    workers: int,
    guard: Guard,
    keep: Callable[[Record], None],
    training: Callable[[str, Progress], None],
    count: Callable[[str, int, int], None],
) -> None:
    """In processes."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, guard() as stop:
        waiting, told, ended = manager.Queue(), manager.Queue(), context.Event()
        for group in groups(jobs):
            waiting.put(group)
        children = [
            context.Process(target=work, args=(waiting, told, ended, options, place, guard))
            for _ in range(min(workers, len(groups(jobs))))
        ]
        for child in children:
            child.start()
        try:
            listen(children, told, keep, training, count, stop)
        except BaseException:
            ended.set()
            listen(children, told, keep, training, count, lambda: None)
            raise
        if any(child.exitcode for child in children):
            codes = ", ".join(str(child.exitcode) for child in children if child.exitcode)
            raise WorkerLost(f"a worker ended with code {codes}. What was done is kept; the same command goes on.")


def listen(
    children: Sequence[Any],
    told: Any,
    keep: Callable[[Record], None],
    training: Callable[[str, Progress], None],
    count: Callable[[str, int, int], None],
    stop: Callable[[], None],
) -> None:
    """Until all children have ended and all that they told is heard."""
    say = {"record": keep, "training": training, "count": count}
    while True:
        stop()
        living = any(child.is_alive() for child in children)
        try:
            what, told_values = told.get(timeout=0.2)
        except queue.Empty:
            if not living:
                return
        else:
            say[what](*told_values)


def work(waiting: Any, told: Any, ended: Any, options: Options, place: Place, guard: Guard) -> None:
    """A child: takes jobs until there are none, or until the parent ends it."""
    with guard() as interrupted:

        def stop() -> None:
            interrupted()
            parent = multiprocessing.parent_process()
            if ended.is_set() or (parent is not None and not parent.is_alive()):
                raise KeyboardInterrupt

        watch = Watch(
            lambda name, now: told.put(("training", (name, now))),
            lambda what, done, total: told.put(("count", (what, done, total))),
            stop,
        )
        try:
            while True:
                try:
                    group: list[Job] = waiting.get_nowait()
                except queue.Empty:
                    return
                for job in group:
                    stop()
                    do(job, options, place, lambda record: told.put(("record", (record,))), watch)
        except KeyboardInterrupt:
            return  # the parent says it
