import math
from pathlib import Path

import numpy as np
import pytest

import diffclone.experiments.sweep
from diffclone import BC, Demonstrations, Network, Training, fit
from diffclone.errors import InvalidSettings
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.interface import Needs
from diffclone.experiments.sweep import SweepOptions, choose_record, run_sweep, score_snapshot
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
