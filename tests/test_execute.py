import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from diffclone.errors import MissingPackage
from diffclone.experiments import EXPERIMENTS, execute
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.execute import Workspace, run_jobs
from diffclone.experiments.plan import Job, plan
from diffclone.experiments.specification import RunOptions
from diffclone.experiments.workers import Callbacks, RunJob, WorkerLost, run_in_processes
from diffclone.records import Record
from example_experiments import BC, TINY


def run_all(jobs: list[Job], options: RunOptions, folder: Path) -> list[Record]:
    made: list[Record] = []
    run_jobs(jobs, options, Workspace(folder, "cpu", None), Callbacks(made.append))
    return made


def test_a_failure_is_recorded_and_other_jobs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = RunOptions(quick=True)
    evaluate = execute.evaluate

    def broken(policy: Any, task: str, **settings: Any) -> Any:
        if type(policy.method).__name__ == "BC":
            raise MissingPackage("a package is missing.")
        return evaluate(policy, task, **settings)

    monkeypatch.setattr(execute, "evaluate", broken)
    made = run_all(plan([TINY], options, []), options, tmp_path)
    assert sorted(record.kind for record in made) == ["evaluation", "failure", "training", "training"]
    (table,) = compare_experiments([TINY], made)
    assert [cell.status for cell in table.cells] == ["failed", "not printed"]
    assert table.cells[0].reason == "a package is missing."

    monkeypatch.setattr(execute, "evaluate", evaluate)
    again = plan([TINY], options, made)
    assert [job.variant for job in again] == [BC.variant], "only the failed evaluation is run again"
    more = run_all(again, options, tmp_path)
    assert [record.kind for record in more] == ["evaluation"], "the training is not repeated"
    (table,) = compare_experiments([TINY], [*made, *more])
    assert [cell.status for cell in table.cells] == ["not printed", "not printed"]


def test_a_failed_training_fails_its_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory\nand more lines")

    monkeypatch.setattr(execute, "train_run", broken)
    options = RunOptions(quick=True)
    made = run_all(plan([TINY, EXPERIMENTS["manifold"]], options, []), options, tmp_path)
    reasons = {record.results["reason"] for record in made if record.kind == "failure"}
    assert reasons == {"training: RuntimeError: out of memory"}
    (table,) = compare_experiments([EXPERIMENTS["manifold"]], made)
    assert [cell.status for cell in table.cells] == ["failed"] * 3
    assert [r.results["label"] for r in table.measured["trajectories"]] == ["expert"], "it needs no training"


def test_an_interrupted_job_resumes(tmp_path: Path) -> None:
    options = RunOptions(quick=True)
    calls: list[int] = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    (job,) = plan([TINY], options, [])[1:]
    workspace, made = Workspace(tmp_path, "cpu", None), list[Record]()
    with pytest.raises(KeyboardInterrupt):
        run_jobs([job], options, workspace, Callbacks(made.append, check_stop=stop))
    assert made == []
    assert (tmp_path / "runs" / job.name / "checkpoints" / "guide.safetensors").exists()
    begun: list[str] = []
    callbacks = Callbacks(made.append, on_training=lambda label, now: begun.append(f"{now.stage} {now.update}"))
    run_jobs([job], options, workspace, callbacks)
    assert [record.kind for record in made] == ["training", "evaluation"]
    assert "guide 64" not in begun, "the guide was finished"
    assert not (tmp_path / "runs" / job.name / "checkpoints").exists(), "a finished training needs none"


# Worker processes. They import this module to find the functions that they run.


def report_threads(job: Job, callbacks: Callbacks) -> None:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 0
    callbacks.on_count(os.environ["OMP_NUM_THREADS"], torch.get_num_threads(), cores)


def kill_dbc(job: Job, callbacks: Callbacks) -> None:
    if job.variant is not None and job.variant.method == "dbc":
        os.kill(os.getpid(), signal.SIGKILL)
    callbacks.on_count(job.name, 1, 1)


def wait_for_stop(job: Job, callbacks: Callbacks) -> None:
    callbacks.on_count(job.name, 0, 1)
    try:
        while True:
            callbacks.check_stop()
            time.sleep(0.01)
    finally:
        callbacks.on_record(Record(job.name, {}, [], {}, {}, "cpu", 0.0))


def run_both(run_job: RunJob, callbacks: Callbacks) -> None:
    """Run the two jobs of the example in two processes."""
    groups = [[job] for job in plan([TINY], RunOptions(quick=True), [])]
    try:
        run_in_processes(groups, run_job, callbacks, workers=2)
    finally:
        assert not multiprocessing.active_children()


def test_workers_share_the_cores() -> None:
    counts: list[tuple[str, int, int]] = []

    def store(threads: str, in_torch: int, cores: int) -> None:
        counts.append((threads, in_torch, cores))

    threads = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        run_both(report_threads, Callbacks([].append, on_count=store))
    finally:
        torch.set_num_threads(threads)
    assert [values[:2] for values in counts] == [("3", 3)] * 2
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
        assert sum(values[2] for values in counts) == max(cores, 2)


def test_a_killed_worker_is_reported_and_the_other_finishes() -> None:
    counts: list[str] = []
    with pytest.raises(WorkerLost, match=r"code -9.*run the same command"):
        run_both(kill_dbc, Callbacks([].append, on_count=lambda label, done, total: counts.append(label)))
    assert [name.split("-")[1] for name in counts] == ["bc"]


def test_an_interrupt_stops_the_workers_and_keeps_their_records() -> None:
    started: list[str] = []
    made: list[Record] = []

    def check_stop() -> None:
        if len(started) == 2:
            raise KeyboardInterrupt

    callbacks = Callbacks(made.append, on_count=lambda label, done, total: started.append(label), check_stop=check_stop)
    with pytest.raises(KeyboardInterrupt):
        run_both(wait_for_stop, callbacks)
    assert {record.kind for record in made} == {*started}
