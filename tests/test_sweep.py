import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import diffclone.experiments.sweep
from diffclone import BC, Demonstrations, Network, Training, fit
from diffclone.cli.sweep import check_choice
from diffclone.errors import DiffcloneWarning, InvalidFile, InvalidSettings, UnknownName
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.interface import Needs
from diffclone.experiments.sweep import (
    SweepFailed,
    check_results,
    choose_record,
    make_scheduler,
    run_sweep,
    score_snapshot,
)
from diffclone.experiments.sweep_options import SweepOptions
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.training.choice import ERROR
from diffclone.training.selection import SelectionContext


def test_metrics_of_diverged_members_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(24, 2))
    demos = Demonstrations.from_arrays(rows, rows[:, :1], episode_ends=[12, 24])
    method = BC(training=Training(updates=1), network=Network(width=4, depth=1))
    context = SelectionContext.prepare(demos, demos, "cpu")
    policy = fit(method, demos, seeds=(0, 1), device="cpu")
    metrics = {ERROR: [0.1, math.nan], "track_20": [math.inf, 1.0], "near_absolute": [0.2, 0.4]}
    monkeypatch.setattr(diffclone.experiments.sweep, "selection_metrics", lambda *given: metrics)  # pyright: ignore[reportUnknownLambdaType]
    options = SweepOptions(method, {}, (1,))
    score, record = score_snapshot(policy, 1, {}, options, context)
    assert score == math.inf
    assert record.results["selection"] == {"near_absolute": [0.2, 0.4]}
    assert choose_record([record], options) is record


@pytest.mark.parametrize(("method", "over"), [(BC(), {"horizon": (1, 4)}), (BC(history=2), {"training.lr": (1e-3,)})])
def test_errors_of_single_actions_do_not_compare_chunks(
    method: BC, over: dict[str, tuple[float]], tmp_path: Path
) -> None:
    rows = np.zeros((8, 1))
    demos = Demonstrations.from_arrays(rows, rows, episode_ends=[4, 8])
    workspace = Workspace(tmp_path / "sweep", "cpu", None)
    with pytest.raises(InvalidSettings, match=r"need horizon 1 and history 1; these have .* Add --task NAME"):
        run_sweep(SweepOptions(method, over, (1,)), (demos, demos), workspace, None, Needs())
    assert not workspace.folder.exists()


def test_a_sweep_that_cannot_work_is_refused_before_it_begins(tmp_path: Path) -> None:
    rows = np.zeros((8, 1))
    demos = Demonstrations.from_arrays(rows, rows, episode_ends=[4, 8])
    workspace = Workspace(tmp_path / "sweep", "cpu", None)

    def refused(over: dict[str, list[Any]], message: str, task: str | None = None) -> None:
        options = SweepOptions(BC(training=Training(updates=64)), over, (32, 64), task=task)
        with pytest.raises((InvalidSettings, UnknownName), match=message):
            run_sweep(options, (demos, demos), workspace, None, Needs())
        assert not workspace.folder.exists()

    refused({"training.lr": [1e-3]}, "unknown task 'mase'", task="mase")
    refused({"training.updates": [64, 16]}, "the last snapshot is update 64; with training.updates=16 a trial ends")
    refused({"network.width": [8, 16, 8]}, r"--over gives network\.width the value 8 twice; give each value once\.")


def test_a_task_setting_scores_trials_with_its_options() -> None:
    method = BC(training=Training(updates=1), network=Network(width=4, depth=1))
    demos = TASKS["spiral"].demonstrations().take(range(2))
    policy = fit(method, demos, seeds=(0,), device="cpu")
    options = SweepOptions(method, {}, (1,), task="spiral-1", episodes=1)
    _, record = score_snapshot(policy, 1, {}, options, SelectionContext.prepare(demos, demos, "cpu"))
    assert (record.results["task"], record.results["options"]["start_noise"]) == ("spiral", 0.05)
    assert choose_record([record], options) is record


LOCKER = """
import sys
from pathlib import Path
from diffclone.training.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_two_sweeps_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.zeros((8, 1))
    demos = Demonstrations.from_arrays(rows, rows, episode_ends=[4, 8])
    workspace, options = Workspace(tmp_path / "sweep", "cpu", None), SweepOptions(BC(), {"network.width": [8]}, (1,))
    monkeypatch.setattr(diffclone.experiments.sweep, "run_trials", lambda *given: [])  # pyright: ignore[reportUnknownLambdaType]
    command = [sys.executable, "-c", LOCKER, str(workspace.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(InvalidFile, match=rf"process {other.pid} is training in"):
            run_sweep(options, (demos, demos), workspace, None, Needs())
        assert not (workspace.folder / "sweep.json").exists()
        other.communicate("")
    assert run_sweep(options, (demos, demos), workspace, None, Needs()) == [], "a folder with only a lock is free"


RECORD = Record("sweep", {}, [], {}, {}, "cpu", 1.0)
FOUR = SweepOptions(BC(), {"network.width": [8, 16], "training.lr": [1e-3, 1e-4]}, (32, 64))


class Results(list[SimpleNamespace]):
    """What Ray Tune returns, of trials that are each given by their last result, or by their error."""

    def __init__(self, *trials: dict[str, Any] | str):
        self.errors = [trial for trial in trials if isinstance(trial, str)]
        super().__init__(
            SimpleNamespace(metrics={}, error=trial)
            if isinstance(trial, str)
            else SimpleNamespace(metrics=trial, error=None)
            for trial in trials
        )


LAST, STOPPED, CUT = {"updates": 64, "done": False}, {"updates": 32, "done": True}, {"updates": 32, "done": False}
FAILED = "Traceback:\n  line\nValueError: too wide\n"


@pytest.mark.parametrize("trials", [(LAST, STOPPED, STOPPED, CUT), (LAST, LAST, LAST, {}), (LAST, FAILED, STOPPED), ()])
def test_a_sweep_with_trials_that_did_not_end_was_interrupted(trials: tuple[Any, ...]) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"interrupted\. Run the same command to resume\."):
        check_results(Results(*trials), FOUR, [RECORD])


def test_failed_trials_are_one_line(recwarn: pytest.WarningsRecorder) -> None:
    check_results(Results(LAST, LAST, STOPPED, STOPPED), FOUR, [RECORD])
    assert not recwarn.list
    with pytest.warns(DiffcloneWarning, match=r"^1 of 4 trials failed \(ValueError: too wide\)\. Run the same command"):
        check_results(Results(LAST, LAST, STOPPED, FAILED), FOUR, [RECORD])
    with pytest.raises(SweepFailed, match="all trials of the sweep failed: ValueError: too wide"):
        check_results(Results(*[FAILED] * 4), FOUR, [])


def test_a_sweep_that_keeps_all_trials_has_a_queue() -> None:
    pytest.importorskip("ray.tune")
    names = [type(make_scheduler(SweepOptions(BC(), {}, (1, 2), reduction=r))).__name__ for r in (1.0, 2.0)]
    assert names == ["FIFOScheduler", "AsyncHyperBandScheduler"]


def test_another_choice_than_the_one_that_was_trained_says_what_to_do(tmp_path: Path) -> None:
    folder, chosen = tmp_path / "run", BC(network=Network(width=8, depth=1))
    check_choice(folder, chosen)
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"method": to_dict(chosen)}))
    check_choice(folder, chosen)
    with pytest.raises(InvalidFile, match=r"network\.width: 8 != 16\)\. Nothing was changed; rename .*run and run the"):
        check_choice(folder, BC(network=Network(width=16, depth=1)))
