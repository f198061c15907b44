import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.tasks import TASKS, Task
from diffclone.tasks.ant_reach import AntReachBatch
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.hand_rotate import HandRotateBatch
from diffclone.tasks.network_expert import NetworkExpert
from scripts import expert_training
from scripts.expert_training import (
    RECIPES,
    VALUE_FIRST,
    Learner,
    Moments,
    Recipe,
    recipe_for,
    save_expert,
    shape_ant,
    shape_hand,
    train_expert,
)

ONE = np.zeros(1, dtype=np.int64)
BRIEF = Recipe(
    steps=24_000, rows=64, horizon=25, epochs=5, batch=400, lr=3e-3, gamma=0.9, std=0.5, widths=(16,), entropy=0.0
)


@final
class Home(BatchEnv):
    """A point in a plane is moved towards 0, a tenth of its action at a time; it is home within a fifth."""

    def __init__(self, count: int, *, rewards: str = "", ends_at: float = 0.0):
        """With `rewards`, those in turn, and an end after `ends_at` steps; else nearness, and no end."""
        self.count, self.act_low, self.act_high = count, -np.ones(2), np.ones(2)
        self.rewards, self.ends_at = [float(r) for r in rewards.split()], ends_at
        self.places, self.steps = np.zeros((count, 2)), np.zeros(count, dtype=np.int64)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        self.places[rows] = [rng.uniform(-1, 1, 2) for rng in rngs]
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        self.places[rows] += 0.1 * np.clip(act, -1, 1)
        self.steps[rows] += 1
        distance = np.linalg.norm(self.places[rows], axis=1)
        reward = np.array([self.rewards[k - 1] for k in self.steps[rows]]) if self.rewards else -distance
        ended = self.steps[rows] == self.ends_at
        return Outcome(reward, distance < 0.2, ended)

    def observe(self, rows: Rows) -> Doubles:
        return self.places[rows]

    def render(self, row: int) -> Picture:
        return np.zeros((8, 8, 3), dtype=np.uint8)

    def close(self) -> None:
        pass


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Task:
    module = ModuleType("home")
    module.__dict__["make_batch"] = Home
    monkeypatch.setitem(sys.modules, "home", module)
    return replace(TASKS["maze"], name="home", module="home", obs_size=2, act_size=2, horizon=20)


def test_an_expert_learns_the_way_home(home: Task) -> None:
    reports = [report for report, _ in train_expert(home, BRIEF)]
    assert [report.steps for report in reports] == list(range(1600, 24_001, 1600))
    assert reports[0].success < 0.3
    assert reports[-1].success > 0.8
    assert reports[-1].returns > reports[0].returns + 4
    assert reports[-1].seconds > reports[0].seconds > 0


@pytest.mark.parametrize("scale_rewards", [False, True])
def test_a_training_is_its_seeds(home: Task, *, scale_rewards: bool) -> None:
    recipe = replace(BRIEF, steps=3200, scale_rewards=scale_rewards)
    first, again, other = ([learner for _, learner in train_expert(home, recipe, seed=s)][-1] for s in (1, 1, 2))
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])
    assert not torch.equal(first.tensors()["weight.0"], other.tensors()["weight.0"])


V, GAMMA, TRACE = 0.5, 0.9, 0.8


