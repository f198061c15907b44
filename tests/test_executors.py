"""Engines: what the local one does, lost workers, and jobs of experiments on an engine that loses some."""

import importlib.util
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command, assert_error
from diffclone.cli.jobs import describe_jobs
from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.evaluation import evaluate
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.choose import parse_needs
from diffclone.experiments.executors.dispatch import Dispatcher, Work
from diffclone.experiments.executors.interface import (
    Callbacks,
    Event,
    Executor,
    JobCounts,
    Needs,
    WorkerLost,
)
from diffclone.experiments.executors.local import LocalExecutor
from diffclone.experiments.plan import plan
from diffclone.experiments.playing_jobs import ExpertTries, evaluate_with, run_tries
from diffclone.experiments.record_keys import content_key
from diffclone.experiments.run_jobs import run_jobs
from diffclone.experiments.shards import Shard, parse_shard
from diffclone.experiments.specification import DataChanges, Experiment, RunOptions, TableCell, Variant
from diffclone.experiments.study.on_engine import run_study_with
from diffclone.experiments.study.plan import StudyOptions
from diffclone.experiments.study.run import run_study
from diffclone.fit import FitOptions, fit_with_options
from diffclone.methods import DiffusionPolicy
from diffclone.model import Training
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.tasks.experts import collect
from example_experiments import BC
from executor_jobs import add, die, fail, unpicklable, wait_for_stop


def work(name: str, function: Callable[..., Any], *arguments: Any) -> Work:
    return Work(name, function, lambda: arguments)


