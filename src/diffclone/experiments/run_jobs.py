"""Run the jobs of a plan: one after another in this process, or with an engine (`executors/`).

Jobs with the same guide are one group, which one worker runs in order, so that the guide is trained once. The driver
writes Records. If a worker is lost, its group is submitted again without the results that have a Record.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile
from diffclone.experiments.execute import Workspace, run_job
from diffclone.experiments.executors.dispatch import Dispatcher, Work, raise_first
from diffclone.experiments.executors.interface import Callbacks, Executor, Needs
from diffclone.experiments.plan import Job, group_jobs, split_timed
from diffclone.experiments.record_index import DEMONSTRATIONS, identify_record, read_demonstrations
from diffclone.experiments.record_keys import content_key
from diffclone.experiments.specification import RunOptions
from diffclone.records import Record
from diffclone.training.runs import lock_folder

ONE_CORE = Needs()
LOCK_SECONDS = 60.0
"""How long a job waits for a worker that was lost and still has the folder of its run."""


def run_jobs(
    jobs: Sequence[Job],
    options: RunOptions,
    workspace: Workspace,
    callbacks: Callbacks,
    executor: Executor | None = None,
    needs: Needs = ONE_CORE,
) -> None:
    """Run all jobs."""
    (workspace.folder / "runs").mkdir(parents=True, exist_ok=True)
    known = workspace.read_records()
    callbacks = replace(callbacks, on_record=skip_known(known, callbacks.on_record))
    if executor is not None:
        parallel, timed = split_timed(jobs)
        run_groups(group_jobs(parallel), options, workspace, callbacks, executor, needs)
        if executor.sees_files:
            jobs = timed
        else:  # one at a time, each alone on the cluster
            for group in group_jobs(timed):
                run_groups([group], options, workspace, callbacks, executor, needs)
            return
    for group in group_jobs(jobs):
        for job in group:
            callbacks.check_stop()
            run_job(job, callbacks, options, workspace)


def skip_known(known: Iterable[Record], on_record: Callable[[Record], None]) -> Callable[[Record], None]:
    """Return a function that passes on only Records that are new: a job that is done again repeats some."""
    keys = {content_key(record) for record in known}

    def add(record: Record) -> None:
        key = content_key(record)
        if key not in keys or record.kind == "failure":
            keys.add(key)
            on_record(record)

    return add


def run_groups(
    groups: Sequence[list[Job]],
    options: RunOptions,
    workspace: Workspace,
    callbacks: Callbacks,
    executor: Executor,
    needs: Needs,
) -> None:
    """Run groups of jobs with an engine. Demonstrations are shared once per task."""
    workspace = replace(
        workspace, folder=workspace.folder.resolve(), cache=workspace.cache and workspace.cache.resolve()
    )
    found: set[str] = set()

    def on_record(record: Record) -> None:
        if (identity := identify_record(record)) is not None:
            found.add(identity.key)
        callbacks.on_record(record)

    tasks = {job.task for group in groups for job in group}
    shared = {task: executor.share(read_demonstrations(task, options.files.get(task))) for task in sorted(tasks)}

    def make_work(group: list[Job]) -> Work:
        def arguments() -> tuple[object, ...] | None:
            left = [job for job in (drop_found(job, found) for job in group) if job.evaluations or job.measurements]
            return (left, options, workspace, shared[group[0].task]) if left else None

        return Work(group[0].name, run_group, arguments, needs)

    dispatcher = Dispatcher(executor, replace(callbacks, on_record=on_record))
    raise_first(dispatcher.run([make_work(group) for group in groups]))


def drop_found(job: Job, found: set[str]) -> Job:
    """Return the job without the results that have a Record."""
    return replace(
        job,
        evaluations=tuple(item for item in job.evaluations if item.identity.key not in found),
        measurements=tuple(item for item in job.measurements if item.identity.key not in found),
    )


def run_group(
    jobs: Sequence[Job], options: RunOptions, workspace: Workspace, demos: Demonstrations, callbacks: Callbacks
) -> None:
    """Run a group in a worker."""
    workspace, task = workspace.on_this_node(), jobs[0].task
    DEMONSTRATIONS[task, options.files.get(task)] = demos
    for job in jobs:
        callbacks.check_stop()
        wait_for_lock(workspace.folder / "runs" / job.name)
        run_job(job, callbacks, options, workspace)


def wait_for_lock(folder: Path) -> None:
    """Wait while a worker that was given up, on a node that was lost, still trains in the folder of a run."""
    end = time.monotonic() + LOCK_SECONDS
    while folder.exists() and time.monotonic() < end:
        try:
            with lock_folder(folder):
                return
        except InvalidFile:
            time.sleep(0.5)
