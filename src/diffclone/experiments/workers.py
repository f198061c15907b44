"""Run jobs in several processes.

Each process has its own pipe to the parent, so a process that is killed cannot block the others. Only the parent writes
Records and handles Ctrl-C; it tells the processes to stop.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, final

import torch

from diffclone.errors import DiffcloneError
from diffclone.experiments.plan import Job
from diffclone.records import Record
from diffclone.training import Progress


class WorkerLost(DiffcloneError, RuntimeError):
    """A worker process that ended before its jobs were done."""


@final
@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while jobs run."""

    on_record: Callable[[Record], None]
    """Called with each new Record."""
    on_training: Callable[[str, Progress], None] = lambda label, progress: None
    on_count: Callable[[str, int, int], None] = lambda label, done, total: None
    """Called with the number of episodes, pairs, … that are done, and their total."""
    check_stop: Callable[[], None] = lambda: None
    """Called between steps. Raises KeyboardInterrupt to stop."""


RunJob = Callable[[Job, Callbacks], None]


def run_in_processes(groups: Sequence[list[Job]], run_job: RunJob, callbacks: Callbacks, workers: int) -> None:
    """Run each group of jobs in one of several processes."""
    context, waiting = multiprocessing.get_context("spawn"), list(groups)
    processes: dict[Connection, BaseProcess] = {}
    exit_codes: list[int] = []

    def listen(check_stop: Callable[[], None]) -> None:
        while processes:
            check_stop()
            for pipe in wait(list(processes), timeout=0.2):
                assert isinstance(pipe, Connection)
                try:
                    name, values = pipe.recv()
                except (EOFError, OSError):
                    process = processes.pop(pipe)
                    process.join()
                    exit_codes.append(process.exitcode or 0)
                    continue
                if name == "ready":
                    with suppress(OSError):  # a process that has ended is noticed above
                        pipe.send(waiting.pop(0) if waiting else None)
                else:
                    getattr(callbacks, name)(*values)

    count = min(workers, len(groups))
    try:
        # Processes inherit that Ctrl-C is ignored.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for index in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=serve_jobs, args=(theirs, run_job, core_share(index, count)))
                process.start()
                theirs.close()
                processes[ours] = process
        finally:
            signal.signal(signal.SIGINT, handler)
        try:
            listen(callbacks.check_stop)
        except BaseException:
            waiting.clear()
            for pipe in processes:
                with suppress(OSError):
                    pipe.send(None)
            listen(lambda: None)  # until the processes have reported everything
            raise
    finally:
        for process in processes.values():  # after a second Ctrl-C
            process.terminate()
    if any(exit_codes):
        codes = ", ".join(str(code) for code in exit_codes if code)
        raise WorkerLost(
            f"a worker process ended with code {codes}. Finished results are kept; run the same command to resume."
        )


def core_share(index: int, count: int) -> tuple[int, set[int] | None]:
    """Return the number of threads of one of several processes, and its CPU cores where the system has a choice."""
    threads = max(1, torch.get_num_threads() // count)
    if sys.platform != "linux":
        return threads, None
    cores = sorted(os.sched_getaffinity(0))
    return threads, {*cores[index::count]} or {cores[index % len(cores)]}


def serve_jobs(pipe: Connection, run_job: RunJob, share: tuple[int, set[int] | None]) -> None:
    """Run groups of jobs from a pipe until None arrives or the parent ends. The main function of a process."""
    limit_threads(*share)

    def send(name: str, *values: Any) -> None:
        pipe.send((name, values))

    def check_stop() -> None:
        if pipe.poll():  # the parent sends only None during a job, and the pipe of a parent that ended can be read
            raise KeyboardInterrupt

    callbacks = Callbacks(
        partial(send, "on_record"), partial(send, "on_training"), partial(send, "on_count"), check_stop
    )
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            send("ready")
            group: list[Job] | None = pipe.recv()
            if group is None:
                return
            for job in group:
                check_stop()
                run_job(job, callbacks)


def limit_threads(threads: int, cores: set[int] | None) -> None:
    """Limit this process to its share of the machine: several processes would otherwise use all cores each."""
    if cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, cores)  # MuJoCo starts one thread per core
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of processes that this one starts
    torch.set_num_threads(threads)
