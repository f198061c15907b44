"""Run jobs one after another, or in several processes.

Each process has its own pipe to the parent, so a process that is killed cannot block the others. Only the parent writes
Records and handles Ctrl-C; it tells the processes to stop.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from diffclone.errors import DiffcloneError
from diffclone.experiments.execute import Callbacks, JobRunner, Workspace
from diffclone.experiments.plan import Job, group_jobs, split_timed
from diffclone.experiments.specification import RunOptions

RunJob = Callable[[Job, Callbacks], None]


class WorkerLost(DiffcloneError, RuntimeError):
    """A worker process that ended before its jobs were done."""


def run_jobs(
    jobs: Sequence[Job], options: RunOptions, workspace: Workspace, callbacks: Callbacks, workers: int = 1
) -> None:
    """Run all jobs."""
    (workspace.folder / "runs").mkdir(parents=True, exist_ok=True)
    run_job = partial(run_one, options, workspace)
    if workers > 1 and len(group_jobs(jobs)) > 1:
        parallel, jobs = split_timed(jobs)
        run_in_processes(group_jobs(parallel), run_job, callbacks, workers)
    for group in group_jobs(jobs):
        for job in group:
            callbacks.check_stop()
            run_job(job, callbacks)


def run_one(options: RunOptions, workspace: Workspace, job: Job, callbacks: Callbacks) -> None:
    """Run one job."""
    JobRunner(job, options, workspace, callbacks).run()


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
