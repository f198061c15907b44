"""What an evaluation knows: the precision of its run, and success only if every episode reported it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
import torch

from conftest import Command
from diffclone import BC, Demonstrations, Network, Policy, Training, evaluate, fit
from diffclone.errors import InvalidSettings
from diffclone.experiments.playing_jobs import join_scores
from diffclone.experiments.record_index import identify_record
from diffclone.experiments.run_comparison import compare_runs, metric_of, read_outcomes
from diffclone.files import write_json
from diffclone.fit import FitOptions
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training.runs import Run, train_run
from test_compare_runs import compared

TINY = BC(training=Training(updates=2), network=Network(width=4, depth=1))
ENV = "SuccessOnly-v0"


class SuccessOnly(gym.Env[npt.NDArray[np.float32], npt.NDArray[np.float32]]):
    """Sums up its actions, and says is_success only when it succeeds."""

    observation_space = gym.spaces.Box(-9, 9, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-1, 1, 2).astype(np.float32), 0
        return self.x, {}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.x, self.steps = (self.x + np.array([action[0], 0])).clip(-9, 9).astype(np.float32), self.steps + 1
        solved = bool(self.x[0] > 2)
        return self.x, float(self.x[0]), solved, self.steps >= 9, {"is_success": True} if solved else {}


@pytest.fixture
def good_and_bad() -> Iterator[Policy]:
    """A policy whose first member always succeeds, and whose second never does."""
    gym.register(ENV, entry_point=lambda **_: SuccessOnly())
    rows = np.random.default_rng(0).normal(size=(40, 2))
    demos = Demonstrations.from_arrays(rows, np.sign(rows[:, :1]), episode_ends=[20, 40])
    policy = fit(TINY, demos, seeds=(0, 1), device="cpu")
    net: Any = policy.net
    with torch.no_grad():
        net.out.bias[0] += 50
        net.out.bias[1] -= 50
    yield policy
    del gym.registry[ENV]


def test_several_workers_know_success_only_if_one_would(good_and_bad: Policy) -> None:
    assert not evaluate(good_and_bad, ENV, episodes=3).reports_success
    good, bad = (evaluate(good_and_bad[m], ENV, episodes=3) for m in (0, 1))
    assert (good.reports_success, bad.reports_success) == (True, False)
    for parts in ([good, bad], [bad, good]):
        assert join_scores(parts).summary()["success_rate"] is None
    assert join_scores([good, good]).summary()["success_rate"] == 1


def test_runs_are_compared_by_return_if_one_reported_no_success(
    good_and_bad: Policy, diffclone: Command, tmp_path: Path
) -> None:
    good_and_bad[0].save(tmp_path / "good")
    good_and_bad[1].save(tmp_path / "bad")
    flags = ("--env", ENV, "--episodes", "3", "--device", "cpu")
    page = tmp_path / "page.html"
    result = diffclone("compare", tmp_path / "good", tmp_path / "bad", *flags, "--out", page)
    assert result.code == 0, result.err
    assert "return (95 %)" in result.out
    assert f"{ENV} reported no success of {tmp_path / 'bad'}, so all are compared by return." in result.err
    assert "success, %" not in page.read_text(encoding="utf-8")
    about = json.loads(diffclone("compare", tmp_path / "good", tmp_path / "bad", *flags, "--json").out)
    assert about["metric"] == "return"
    assert about["differences"][0]["mean"] < -10
    both = diffclone("compare", tmp_path / "good", tmp_path / "good", *flags, "--json")
    assert json.loads(both.out)["metric"] == "success"
    assert "reported no success" not in both.err


def test_different_scores_are_named() -> None:
    outcomes = np.random.default_rng(0).random((2, 5))
    runs = [compared("a", outcomes > 0.5, (0, 1)), compared("b", outcomes[:, :4], (0, 1))]
    with pytest.raises(
        InvalidSettings, match="a has 5 starts scored by success, b has 4 starts scored by return: give"
    ):
        compare_runs(runs)


def test_a_task_whose_environment_reported_no_success_is_scored_by_return() -> None:
    record = compared("a", np.ones((1, 3), dtype=np.bool_), [0]).record
    assert metric_of(record) == TASKS["maze"].metric == "success"
    silent = replace(record, results={**record.results, "success_rate": None})
    assert metric_of(silent) == "return"
    assert read_outcomes(silent, 3)[1].dtype == np.float64


def test_evaluations_and_comparisons_have_the_precision(diffclone: Command, tmp_path: Path) -> None:
    demos = TASKS["spiral"].demonstrations()
    options = FitOptions(seeds=(0,), device="cpu")
    train_run(tmp_path / "full", TINY, demos, options, task="spiral")
    train_run(tmp_path / "half", TINY, demos, replace(options, precision="bfloat16"), task="spiral")
    result = diffclone("compare", tmp_path / "full", tmp_path / "half", "--episodes", "2", "--device", "cpu", "--json")
    assert json.loads(result.out)["settings"] == {"precision": ["float32", "bfloat16"]}
    full, half = (Record.read_all(tmp_path / name / "records.jsonl")[-1] for name in ("full", "half"))
    assert (full.results["precision"], half.results["precision"]) == ("float32", "bfloat16")
    # A Record of an earlier version, which lacks it, is the same evaluation.
    older = replace(full, results={name: value for name, value in full.results.items() if name != "precision"})
    (before, after) = (identify_record(record) for record in (older, full))
    assert before is not None
    assert after is not None
    assert before.key == after.key


def test_the_shared_seed_of_guides_is_an_option_of_the_training(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"task": "maze"})
    assert Run(tmp_path).training_options() == {"precision": "float32"}
    write_json(tmp_path / "run.json", {"task": "maze", "precision": "bfloat16", "guide_seed": 0})
    assert Run(tmp_path).training_options() == {"precision": "bfloat16", "guide_seed": 0}
