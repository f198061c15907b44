from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import Demonstrations, Policy, Training, fit
from diffclone.errors import InvalidSettings
from diffclone.methods import DiffusionPolicy
from diffclone.model import Batch, Dims
from diffclone.nn import Denoiser
from diffclone.nn.diffusion import Prediction, Sampler
from diffclone.rng import Rng

LINE = np.random.default_rng(0).uniform(-0.5, 0.5, (1000, 1))
SIDE = np.random.default_rng(1).choice([-1.0, -1.0, -1.0, 1.0], (1000, 1))
FORK = Demonstrations.from_arrays(
    LINE, LINE + SIDE + np.random.default_rng(2).normal(0, 0.05, (1000, 1)), episode_ends=[1000]
)
"""The expert's action is s − 1, or once in four times s + 1."""

METHOD = DiffusionPolicy(training=Training(updates=1000, batch=128, lr=3e-3, ema=0.99), width=64, depth=3)


@pytest.fixture(scope="module", params=get_args(Prediction))
def policy(request: pytest.FixtureRequest) -> Policy:
    return fit(replace(METHOD, predicts=request.param), FORK, device="cpu")


def random() -> Rng:
    return Rng([0, 1], dtype=torch.float64)


@pytest.mark.parametrize("predicts", get_args(Prediction))
def test_the_loss_of_a_zero_network_is_the_target(predicts: Prediction) -> None:
    method, rng = DiffusionPolicy(width=4, depth=1, predicts=predicts), random()
    weights = method.init(Dims(3, 2), rng["init"])
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.zero_()
    batch = Batch(rng["obs"].normal(5, 3), rng["act"].normal(5, 2))
    losses = method.loss(weights, batch, rng["loss"], {})
    again = random()["loss"]
    steps, noise = again["t"].integers(1000, 5), again["noise"].normal(5, 2)
    signal, spread = weights.signal[steps][..., None], weights.noise[steps][..., None]
    target = {"noise": noise, "velocity": signal * noise - spread * batch.act}[predicts]
    assert torch.allclose(losses.total, target.square().mean((-2, -1)), rtol=1e-12)


def test_a_network_of_the_noise_receives_the_noisy_action_its_step_and_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Tensor] = []
    forward = Denoiser.forward

    def watched(self: Denoiser, x: Tensor, t: Tensor) -> Tensor:
        seen.extend((x, t))
        return forward(self, x, t)

    monkeypatch.setattr(Denoiser, "forward", watched)
    method, rng = DiffusionPolicy(width=4, depth=1, predicts="noise"), random()
    weights = method.init(Dims(3, 2), rng["init"])
    obs, act = rng["obs"].normal(5, 3), rng["act"].normal(5, 2)
    losses = method.loss(weights, Batch(obs, act), rng["loss"], {})
    x, t = seen
    again = random()["loss"]
    steps, noise = again["t"].integers(1000, 5), again["noise"].normal(5, 2)
    assert torch.equal(t, steps)
    noised = weights.signal[steps][..., None] * act + weights.noise[steps][..., None] * noise
    assert torch.equal(x, torch.cat([noised, obs], -1))
    by_hand = (noise - weights.denoiser(x, t)).square().mean((-2, -1))
    assert torch.allclose(losses.total, by_hand, rtol=1e-12)


def sides(policy: Policy, seen: float) -> Any:
    """Return the differences of 400 samples from the observation."""
    return policy(np.full((400, 1), seen))[:, 0] - seen


@pytest.mark.parametrize("sampler", get_args(Sampler))
@pytest.mark.parametrize("seen", [-0.4, 0.4])
def test_samples_choose_both_modes_as_often_as_the_expert(policy: Policy, sampler: Sampler, seen: float) -> None:
    found = sides(policy.acting(sampler=sampler, calls=20), seen)
    left, right = found[found < 0], found[found > 0]
    assert len(right) / 400 == pytest.approx(0.25, abs=0.12)
    for side, middle in ((left, -1), (right, 1)):
        assert np.median(side) == pytest.approx(middle, abs=0.1)
        assert np.mean(np.abs(side - middle) < 0.3) > 0.85


def test_deterministic_samplers_converge_to_the_same_samples(policy: Policy) -> None:
    # From the same start they follow the same flow, which ends on one side or the other.
    ends = [sides(policy.acting(sampler=sampler, calls=200), 0.0) for sampler in ("ddim", "dpm-solver++")]
    assert np.quantile(np.abs(ends[0] - ends[1]), 0.95) < 0.02
    other = sides(policy.acting(sampler="ancestral"), 0.0)
    assert np.mean(np.abs(ends[0] - other)) > 0.1


def test_samples_stay_in_the_experts_range() -> None:
    # An untrained network of the noise may return any value.
    method = DiffusionPolicy(training=Training(updates=1), width=8, predicts="noise", within_box=False)
    untrained, seen = fit(method, FORK, device="cpu"), np.zeros((200, 1))
    low, high = (edge.item() for edge in (untrained.normaliser.act_low, untrained.normaliser.act_high))
    free = untrained(seen)
    assert free.min() < 2 * low
    assert free.max() > 2 * high
    boxed = untrained.acting(within_box=True)(seen)
    assert (boxed.min(), boxed.max()) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"sampler": "ancestral"}, 30),
        ({"sampler": "ddim", "calls": 7}, 7),
        ({"calls": 5}, 5),
        ({"calls": 5, "extra": 3}, 8),
        ({"sampler": "ancestral", "extra": 2}, 32),
    ],
)
def test_calls_are_counted(settings: dict[str, Any], calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    method = DiffusionPolicy(width=4, depth=1, steps=30, **settings)
    weights, counted = method.init(Dims(1, 1), Rng([0])), list[int]()
    denoise = Denoiser.denoise

    def watched(self: Denoiser, x: Tensor, embedded: list[Tensor]) -> Tensor:
        counted.append(1)
        return denoise(self, x, embedded)

    monkeypatch.setattr(Denoiser, "denoise", watched)
    assert method.act(weights, torch.zeros(1, 2, 1), Rng([0])).shape == (1, 2, 1)
    assert len(counted) == calls


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"calls": 0}, r"calls within 1 … steps; they are 4, 256, 0, 0 of 1000"),
        ({"calls": 1001}, r"1001 of 1000"),
        ({"extra": -1}, "extra at least 0"),
        ({"depth": 0}, "depth and width must be at least 1"),
        ({"width": 0}, "depth and width must be at least 1"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        DiffusionPolicy(**wrong)
