"""Jobs in processes of their own: all compile at once, and then each takes its time alone, one after another.

On a GPU nearly all of a benchmark is waiting for compilers, which use a core each. The parent hands out turns: a child
says that it is ready, waits for its turn, and says when it is over. A child that dies or dawdles forfeits its turn.
Each has a pipe of its own, so that none can hold up the others.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from benchmarks.speed.parts import Bencher, Job
from diffclone.errors import DiffcloneError
from diffclone.records import Record

PATIENCE, GRACE = 1800.0, 30.0
"""Seconds that a child has to be ready, and to end after its answer."""


class JobLost(DiffcloneError, RuntimeError):
    """Jobs without an answer."""


def side_by_side(jobs: Sequence[Job], bencher: Bencher, progress: Callable[[str, int, int], None]) -> Iterator[Record]:
    """The Record of each job, as they come."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in jobs]
    children = [
        context.Process(target=work, args=(job, bencher, told), daemon=True)
        for job, (_, told) in zip(jobs, pipes, strict=True)
    ]
    for child, (_, told) in zip(children, pipes, strict=True):
        child.start()
        told.close()  # the child has it: when it dies, the other end says so
    heard: dict[Any, int] = {pipe: k for k, (pipe, _) in enumerate(pipes)}
    waiting, ended, lost = set[int](), set[int](), dict[int, str]()
    begun = time.monotonic()

    def listen(until: Callable[[], bool]) -> Iterator[Record]:
        while not until():
            pipes_heard: list[Any] = wait(list(heard), timeout=0.2)
            for pipe in pipes_heard:
                k = heard[pipe]
                try:
                    what, value = pipe.recv()
                except (EOFError, ConnectionError):
                    del heard[pipe]
                    children[k].join()
                    if k not in ended:
                        ended.add(k)
                        lost[k] = f"ended with code {children[k].exitcode}"
                    continue
                if what == "ready":
                    waiting.add(k)
                elif what == "over":
                    waiting.discard(k)
                elif what == "failed":
                    ended.add(k)
                    lost[k] = value
                else:
                    ended.add(k)
                    yield value

    def all_ready() -> bool:
        progress("compiling", len(waiting | ended), len(jobs))
        return len(waiting | ended) == len(jobs) or time.monotonic() - begun > PATIENCE

    def passed(k: int) -> bool:
        progress("timing", len(jobs) - len(waiting - ended), len(jobs))
        return k not in waiting or k in ended

    try:
        yield from listen(all_ready)
        for k in set(range(len(jobs))) - waiting - ended:
            children[k].terminate()  # the others are not to be timed beside it
            children[k].join()
            ended.add(k)
            lost[k] = f"not ready after {PATIENCE:.0f} s"
        for k in sorted(waiting):
            with suppress(OSError):  # it may have died while it waited; then its pipe says so next
                pipes[k][0].send("turn")
            yield from listen(lambda k=k: passed(k))
        yield from listen(lambda: len(ended) == len(jobs))
        for child in children:
            child.join(GRACE)
    finally:
        for child in children:
            child.terminate()
    if lost:
        reasons = "; ".join(f"{f'{jobs[k].method} {jobs[k].label}'.strip()}: {why}" for k, why in lost.items())
        raise JobLost(f"{len(lost)} of {len(jobs)} jobs have no answer ({reasons}). The others are kept.")


def work(job: Job, bencher: Bencher, told: Any) -> None:
    """A child."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there are as many compilers as jobs already

    @contextmanager
    def alone() -> Generator[None, None, None]:
        told.send(("ready", None))
        told.recv()
        yield
        told.send(("over", None))

    try:
        told.send(("record", replace(bencher, alone=alone).do(job)))
    except Exception as fault:  # whatever it is, the parent tells it in one line
        lines = str(fault).strip().splitlines() or [""]
        told.send(("failed", f"{type(fault).__name__}: {lines[0]}"))
