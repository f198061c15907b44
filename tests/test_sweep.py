import math

import numpy as np
import pytest

import diffclone.experiments.sweep
from diffclone import BC, Demonstrations, Network, Training, fit
from diffclone.experiments.sweep import SweepOptions, choose_record, score_snapshot
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