@pytest.mark.parametrize(
    ("horizon", "ends_at", "advantages"),
    [
        # δ = r + γ V − V = r − 0.05, and each looks on with γ λ = 0.72.
        (9, 0, [0.95 + 0.72 * (1.95 + 0.72 * 2.95), 1.95 + 0.72 * 2.95, 2.95]),
        # Over after the second: nothing beyond it counts, and the third is the first of another episode.
        (9, 2, [0.95 + 0.72 * 1.5, 1.5, 0.95]),
        # Cut after the second: what is beyond is guessed at by V.
        (2, 0, [0.95 + 0.72 * 1.95, 1.95, 0.95]),
    ],
    ids=["goes on", "over", "cut"],
)
def test_advantages_by_hand(
    home: Task, monkeypatch: pytest.MonkeyPatch, horizon: int, ends_at: int, advantages: list[float]
) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    perceptron = expert_training.perceptron

    def sure(sizes: tuple[int, ...]) -> nn.Sequential:
        network = perceptron(sizes)
        if sizes[-1] == 1:  # the value: V, wherever one is
            nn.init.zeros_(network[-1].weight)  # pyright: ignore[reportArgumentType]
            nn.init.constant_(network[-1].bias, V)  # pyright: ignore[reportArgumentType]
        return network

    def improve(self: Learner, *seen_and_done: Tensor, value_only: bool) -> None:
        *_, advantage, returns = seen_and_done
        seen.append((advantage, returns))

    monkeypatch.setattr(expert_training, "perceptron", sure)
    monkeypatch.setattr(Learner, "improve", improve)
    options = {"rewards": "1 2 3", "ends_at": float(ends_at)}
    recipe = Recipe(steps=3, rows=1, horizon=3, gamma=GAMMA, trace=TRACE, widths=(4,), options=options)
    assert len(list(train_expert(replace(home, horizon=horizon), recipe))) == 1
    ((advantage, returns),) = seen
    assert advantage.tolist() == pytest.approx(advantages)
    assert (returns - advantage).tolist() == pytest.approx([V] * 3)


def test_moments_are_those_of_all_rows() -> None:
    rows, moments = torch.randn(300, 3) * torch.tensor([1.0, 5.0, 0.1]) + 2, Moments(3, torch.device("cpu"))
    for part in rows.split((10, 40, 250)):
        moments.update(part)
    torch.testing.assert_close(moments.mean, rows.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moments.var, rows.var(0, correction=0), rtol=1e-3, atol=1e-4)


def test_the_density_is_a_gaussians() -> None:
    learner = Learner(BRIEF, 2, 3, torch.device("cpu"))
    mean, act = torch.randn(2, 5, 3)
    expected = torch.distributions.Normal(mean, 0.5).log_prob(act).sum(-1)
    found = learner.log_density(mean, act)
    torch.testing.assert_close(found - found[0], expected - expected[0])


# What comes out.


@pytest.fixture
def learner(home: Task) -> Learner:
    return [learner for _, learner in train_expert(home, replace(BRIEF, steps=1600, widths=(16, 8)))][-1]


def expert_of(path: Path, noise: float) -> NetworkExpert:
    return NetworkExpert("home", horizon=20, env_options={}, noise=noise, successful=True, weights=path)


def test_an_expert_does_what_was_learned(learner: Learner, tmp_path: Path) -> None:
    save_expert(tmp_path / "home.safetensors", learner, {"task": "home"})
    expert = expert_of(tmp_path / "home.safetensors", 0.0)
    for obs in np.random.default_rng(0).normal(size=(20, 2)) * 20:  # some far beyond what was seen
        with torch.no_grad():
            expected = learner.policy(learner.look(obs[None]))[0].numpy()
        assert expert.act(obs) == pytest.approx(expected, abs=1e-5)
    assert len(expert.layers) == 3


def test_an_experts_noise_is_what_training_left(learner: Learner, tmp_path: Path) -> None:
    save_expert(tmp_path / "home.safetensors", learner, {})
    steady, shaking = (expert_of(tmp_path / "home.safetensors", noise) for noise in (0.0, 0.5))
    obs = np.array([0.3, -0.2])
    shaking.begin(obs, np.random.default_rng(0))
    off = np.array([shaking.act(obs) for _ in range(2000)]) - np.asarray(steady.act(obs))
    assert off.mean(0) == pytest.approx(np.zeros(2), abs=0.02)
    assert off.std(0) == pytest.approx(0.5 * learner.log_std.detach().exp().numpy(), rel=0.1)


