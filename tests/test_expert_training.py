import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.tasks.ant_reach import AntReachBatch
from diffclone.tasks.batch import Outcome
from diffclone.tasks.experts import NetworkExpert
from diffclone.tasks.hand_rotate import HandRotateBatch
from home_task import BRIEF, HOME, Home
from scripts import ppo
from scripts.ppo import VALUE_ROUNDS, Learner, PPOOptions, Report, RunningMoments, train
from scripts.train_expert import OPTIONS, ant_reward, find_options, hand_reward, main, pen_reward, save_expert


def test_training_learns_to_reach_the_origin() -> None:
    reports = [report for report, _ in train(HOME, BRIEF)]
    assert [report.steps for report in reports] == list(range(1600, 24_001, 1600))
    assert reports[0].success < 0.3
    assert reports[-1].success > 0.8
    assert reports[-1].returns > reports[0].returns + 4
    assert reports[-1].seconds > reports[0].seconds > 0


@pytest.mark.parametrize("scale_rewards", [False, True])
def test_the_same_seed_gives_the_same_weights(*, scale_rewards: bool) -> None:
    options = replace(BRIEF, steps=3200, scale_rewards=scale_rewards)
    first, again, other = ([learner for _, learner in train(HOME, options, seed=s)][-1] for s in (1, 1, 2))
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])
    assert not torch.equal(first.tensors()["weight.0"], other.tensors()["weight.0"])


def test_a_training_that_is_stopped_closes_its_environments() -> None:
    training = iter(train(HOME, BRIEF))
    next(training)
    assert Home.open_batches == 1
    del training
    assert Home.open_batches == 0


V, GAMMA, TRACE = 0.5, 0.9, 0.8


@pytest.mark.parametrize(
    ("horizon", "ends_at", "advantages"),
    [
        # δ = r + γ V − V = r − 0.05, and γ λ = 0.72.
        (9, 0, [0.95 + 0.72 * (1.95 + 0.72 * 2.95), 1.95 + 0.72 * 2.95, 2.95]),
        # Ends after the second step: later rewards do not count, and the third step is the first of a new episode.
        (9, 2, [0.95 + 0.72 * 1.5, 1.5, 0.95]),
        # Truncated after the second step: V estimates the later rewards.
        (2, 0, [0.95 + 0.72 * 1.95, 1.95, 0.95]),
    ],
    ids=["running", "ended", "truncated"],
)
def test_advantages_match_those_computed_by_hand(
    monkeypatch: pytest.MonkeyPatch, horizon: int, ends_at: int, advantages: list[float]
) -> None:
    updates: list[tuple[Tensor, Tensor]] = []
    make_mlp = ppo.make_mlp

    def make_with_constant_value(sizes: tuple[int, ...]) -> nn.Sequential:
        network = make_mlp(sizes)
        if sizes[-1] == 1:
            nn.init.zeros_(network[-1].weight)  # pyright: ignore[reportArgumentType]
            nn.init.constant_(network[-1].bias, V)  # pyright: ignore[reportArgumentType]
        return network

    def update(self: Learner, *data: Tensor, value_only: bool) -> None:
        *_, advantage, returns = data
        updates.append((advantage, returns))

    monkeypatch.setattr(ppo, "make_mlp", make_with_constant_value)
    monkeypatch.setattr(Learner, "update", update)
    env_options = {"rewards": "1 2 3", "ends_at": float(ends_at)}
    options = PPOOptions(steps=3, rows=1, horizon=3, gamma=GAMMA, trace=TRACE, widths=(4,), options=env_options)
    assert len(list(train(replace(HOME, horizon=horizon), options))) == 1
    ((advantage, returns),) = updates
    assert advantage.tolist() == pytest.approx(advantages)
    assert (returns - advantage).tolist() == pytest.approx([V] * 3)


def test_running_moments_are_those_of_all_rows() -> None:
    rows, moments = torch.randn(300, 3) * torch.tensor([1.0, 5.0, 0.1]) + 2, RunningMoments(3, torch.device("cpu"))
    for part in rows.split((10, 40, 250)):
        moments.update(part)
    torch.testing.assert_close(moments.mean, rows.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moments.var, rows.var(0, correction=0), rtol=1e-3, atol=1e-4)