def test_local_workers_return_results_messages_and_failures(tmp_path: Path) -> None:
    records: list[Record] = []
    cores: list[tuple[int, int]] = []
    results: dict[str, Any] = {}
    counts: list[JobCounts] = []
    killed = tmp_path / "killed"
    killed.mkdir()
    callbacks = Callbacks(
        records.append, on_count=lambda label, done, total: cores.append((done, total)), on_jobs=counts.append
    )

    def then(ended: Work, result: Any) -> list[Work]:
        results[ended.name] = result
        return [work("later", add, shared, 5)] if ended.name == "one" else []

    def stop() -> None:
        if cores[-1] == (0, 1):
            raise KeyboardInterrupt

    threads = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        with LocalExecutor(2) as executor:
            shared = executor.share(np.arange(4))
            works = [work(f"{name}", add, shared, number) for name, number in {"one": 1, "two": 2}.items()]
            works += [work("bad", fail), work("odd", unpicklable)]
            failures = Dispatcher(executor, callbacks).run(works, then)
            assert {name: type(error) for name, error in failures.items()} == {
                "bad": ArithmeticError,
                "odd": AttributeError,
            }
            assert results == {"one": 7, "two": 8, "later": 11}
            assert sorted(record.kind for record in records) == ["first 1", "first 2", "first 5"]
            assert [values[0] for values in cores] == [3, 3, 3]
            if sys.platform == "linux":
                assert {values[1] for values in cores} == {max(1, len(os.sched_getaffinity(0)) // 2)}
            assert counts[-1] == JobCounts(done=3, failed=2)
            # A worker that is killed: its job is done again.
            again = Dispatcher(executor, Callbacks(records.append), tries=2)
            assert again.run([work("lost", die, killed, 1)], then) == {}
            assert results["lost"] == 1
            # One that is killed at every try ends as a failure, in one line.
            (error,) = Dispatcher(executor, Callbacks(records.append), 2).run([work("lost", die, killed, 99)]).values()
            assert isinstance(error, WorkerLost)
            assert str(error).startswith("lost was lost 2 times (its process was killed). Finished results are kept")
            assert len(list(killed.iterdir())) == 4
            # An interrupt stops the workers, and what they report until then is kept.
            with pytest.raises(KeyboardInterrupt):
                Dispatcher(executor, replace(callbacks, check_stop=stop)).run([work("a", wait_for_stop)])
            assert records[-1].kind == "stopped"
    finally:
        torch.set_num_threads(threads)
    assert not multiprocessing.active_children()


class Unreliable(Executor):
    """A fake remote engine: runs jobs in this process, one per call of `events`, and loses workers."""

    sees_files = False

    def __init__(self, lost_after: dict[int, int]):
        self.lost_after = lost_after
        """The number of Records that the n-th job sends before its worker is lost."""
        self.queue: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
        self.begun, self.shared, self.needs = 0, list[Any](), set[Needs]()

    def share(self, value: Any) -> Any:
        self.shared.append(value)
        return value

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any, needs: Needs) -> None:
        self.queue.append((job, function, arguments))
        self.needs.add(needs)

    def events(self, timeout: float) -> list[Event]:
        job, function, arguments = self.queue.pop(0)
        found: list[Event] = []
        limit = self.lost_after.get(self.begun, 10**6)
        self.begun += 1

        class Lost(BaseException): ...

        def on_record(record: Record) -> None:
            if len(found) >= limit:
                raise Lost
            found.append(Event(job, "message", ("on_record", (record,))))

        try:
            result = function(*arguments, Callbacks(on_record))
            return [*found, Event(job, "finished", result)]
        except Lost:
            return [*found, Event(job, "lost", "its node died")]

    @property
    def running(self) -> int:
        return 0

    def cancel(self) -> None:
        self.queue.clear()

    def close(self) -> None: ...


LESS = TableCell("less", "success", Variant("spiral", "bc", data=DataChanges(fraction=0.5)))
BCS = Experiment("bcs", "", "", cells=(BC, replace(BC, options={}), LESS))
"""Two trainings and three evaluations."""


def run_tiny(folder: Path, executor: Executor | None = None) -> list[Record]:
    options, workspace = RunOptions(quick=True), Workspace(folder, "cpu", None)
    jobs = plan([BCS], options, workspace.read_records())
    run_jobs(jobs, options, workspace, Callbacks(lambda r: r.append_to(workspace.records_file)), executor, Needs(2.0))
    return workspace.read_records()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[Record]:
    return run_tiny(folder)


def test_records_are_those_of_one_process_whatever_is_lost(alone: list[Record], tmp_path: Path) -> None:
    executor = Unreliable({0: 0, 1: 1, 2: 2})
    found = run_tiny(tmp_path, executor)
    assert sorted(map(content_key, found)) == sorted(map(content_key, alone))
    assert executor.begun == 5
    assert len(executor.shared) == 1, "demonstrations are shared once"
    assert executor.needs == {Needs(2.0)}


def test_a_record_that_a_killed_driver_lost_is_written_by_the_next(
    alone: list[Record], folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")  # the trainings have ended
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join(lines[3:]))  # all Records of the first job are missing
    assert sorted(map(content_key, run_tiny(tmp_path))) == sorted(map(content_key, alone))


def test_needs() -> None:
    assert parse_needs("", "cpu") == Needs(1.0, 0.0, 0)
    assert parse_needs("", "cuda:0") == Needs(1.0, 0.25, 0)
    assert parse_needs("cpus=2,gpus=0.5,memory=4GB", "cpu") == Needs(2.0, 0.5, 4_000_000_000)
    for wrong in ("cpus", "cpus=-1", "gpus=1.5", "memory=4", "memory=xGB", "disks=1", "cpus=nan"):
        with pytest.raises(InvalidSettings, match="--needs"):
            parse_needs(wrong, "cpu")


def test_the_line_about_jobs() -> None:
    assert describe_jobs(JobCounts(2, 5, 3, 1), 80.0).endswith(
        "2 running, 5 waiting, 3 done, 1 failed, about 2 min 30 s left"
    )
    assert describe_jobs(JobCounts(2, 5, 0, 0), 80.0) == "jobs: 2 running, 5 waiting, 0 done, 0 failed"


def test_shards_divide_the_jobs_and_do_not_depend_on_records(alone: list[Record]) -> None:
    options = RunOptions(quick=True)
    parts = [Shard(k, 2).select(plan([BCS], options, []), [BCS], options) for k in (1, 2)]
    assert sorted(job.name for part in parts for job in part) == sorted(job.name for job in plan([BCS], options, []))
    assert all(len(part) == 1 for part in parts)
    assert Shard(1, 2).select(plan([BCS], options, alone), [BCS], options) == []
    assert parse_shard("") == Shard(1, 1)
    assert parse_shard("2/8") == Shard(2, 8)
    for wrong in ("0/2", "3/2", "2", "a/b", "1/0", "-1/2"):
        with pytest.raises(InvalidSettings, match="--shard takes K/N"):
            parse_shard(wrong)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--on", "slurm"], "--on takes local, ray or ray://HOST:10001"),
        (["--on", "ray://127.0.0.1:9"], "no Ray cluster answers at ray://127.0.0.1:9"),
        (["--needs", "gpu=1"], "--needs takes"),
        (["--shard", "3/2"], "--shard takes K/N"),
    ],
)
def test_a_wrong_engine_is_one_line(flags: list[str], said: str, tmp_path: Path, diffclone: Command) -> None:
    result = diffclone("reproduce", "gradient-field", "--quick", *flags, "--out", tmp_path / "out")
    assert_error(result, said)
    assert not (tmp_path / "out").exists()