def test_training_goes_on_from_an_experts_file(home: Task, learner: Learner, tmp_path: Path) -> None:
    path, recipe = tmp_path / "home.safetensors", replace(BRIEF, steps=1600, widths=(16, 8))
    save_expert(path, learner, {})
    ((_, waiting),) = train_expert(home, recipe, seed=5, begin=path)
    for name in ("weight.0", "bias.2", "act_std"):  # it does not move before its value is learned
        torch.testing.assert_close(waiting.tensors()[name], learner.tensors()[name])
    *_, (_, moved) = train_expert(home, replace(recipe, steps=(VALUE_FIRST + 2) * 1600), seed=5, begin=path)
    assert not torch.equal(moved.tensors()["weight.0"], learner.tensors()["weight.0"])
    with pytest.raises(InvalidSettings) as fault:
        next(train_expert(home, BRIEF, begin=path))
    assert "\n" not in str(fault.value)


def test_an_experts_file_is_not_replaced(learner: Learner, tmp_path: Path) -> None:
    path = tmp_path / "home.safetensors"
    save_expert(path, learner, {})
    before = path.read_bytes()
    with pytest.raises(InvalidFile, match="exists already and is not overwritten"):
        save_expert(path, learner, {})
    assert path.read_bytes() == before


def test_a_file_that_is_no_experts_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"no such file: .*none\.safetensors. Make one with: diffclone expert train"):
        expert_of(tmp_path / "none.safetensors", 0.0)
    (tmp_path / "torn.safetensors").write_bytes(b"no")
    with pytest.raises(InvalidFile, match=r"torn\.safetensors does not hold an expert's weights"):
        expert_of(tmp_path / "torn.safetensors", 0.0)
    save_file({"weight.0": torch.zeros(2, 2)}, tmp_path / "half.safetensors")
    with pytest.raises(InvalidFile, match=r"half\.safetensors does not hold an expert's weights \('obs_mean'\)"):
        expert_of(tmp_path / "half.safetensors", 0.0)


@pytest.mark.parametrize(("successful", "kept"), [(True, [False, True]), (False, [True, True])])
def test_episodes_worth_showing(learner: Learner, tmp_path: Path, *, successful: bool, kept: list[bool]) -> None:
    save_expert(tmp_path / "home.safetensors", learner, {})
    path = tmp_path / "home.safetensors"
    expert = NetworkExpert("home", horizon=20, env_options={}, noise=0.0, successful=successful, weights=path)
    assert [expert.keeps(20, success=success) for success in (False, True)] == kept
    assert expert.keeps(7, success=False) is False


# Recipes.


def test_a_recipe_is_the_tasks() -> None:
    assert set(RECIPES) == {"hand-rotate", "cheetah", "walker", "ant-reach"}
    assert recipe_for("walker", None) is RECIPES["walker"]
    assert recipe_for("walker", 5) == replace(RECIPES["walker"], steps=5)
    with pytest.raises(InvalidSettings, match="'maze' is a program, not trained; trained are hand-rotate, cheetah"):
        recipe_for("maze", None)
    with pytest.raises(InvalidSettings, match="steps must be at least 1; they are 0"):
        recipe_for("walker", 0)


def test_a_hand_is_rewarded_for_turning_arriving_and_holding_on() -> None:
    env = HandRotateBatch(2)
    env.reset(np.arange(2), [np.random.default_rng(0), np.random.default_rng(1)])
    env.simulation.positions[1, 26] = 0.05  # dropped
    outcome = Outcome(np.array([0.2, 0.1]), np.array([True, False]), np.array([True, False]))
    reward, over = shape_hand(env, np.arange(2), outcome)
    assert reward == pytest.approx([5 * 0.2 + 2, 5 * 0.1 - 1])
    assert over.tolist() == [True, True]
    env.close()


def test_an_ant_is_rewarded_for_arriving_on_its_feet() -> None:
    env = AntReachBatch(3, start_noise=0.0)
    env.reset(np.arange(3), [np.random.default_rng(k) for k in range(3)])
    env.goals[0], env.simulation.positions[2, 2] = 0.1, 0.2
    outcome = Outcome(np.full(3, 0.3), np.zeros(3, dtype=np.bool_), np.zeros(3, dtype=np.bool_))
    reward, over = shape_ant(env, np.arange(3), outcome)
    assert reward == pytest.approx([1.3, 0.3, -0.2])
    assert not over.any()
    env.close()