def test_the_density_is_gaussian() -> None:
    learner = Learner(BRIEF, 2, 3, torch.device("cpu"))
    mean, act = torch.randn(2, 5, 3)
    expected = torch.distributions.Normal(mean, 0.5).log_prob(act).sum(-1)
    found = learner.log_density(mean, act)
    torch.testing.assert_close(found - found[0], expected - expected[0])


# The expert's file.


@pytest.fixture
def learner() -> Learner:
    return [learner for _, learner in train(HOME, replace(BRIEF, steps=1600, widths=(16, 8)))][-1]


@pytest.fixture
def path(learner: Learner, tmp_path: Path) -> Path:
    path = tmp_path / "home.safetensors"
    save_expert(path, learner, {"task": "home"})
    return path


def read_expert(path: Path, noise: float, *, only_successful: bool = True) -> NetworkExpert:
    return NetworkExpert(path, horizon=20, noise=noise, only_successful=only_successful, env_options={})


def test_a_saved_expert_acts_as_the_learner(learner: Learner, path: Path) -> None:
    expert = read_expert(path, 0.0)
    for obs in np.random.default_rng(0).normal(size=(20, 2)) * 20:  # some are far outside the training data
        with torch.no_grad():
            expected = learner.policy(learner.normalise(obs[None]))[0].numpy()
        assert expert.act(obs) == pytest.approx(expected, abs=1e-5)
    assert len(expert.weights.layers) == 3


def test_the_experts_noise_has_the_standard_deviation_of_training(learner: Learner, path: Path) -> None:
    mean, noisy = (read_expert(path, noise) for noise in (0.0, 0.5))
    obs = np.array([0.3, -0.2])
    noisy.reset(obs, np.random.default_rng(0))
    noise = np.array([noisy.act(obs) for _ in range(2000)]) - np.asarray(mean.act(obs))
    assert noise.mean(0) == pytest.approx(np.zeros(2), abs=0.02)
    assert noise.std(0) == pytest.approx(0.5 * learner.log_std.detach().exp().numpy(), rel=0.1)


def test_training_starts_from_an_experts_file(learner: Learner, path: Path) -> None:
    options = replace(BRIEF, steps=1600, widths=(16, 8))
    ((_, first),) = train(HOME, options, seed=5, weights=path)
    for name in ("weight.0", "bias.2", "act_std"):  # only the value is trained at first
        torch.testing.assert_close(first.tensors()[name], learner.tensors()[name])
    *_, (_, later) = train(HOME, replace(options, steps=(VALUE_ROUNDS + 2) * 1600), seed=5, weights=path)
    assert not torch.equal(later.tensors()["weight.0"], learner.tensors()["weight.0"])
    with pytest.raises(InvalidSettings, match="has layers of") as error:
        next(iter(train(HOME, BRIEF, weights=path)))
    assert "\n" not in str(error.value)


def test_an_experts_file_is_not_replaced(learner: Learner, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidFile, match="exists already and is not overwritten"):
        save_expert(path, learner, {})
    assert path.read_bytes() == before


def test_an_invalid_experts_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"no such file: .*none\.safetensors. To train an expert: python -m scripts"):
        read_expert(tmp_path / "none.safetensors", 0.0)
    (tmp_path / "torn.safetensors").write_bytes(b"no")
    with pytest.raises(InvalidFile, match=r"torn\.safetensors does not hold an expert's weights"):
        read_expert(tmp_path / "torn.safetensors", 0.0)
    save_file({"weight.0": torch.zeros(2, 2)}, tmp_path / "half.safetensors")
    with pytest.raises(InvalidFile, match=r"half\.safetensors does not hold an expert's weights \('obs_mean'\)"):
        read_expert(tmp_path / "half.safetensors", 0.0)


@pytest.mark.parametrize(("only_successful", "accepted"), [(True, [False, True]), (False, [True, True])])
def test_accepted_episodes_are_successful_or_complete(
    path: Path, *, only_successful: bool, accepted: list[bool]
) -> None:
    expert = read_expert(path, 0.0, only_successful=only_successful)
    assert [expert.accept_episode(20, success=success) for success in (False, True)] == accepted
    assert expert.accept_episode(7, success=False) is False


