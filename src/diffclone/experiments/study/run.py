"""Run the study: train a stack, evaluate its snapshots, append one Record per snapshot.

The main process trains. Episodes are run by worker processes with one core each, a few members at a time, while the
next stack is trained.

FOLDER/records.jsonl    every Record, appended when all members of a snapshot are evaluated
FOLDER/runs/NAME        one folder per stack; an interrupted one resumes; removed when all its Records are written
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.evaluation import Scores, evaluate
from diffclone.experiments.execute import Workspace, describe_error, raise_os_error
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.executors.local import core_share, limit_threads
from diffclone.experiments.playing_jobs import join_scores
from diffclone.experiments.study.plan import Stage, StudyOptions, plan_study
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.fit import FitOptions
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.tasks.batch import Starts
from diffclone.training import Progress
from diffclone.training.runs import Run, evaluation_record, train_run
from diffclone.training.selection import SelectionContext, selection_metrics

CHUNK_STEPS = 30_000
"""Environment steps that a worker runs at once, about ten seconds."""
CHECKPOINT_SECONDS = 120.0
POLL_SECONDS = 0.5
LEFT_OUT = ("member_success", "member_return", "success_sd_over_members", "episodes_per_second")
"""Results that follow from the outcomes and would make the Records large."""


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """Some members of a snapshot, to be evaluated in one process."""

    folder: Path
    members: tuple[int, ...]
    setting: str
    starts: Starts
    episodes: int

    def evaluate(self) -> Scores:
        """Run the episodes, on the CPU."""
        policy = Policy.load(self.folder).choose(self.members)
        return evaluate_policy(policy, self.setting, self.starts, self.episodes)


def evaluate_policy(policy: Policy, setting: str, starts: Starts, episodes: int) -> Scores:
    """Run episodes of a setting with all members of a policy."""
    own = TASK_SETTINGS[setting]
    return evaluate(policy, own.task, episodes=episodes, starts=starts, progress=False, **own.make_task_options())


@final
@dataclass(eq=False)
class SnapshotJob:
    """A snapshot whose episodes are being run."""

    stage: Stage
    update: int
    policy: Policy
    """For the Record: settings, members, data and device. Its weights are those of the last update."""
    extra: dict[str, Any]
    chunks: list[Future[Scores]]


@final
@dataclass(eq=False)
class StudyRunner:
    """Runs the stages of a study, one after another, with episodes in parallel."""

    options: StudyOptions
    workspace: Workspace
    callbacks: Callbacks
    pool: ProcessPoolExecutor | None
    running: list[SnapshotJob] = field(default_factory=list[SnapshotJob])
    contexts: dict[str, SelectionContext] = field(default_factory=dict[str, SelectionContext])
    """What the metrics of all snapshots of a setting share."""
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """Why stages failed, by their folders. They are not tried again by this process."""
    data: tuple[Demonstrations, Demonstrations | None] | None = None
    """The demonstrations of the stage and those held out, if they were read elsewhere."""

    def run(self) -> None:
        """Run everything that is missing. A choice is made as soon as its tuning is complete."""
        while True:
            self.callbacks.check_stop()
            self.collect()
            busy = {job.stage.folder for job in self.running} | set(self.failures)
            stages = [s for s in plan_study(self.options, self.workspace.read_records()) if s.folder not in busy]
            if stages:
                self.run_stage(stages[0])
            elif self.running:
                waiting = [chunk for job in self.running for chunk in job.chunks if not chunk.done()]
                wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
            else:
                return

    def run_stage(self, stage: Stage) -> None:
        """Train a stack, and start the evaluation of its snapshots."""
        try:
            run, begun = Run(self.workspace.folder / "runs" / stage.folder), time.monotonic()
            demos, held_out = self.data or stage.demonstrations(self.options.files)
            run = self.train(stage, run, demos)
            shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
            extra = {"training_seconds": round(time.monotonic() - begun, 1), "precision": self.workspace.precision}
            policy = run.policy(self.workspace.device)
            for update in stage.episodes:
                snapshot = replace(run.snapshot(update, self.workspace.device), guide=policy.guide)
                selection = self.measure_selection(stage, snapshot, demos, held_out)
                chunks = self.start_evaluation(stage, run, update, snapshot)
                job = SnapshotJob(stage, update, policy, {**extra, **selection}, chunks)
                self.running.append(job)
        except Exception as error:
            raise_os_error(error)
            self.failures[stage.folder] = describe_error(error)

    def train(self, stage: Stage, run: Run, demos: Demonstrations) -> Run:
        """Train the stack of a stage, or resume it."""

        def report(now: Progress) -> None:
            self.callbacks.on_training(stage.folder, now)
            self.collect()
            self.callbacks.check_stop()

        options = FitOptions(
            seeds=stage.seeds,
            vary=stage.vary,
            device=self.workspace.device,
            precision=self.workspace.precision_of(run.folder),
            cache=self.workspace.cache,
            snapshots=stage.snapshots,
            checkpoint_seconds=CHECKPOINT_SECONDS,
        )
        return train_run(
            run.folder, stage.method, demos, options, task=stage.setting.task, quick=stage.quick, progress=report
        )

    def measure_selection(
        self, stage: Stage, policy: Policy, demos: Demonstrations, held_out: Demonstrations | None
    ) -> dict[str, Any]:
        """Return the metrics of a snapshot on held-out episodes, which need no environment.

        They are for the choice between BC and DBC with single actions, in the full study. A method with many network
        calls per action would take minutes.
        """
        if held_out is None or stage.small or not stage.acts_fast or policy.chunks.has_memory:
            return {}
        name = stage.setting.name
        if name not in self.contexts:
            self.contexts[name] = SelectionContext.prepare(demos, held_out, self.workspace.device)
        metrics = selection_metrics(policy, self.contexts[name])
        rounded = {key: [float(f"{v:.4g}") if isfinite(v) else None for v in values] for key, values in metrics.items()}
        return {"selection": {key: values for key, values in rounded.items() if any(v is not None for v in values)}}

    def start_evaluation(self, stage: Stage, run: Run, update: int, policy: Policy) -> list[Future[Scores]]:
        """Run the episodes of a snapshot, in the pool if there is one and the method acts fast on a CPU."""
        episodes, setting = stage.episodes[update], stage.setting.name
        if self.pool is None or not stage.acts_fast:
            done: Future[Scores] = Future()
            done.set_result(evaluate_policy(policy, setting, stage.starts, episodes))
            return [done]
        size = max(1, CHUNK_STEPS // (episodes * TASKS[stage.setting.task].horizon))
        members = range(stage.members)
        folder = run.folder / "snapshots" / str(update)
        chunks = [tuple(members[k : k + size]) for k in range(0, len(members), size)]
        return [self.pool.submit(Chunk(folder, c, setting, stage.starts, episodes).evaluate) for c in chunks]

    def collect(self) -> None:
        """Append the Records of snapshots whose episodes are done, and remove the runs that have all of theirs."""
        for job in [job for job in self.running if all(chunk.done() for chunk in job.chunks)]:
            self.running.remove(job)
            try:
                scores = join_scores([chunk.result() for chunk in job.chunks])
            except Exception as error:
                raise_os_error(error)
                self.failures[job.stage.folder] = f"episodes: {describe_error(error)}"
                continue
            self.callbacks.on_record(make_record(job, scores))
            if not any(other.stage.folder == job.stage.folder for other in self.running):
                self.finish(job.stage)

    def finish(self, stage: Stage) -> None:
        """Remove the run of a stage that has all its Records: its weights are large and never used again."""
        left = [s.folder for s in plan_study(self.options, self.workspace.read_records())]
        if stage.folder not in left:
            shutil.rmtree(self.workspace.folder / "runs" / stage.folder, ignore_errors=True)


def make_record(job: SnapshotJob, scores: Scores) -> Record:
    """Return the Record of a snapshot."""
    stage = job.stage
    extra = {
        "study": stage.study,
        "setting": stage.setting.name,
        "method": stage.name,
        "snapshot": job.update,
        "chosen": stage.chosen,
        "fields": dict(stage.fields),
        "diverged": list(job.policy.diverged),
        **({"small": True} if stage.small else {}),
        **job.extra,
    }
    return short_record(job.policy, scores, extra, quick=stage.quick)


def short_record(policy: Policy, scores: Scores, extra: Mapping[str, Any], *, quick: bool = False) -> Record:
    """Return a Record whose outcomes are the task's metric only; returns are rounded to integers."""
    outcomes = scores.summary()["outcomes"]
    if TASKS[scores.task].metric == "success":
        outcomes = {"success": outcomes["success"]}
    else:
        outcomes = {"returns": [[float(round(value)) for value in member] for member in outcomes["returns"]]}
    record = evaluation_record(policy, scores, quick=quick, results={**extra, "outcomes": outcomes})
    results = {key: value for key, value in record.results.items() if key not in LEFT_OUT}
    return replace(
        record, data={key: record.data[key] for key in ("fingerprint", "episodes", "steps")}, results=results
    )


@contextmanager
def open_pool(workers: int) -> Generator[ProcessPoolExecutor | None, None, None]:
    """Yield a pool of processes with one core each; None for one worker."""
    if workers < 2:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    arguments = (context.Value("i", 0), workers)
    pool = ProcessPoolExecutor(workers, context, initializer=start_worker, initargs=arguments)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def start_worker(counter: "Synchronized[int]", workers: int) -> None:
    """Give this process one core, and a lower priority than the training has."""
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    limit_threads(1, core_share(index, workers)[1])
    if sys.platform != "win32":
        os.nice(10)


def run_study(options: StudyOptions, workspace: Workspace, callbacks: Callbacks, workers: int = 1) -> dict[str, str]:
    """Run what is missing of a study, and return why stages failed, by their folders."""
    (workspace.folder / "runs").mkdir(parents=True, exist_ok=True)
    with open_pool(workers) as pool:
        runner = StudyRunner(options, workspace, callbacks, pool)
        runner.run()
    return runner.failures