def test_ray_that_is_not_installed_is_one_line(
    tmp_path: Path, diffclone: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)
    result = diffclone("reproduce", "gradient-field", "--quick", "--on", "ray", "--out", tmp_path / "out")
    assert_error(result, r"--on ray needs the package ray\. Try: pip install")


@pytest.mark.slow
def test_a_study_has_the_same_records(tmp_path: Path) -> None:
    options = StudyOptions(("tuning",), ("spiral-1",), ("bc",), quick=True)
    found: list[list[str]] = []
    for name, executor in {"alone": None, "engine": Unreliable({0: 1})}.items():
        workspace = Workspace(tmp_path / name, "cpu", None)
        callbacks = Callbacks(partial(save, workspace.records_file))
        if executor is None:
            assert run_study(options, workspace, callbacks) == {}
        else:
            assert run_study_with(executor, options, workspace, callbacks, Needs()) == {}
            assert executor.begun == 3, "one stage of tuning, done again, then the chosen configuration"
        found.append(sorted(map(content_key, workspace.read_records())))
        assert list((workspace.folder / "runs").iterdir()) == []
    assert found[0] == found[1]
    assert len(found[0]) == 4


def save(path: Path, record: Record) -> None:
    record.append_to(path)


def test_episodes_of_members_and_experts() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (40, 6)).astype(np.float32)
    demos = Demonstrations.from_arrays(x, x[:, :2], episode_ends=[40])
    method = DiffusionPolicy(training=Training(updates=2), width=8, sampler="ddim", calls=2)
    policy = fit_with_options(method, demos, FitOptions(seeds=range(3), device="cpu")).policy
    nothing = Callbacks([].append)
    parts = evaluate_with(Unreliable({}), policy, "spiral", nothing, Needs(), episodes=2)
    whole = evaluate(policy, "spiral", episodes=2)
    assert parts.success.tolist() == whole.success.tolist()
    assert parts.length.tolist() == whole.length.tolist()
    # A product of one member's matrices is rounded differently than one of several members'.
    np.testing.assert_allclose(parts.returns, whole.returns, rtol=1e-4)

    task = TASKS["spiral"]
    tries = run_tries(Unreliable({}), ExpertTries("spiral", {}, 3, 0.01), 7, nothing, Needs())
    expert = task.expert()
    env = task.make(1, **expert.env_options)
    alone, engine = (collect(env, expert, 7, seed=3, disturbance=0.01, tries=given) for given in (None, tries))
    assert alone.fingerprint == engine.fingerprint
    assert alone.meta == engine.meta