# The command.


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options for a training of a second."""
    options = replace(OPTIONS["cheetah"], rows=8, horizon=16, batch=64, epochs=2, widths=(8,))
    monkeypatch.setitem(OPTIONS, "cheetah", options)


@pytest.mark.usefixtures("brief")
def test_the_command_writes_an_expert_that_acts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cheetah.safetensors"
    main(["cheetah", "--steps", "200", "--out", str(path), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["out"], report["steps"]) == (str(path), 256)  # whole rounds
    assert np.asarray(read_expert(path, 0.0).act(np.zeros(17))).shape == (6,)
    with pytest.raises(SystemExit, match="exists already and is not overwritten"):
        main(["cheetah", "--out", str(path)])


@pytest.mark.usefixtures("brief")
def test_ctrl_c_keeps_what_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ppo.train

    def interrupt_after_one_round(*arguments: Any, **keywords: Any) -> Iterator[tuple[Report, Learner]]:
        yield next(iter(train(*arguments, **keywords)))
        raise KeyboardInterrupt

    monkeypatch.setattr(ppo, "train", interrupt_after_one_round)
    path = tmp_path / "cheetah.safetensors"
    main(["cheetah", "--out", str(path)])
    assert f"wrote {path}. Next: diffclone expert evaluate cheetah --weights {path}" in capsys.readouterr().err
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("maze",), "the expert of 'maze' is not trained; the trained ones are hand-rotate, cheetah"),
        (("walker", "--steps", "0"), "steps must be at least 1; they are 0"),
        (("waker",), "unknown task 'waker'; did you mean 'walker'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        main([*arguments, "--out", str(tmp_path / "a.safetensors")])
    assert list(tmp_path.iterdir()) == []


def test_each_trained_expert_has_options() -> None:
    assert set(OPTIONS) == {"hand-rotate", "cheetah", "walker", "ant-reach", "adroit/pen"}
    assert find_options("walker", None) is OPTIONS["walker"]
    assert find_options("walker", 5) == replace(OPTIONS["walker"], steps=5)


def test_the_hands_reward_counts_turning_success_and_drops() -> None:
    env = HandRotateBatch(2)
    env.reset(np.arange(2), [np.random.default_rng(0), np.random.default_rng(1)])
    env.simulation.positions[1, 26] = 0.05  # dropped
    outcome = Outcome(np.array([0.2, 0.1]), np.array([True, False]), np.array([True, False]))
    reward, over = hand_reward(env, np.arange(2), outcome)
    assert reward == pytest.approx([5 * 0.2 + 2, 5 * 0.1 - 1])
    assert over.tolist() == [True, True]
    env.close()


def test_the_ants_reward_counts_arriving_and_falls() -> None:
    env = AntReachBatch(3, start_noise=0.0)
    env.reset(np.arange(3), [np.random.default_rng(k) for k in range(3)])
    env.goals[0], env.simulation.positions[2, 2] = 0.1, 0.2
    outcome = Outcome(np.full(3, 0.3), np.zeros(3, dtype=np.bool_), np.zeros(3, dtype=np.bool_))
    reward, over = ant_reward(env, np.arange(3), outcome)
    assert reward == pytest.approx([1.3, 0.3, -0.2])
    assert not over.any()
    env.close()


def test_the_pens_reward_counts_success_distance_angle_and_drops() -> None:
    class Env:
        def observe(self, rows: np.ndarray) -> np.ndarray:
            return obs[rows]

    obs = np.zeros((3, 45))
    obs[:, 26] = [0.2, 0.2, 0.05]  # height: the last was dropped
    obs[:, 33:36], obs[:, 36:39] = [0, 0, 1], [[0, 0, 1], [0, 1, 0], [0, 0, -1]]  # cosines 1, 0 and -1
    obs[:, 39:42] = [[0, 0, 0], [0.3, 0, 0.4], [0, 0, 0]]  # distances 0, 0.5 and 0
    outcome = Outcome(np.zeros(3), np.array([True, False, False]), np.array([True, False, False]))
    env: Any = Env()
    reward, over = pen_reward(env, np.arange(3), outcome)
    assert reward == pytest.approx([5, -0.6, -5.2])
    assert over.tolist() == [True, False, True]
