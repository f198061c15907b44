"""Run a study with an engine: each stage, a stack and the episodes of its snapshots, is one job."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from diffclone.data import Demonstrations
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.dispatch import Dispatcher, Work
from diffclone.experiments.executors.interface import Callbacks, Executor, Needs
from diffclone.experiments.run_jobs import wait_for_lock
from diffclone.experiments.study.plan import Stage, StudyOptions, plan_study
from diffclone.experiments.study.run import StudyRunner

StageData = tuple[Demonstrations, Demonstrations | None]


def run_study_with(
    executor: Executor, options: StudyOptions, workspace: Workspace, callbacks: Callbacks, needs: Needs
) -> dict[str, str]:
    """Run what is missing of a study, and return why stages failed, by their folders.

    A stage that needs a choice begins as soon as its tuning is complete.
    """
    (workspace.folder / "runs").mkdir(parents=True, exist_ok=True)
    there = replace(workspace, folder=workspace.folder.resolve(), cache=workspace.cache and workspace.cache.resolve())
    begun: set[str] = set()
    shared: dict[tuple[str, bool], Any] = {}
    failures: dict[str, str] = {}

    def missing() -> dict[str, Stage]:
        return {stage.folder: stage for stage in plan_study(options, workspace.read_records())}

    def make_work(name: str, stage: Stage) -> Work:
        key = (stage.setting.name, stage.study == "tuning")
        if key not in shared:
            shared[key] = executor.share(stage.demonstrations(options.files))

        def arguments() -> tuple[Any, ...] | None:
            left = missing().get(name)  # a stage that is done again may have some of its Records
            return None if left is None else (left, options, there, shared[key])

        return Work(name, run_stage, arguments, needs)

    def next_works() -> list[Work]:
        new = {name: stage for name, stage in missing().items() if name not in begun}
        begun.update(new)
        return [make_work(name, stage) for name, stage in new.items()]

    def then(work: Work, reasons: dict[str, str]) -> Iterable[Work]:
        failures.update(reasons)
        return next_works()

    lost = Dispatcher(executor, callbacks).run(next_works(), then)
    return failures | {name: str(error) for name, error in lost.items()}


def run_stage(
    stage: Stage, options: StudyOptions, workspace: Workspace, data: StageData, callbacks: Callbacks
) -> dict[str, str]:
    """Run a stage in a worker, and return why it failed, if it did."""
    workspace = workspace.on_this_node()
    folder = workspace.folder / "runs" / stage.folder
    wait_for_lock(folder)
    runner = StudyRunner(options, workspace, callbacks, None, data=data)
    runner.run_stage(stage)
    runner.collect()
    if not runner.failures:
        shutil.rmtree(folder, ignore_errors=True)  # its weights are large and never used again
    return runner.failures
