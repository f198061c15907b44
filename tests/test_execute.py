from pathlib import Path
from typing import Any

import pytest

from diffclone.errors import MissingPackage
from diffclone.experiments import EXPERIMENTS, execute
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.plan import Job, plan
from diffclone.experiments.run_jobs import run_jobs
from diffclone.experiments.specification import RunOptions
from diffclone.records import Record
from example_experiments import BC, TINY


def run_all(jobs: list[Job], options: RunOptions, folder: Path) -> list[Record]:
    workspace, made = Workspace(folder, "cpu", None), list[Record]()

    def save(record: Record) -> None:
        record.append_to(workspace.records_file)
        made.append(record)

    run_jobs(jobs, options, workspace, Callbacks(save))
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
