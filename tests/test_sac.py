from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from diffclone.errors import InvalidSettings
from diffclone.files import read_tensors, write_tensors
from diffclone.tasks.experts import NetworkExpert
from home_task import BRIEF, HOME, Home
from scripts import ppo
from scripts.keep import keep_best, keep_snapshots
from scripts.play import play
from scripts.sac import Learner, SACOptions, quantile_loss, train
from scripts.train_expert import find_sac_options, main

SMALL = SACOptions(
    steps=1600,
    members=2,
    rows=8,
    updates=4,
    batch=64,
    lr=5e-3,
    gamma=0.9,
    average=0.05,
    widths=(32,),
    critic_widths=(32,),
    quantiles=5,
    dropped=1,
    capacity=2000,
    warmup=80,
    evaluate_every=800,
    episodes=10,
)


def test_training_learns_to_reach_the_origin(tmp_path: Path) -> None:
    path = tmp_path / "home.safetensors"
    random = play(HOME, lambda obs: np.random.default_rng(0).uniform(-1, 1, obs.shape), 1, 10, {})
    reports = list(keep_best(train(HOME, SMALL), path, {}))
    assert [report.steps for report, _ in reports] == [800, 1600]
    last, best = reports[-1]
    assert last.updates == 4 * (1600 - 80) / 8
    assert best == max(max(report.returns) for report, _ in reports)
    assert max(last.success) > 0.8
    assert min(last.returns) > random.returns.mean() + 3
    assert path.exists()
    assert Home.open_batches == 0


def test_a_saved_member_acts_as_the_learner(tmp_path: Path) -> None:
    training = train(HOME, replace(SMALL, steps=200, evaluate_every=200))
    path = tmp_path / "home.safetensors"
    list(keep_best(iter(pairs := list(training)), path, {}))
    ((report, learner),) = pairs
    member = int(np.argmax(report.returns))
    expert = NetworkExpert(path, horizon=20, noise=0.0, only_successful=True, env_options={})
    for obs in np.random.default_rng(0).normal(size=(10, 2)) * 20:
        expected = learner.act(np.tile(obs, (2, 1, 1)), sample=False)[member, 0]
        assert expert.act(obs) == pytest.approx(expected, abs=1e-5)
    assert (expert.weights.act_std > 0).all()
    with pytest.raises(InvalidSettings, match="was trained by SAC: its actions have a tanh"):
        next(iter(ppo.train(HOME, replace(BRIEF, widths=(16,)), weights=path)))


def test_training_continues_from_a_file(tmp_path: Path) -> None:
    path, options = tmp_path / "home.safetensors", replace(SMALL, steps=240, evaluate_every=240)
    list(keep_best(train(HOME, options), path, {}))
    before = Learner(SMALL, 2, 2, torch.device("cpu"))
    before.load(path, 8)
    ((_, same),) = train(HOME, replace(options, critic_updates=10_000), seed=5, weights=path)
    for member in (0, 1):  # only the critics were trained
        for name in ("weight.0", "bias.1", "act_std"):
            torch.testing.assert_close(same.tensors(member)[name], before.tensors(member)[name])
    ((_, later),) = train(HOME, replace(options, critic_updates=8), seed=5, weights=path)
    assert not torch.equal(later.tensors(0)["weight.0"], before.tensors(0)["weight.0"])
    with pytest.raises(InvalidSettings, match="has layers of"):
        Learner(replace(SMALL, widths=(8,)), 2, 2, torch.device("cpu")).load(path, 8)
    ppo_file = tmp_path / "ppo.safetensors"
    ((_, learner), *_) = ppo.train(HOME, replace(BRIEF, steps=1600))
    write_tensors(ppo_file, learner.tensors(), {})
    with pytest.raises(InvalidSettings, match="was not trained by SAC"):
        before.load(ppo_file, 8)


def test_a_member_is_trained_on_its_own_steps_alone() -> None:
    def trained(other: float) -> Learner:
        torch.manual_seed(0)
        learner = Learner(SMALL, 2, 2, torch.device("cpu"))
        steps = np.random.default_rng(0).normal(size=(2, 50, 8))
        steps[1] += other
        learner.store(steps)
        learner.update()
        learner.update()
        return learner

    one, two = trained(0.0), trained(3.0)
    for name, tensor in one.tensors(0).items():
        assert torch.equal(tensor, two.tensors(0)[name])
    assert not torch.equal(one.tensors(1)["weight.0"], two.tensors(1)["weight.0"])


def test_the_log_density_is_that_of_a_squashed_gaussian() -> None:
    learner = Learner(SMALL, 2, 2, torch.device("cpu"))
    obs = torch.randn(2, 5, 2)
    act, log = learner.draw(obs)
    mean, log_std = learner.distribution(obs)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
    torch.testing.assert_close(log, squashed.log_prob(act).sum(-1), rtol=1e-3, atol=1e-3)


def test_the_quantile_loss_is_that_computed_by_hand() -> None:
    # τ = ¼, ¾. Targets 0 and 2, quantiles 0 and 1: δ = [[0, 2], [−1, 1]], huber = [[0, 1.5], [0.5, 0.5]].
    loss = quantile_loss(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0]))
    assert float(loss) == pytest.approx((0.25 * 1.5 + 0.25 * 0.5 + 0.75 * 0.5) / 4)


def test_old_steps_are_overwritten() -> None:
    learner = Learner(replace(SMALL, capacity=6), 2, 2, torch.device("cpu"))
    for value in (1.0, 2.0):
        learner.store(np.full((2, 4, 8), value))
    assert learner.replay[0, :, 0].tolist() == [2.0, 2.0, 1.0, 1.0, 2.0, 2.0]
    assert float(learner.size) == 6


def test_snapshots_are_written_at_their_success_rates(tmp_path: Path) -> None:
    training = keep_snapshots(ppo.train(HOME, BRIEF), HOME, (0.6, 0.3), tmp_path / "home.safetensors", {})
    reports = [report for report, _ in training]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home-30.safetensors", "home-60.safetensors"]
    assert reports[-1].steps < BRIEF.steps  # ends after the highest level
    for level in (30, 60):
        _, about = read_tensors(tmp_path / f"home-{level}.safetensors")
        assert about["measured_success"] >= level / 100


def test_options_of_ppo_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--snapshots belongs to PPO"):
        main(["walker", "--algorithm", "sac", "--snapshots", "0.5", "--out", str(tmp_path / "a.safetensors")])
    with pytest.raises(InvalidSettings, match="no options of SAC for 'maze'; there are for walker"):
        find_sac_options("maze", None)
