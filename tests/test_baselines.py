"""Flow matching, MIP and BC with a mixture: losses by hand, and behaviour where the expert has two modes."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import BC, Demonstrations, Policy, Training, fit
from diffclone.deploy.export import export
from diffclone.errors import InvalidSettings
from diffclone.methods import BCGMM, MIP, FlowMatching
from diffclone.methods.flow_matching import TIMES
from diffclone.model import Batch, Dims, Method
from diffclone.nn import Network
from diffclone.rng import Rng
from diffclone.testing import check_method

LINE = np.random.default_rng(0).uniform(-0.5, 0.5, (1000, 1))
SIDE = np.random.default_rng(1).choice([-1.0, -1.0, -1.0, 1.0], (1000, 1))
FORK = Demonstrations.from_arrays(
    LINE, LINE + SIDE + np.random.default_rng(2).normal(0, 0.05, (1000, 1)), episode_ends=[1000]
)
"""The expert's action is s − 1, or once in four times s + 1."""
SHORT = Training(updates=800, batch=128, lr=3e-3, ema=0.99)
SMALL = Network(width=32, depth=2)
METHODS: dict[str, Method[Any]] = {
    "bc": BC(training=SHORT, network=SMALL),
    "bc-gmm": BCGMM(training=SHORT, network=SMALL, modes=3),
    "mip": MIP(training=SHORT, network=SMALL),
    "flow": FlowMatching(training=SHORT, width=64, depth=3),
    "shortcut": FlowMatching(training=SHORT, width=64, depth=3, shortcut=0.25, calls=1),
}


def random() -> Rng:
    return Rng([0, 1], dtype=torch.float64)


def make_batch(rng: Rng) -> Batch:
    return Batch(rng["obs"].normal(8, 3), rng["act"].normal(8, 2))


def zero(weights: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.zero_()


# Losses.


def test_the_target_of_a_flow_is_the_action_minus_the_noise() -> None:
    method, rng = FlowMatching(width=4, depth=1), random()
    weights, batch = method.init(Dims(3, 2), rng["init"]), make_batch(rng)
    again = random()["loss"]
    ε, k = again["noise"].normal(8, 2), again["t"].integers(TIMES, 8)
    τ = (k / TIMES)[..., None]
    a_τ = (1 - τ) * ε + τ * batch.act
    v = weights(torch.cat([a_τ, batch.obs], -1), k)
    losses = method.loss(weights, batch, rng["loss"], {})
    assert torch.allclose(losses.total, (v - (batch.act - ε)).square().mean((-2, -1)), rtol=1e-12)
    zero(weights)
    losses = method.loss(weights, batch, random()["loss"], {})
    assert torch.allclose(losses.total, (batch.act - ε).square().mean((-2, -1)), rtol=1e-12)


def test_a_long_step_learns_the_mean_of_two_short_ones() -> None:
    method, rng = FlowMatching(width=4, depth=1, shortcut=0.25), random()
    weights, batch = method.init(Dims(3, 2), rng["init"]), make_batch(rng)
    losses = method.loss(weights, batch, rng["loss"], {})
    again = random()["loss"]
    ε, k, n = again["noise"].normal(8, 2), again["t"].integers(TIMES, 8), 1 + again["length"].integers(7, 8)

    def v(x: Tensor, row: int, time: Tensor, length: Tensor) -> Tensor:
        known = torch.nn.functional.one_hot(length, 8).double()
        s = batch.obs[:, row : row + 1]
        return weights(torch.cat([x, s, known[:, None]], -1), time[:, None])

    errors: list[Tensor] = []
    for row in range(8):
        length = n[:, row] if row < 2 else torch.zeros_like(n[:, row])  # a quarter of 8 pairs
        time = k[:, row] // 2**length * 2**length
        τ, half = (time / TIMES)[:, None, None], 2**length // 2
        noise, a = ε[:, row : row + 1], batch.act[:, row : row + 1]
        x = (1 - τ) * noise + τ * a
        target = a - noise
        if row < 2:
            first = v(x, row, time, length - 1)
            second = v(x + (half / TIMES)[:, None, None] * first, row, time + half, length - 1)
            target = ((first + second) / 2).detach()
        errors.append((v(x, row, time, length) - target).square().mean((-2, -1)))
    assert torch.allclose(losses.total, torch.stack(errors).mean(0), rtol=1e-12)
    assert torch.allclose(losses.logs["L_self"], torch.stack(errors[:2]).mean(0), rtol=1e-12)
    assert torch.allclose(losses.logs["L_flow"], torch.stack(errors[2:]).mean(0), rtol=1e-12)


def test_euler_steps_add_up_to_the_whole_way() -> None:
    rng = random()
    for shortcut, calls in ((0.0, 1), (0.0, 3), (0.0, 8), (0.25, 1), (0.25, 4)):
        method = FlowMatching(width=4, depth=1, shortcut=shortcut, calls=calls)
        weights = method.init(Dims(3, 2), rng["init"])
        zero(weights)
        with torch.no_grad():
            weights.out.bias.add_(0.7)  # a constant velocity
        act = method.act(weights, rng["obs"].normal(5, 3), random()["act"])
        start = random()["act"]["start"].normal(5, 2)
        assert torch.allclose(act, start + 0.7, rtol=1e-12)


def test_the_losses_of_mip_are_two_regressions() -> None:
    method, rng = MIP(network=Network(width=4, depth=1), noise=0.2), random()
    weights, batch = method.init(Dims(3, 2), rng["init"]), make_batch(rng)
    losses = method.loss(weights, batch, rng["loss"], {})
    noisy = batch.act + 0.2 * random()["loss"]["noise"].normal(8, 2)
    first = weights.mlp(torch.cat([batch.obs, torch.zeros(2, 8, 3)], -1).double())
    second = weights.mlp(torch.cat([batch.obs, noisy, torch.ones(2, 8, 1)], -1))
    by_hand = [(f - batch.act).square().mean((-2, -1)) for f in (first, second)]
    assert torch.allclose(losses.total, by_hand[0] / 0.8**2 + by_hand[1] / 0.2**2, rtol=1e-12)
    act = method.act(weights, batch.obs, rng)
    assert torch.allclose(act, weights.mlp(torch.cat([batch.obs, first, torch.ones(2, 8, 1)], -1)), rtol=1e-12)


def test_the_loss_of_a_mixture_is_its_negative_log_likelihood() -> None:
    method, rng = BCGMM(network=Network(width=4, depth=1), modes=3, min_std=0.01), random()
    weights, batch = method.init(Dims(3, 2), rng["init"]), make_batch(rng)
    log_w, μ, σ = weights(batch.obs)
    assert (μ.shape, log_w.shape) == ((2, 8, 3, 2), (2, 8, 3))
    assert (σ > 0.01).all()
    normal = torch.distributions.Independent(torch.distributions.Normal(μ, σ), 1)
    mixture = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=log_w), normal)
    losses = method.loss(weights, batch, rng["loss"], {})
    assert torch.allclose(losses.total, -mixture.log_prob(batch.act).mean(-1), rtol=1e-10)


def test_low_noise_actions_are_means_and_others_have_the_learned_spread() -> None:
    rng = random()
    means: list[Tensor] = []
    for low_noise in (True, False):
        method = BCGMM(network=Network(width=4, depth=1), modes=1, min_std=0.5, low_noise=low_noise)
        weights, obs = method.init(Dims(3, 2), random()["init"]), rng["obs"].normal(4000, 3)
        _, μ, σ = weights(obs)
        spread = 1e-4 if low_noise else σ[..., 0, :]
        means.append(((method.act(weights, obs, rng["act"]) - μ[..., 0, :]) / spread).detach())
    for z in means:
        assert float(z.std()) == pytest.approx(1, abs=0.03)
        assert float(z.mean()) == pytest.approx(0, abs=0.03)


def test_actions_beyond_the_end_of_an_episode_have_no_influence() -> None:
    rng, real = random(), torch.ones(2, 8, 4, dtype=torch.bool)
    real[:, 3:, 2:] = False
    for method in METHODS.values():
        weights = method.init(Dims(3, 4), random()["init"])
        out: Any = [module for module in weights.modules() if hasattr(module, "weight")][-1]
        obs, act = rng["obs"].normal(8, 3), rng["act"].normal(8, 4)
        total = method.loss(weights, Batch(obs, act, real=real), random()["loss"], {}).total.sum()
        (gradient,) = torch.autograd.grad(total, out.bias)
        everything = method.loss(weights, Batch(obs, act), random()["loss"], {}).total.sum()
        (whole,) = torch.autograd.grad(everything, out.bias)
        assert not torch.allclose(gradient, whole), method
        nothing = method.loss(weights, Batch(obs, act, real=torch.zeros_like(real)), random()["loss"], {}).total.sum()
        (none,) = torch.autograd.grad(nothing, out.bias)
        assert float(none.abs().max()) < 1e-12, method


# Two modes.


@cache
def policy(name: str) -> Policy:
    return fit(METHODS[name], FORK, device="cpu")


def sides(name: str) -> Any:
    """Return the differences of 400 actions from the observation 0.2."""
    return policy(name)(np.full((400, 1), 0.2))[:, 0] - 0.2


@pytest.mark.parametrize(
    "name", ["bc-gmm", pytest.param("flow", marks=pytest.mark.slow), pytest.param("shortcut", marks=pytest.mark.slow)]
)
def test_methods_that_sample_choose_both_modes_as_often_as_the_expert(name: str) -> None:
    found = sides(name)
    left, right = found[found < 0], found[found > 0]
    assert len(right) / 400 == pytest.approx(0.25, abs=0.12)
    assert left.mean() == pytest.approx(-1, abs=0.2)
    assert right.mean() == pytest.approx(1, abs=0.4)
    between = np.mean(np.abs(found) < 0.5)
    assert between < (0.2 if name == "shortcut" else 0.1)  # of BC's actions all are between the modes


def test_bc_averages_the_modes_and_mip_moves_to_the_nearer_one() -> None:
    bc, mip = sides("bc"), sides("mip")
    assert bc.mean() == pytest.approx(-0.5, abs=0.15)
    assert np.ptp(mip) < 1e-6
    assert mip[0] < bc[0] - 0.1


# Settings and export.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FlowMatching(shortcut=0.25, calls=3), "with shortcut, calls must be a power of two; it is 3"),
        (lambda: FlowMatching(calls=129), r"calls within 1 … 128; they are 4, 256, 129"),
        (lambda: FlowMatching(shortcut=1.0), r"shortcut is a fraction of a batch.*it is 1\.0"),
        (lambda: FlowMatching(shortcut=0.001), r"shortcut is 0\.001, which is none or all of a batch of 128"),
        (lambda: FlowMatching(shortcut=0.999), r"shortcut is 0\.999, which is none or all of a batch of 128"),
        (lambda: MIP(noise=0.0), r"noise must be above 0 and below 1; it is 0\.0"),
        (lambda: MIP(network=Network(image=(1, 64, 64))), "MIP does not support images"),
        (lambda: BCGMM(modes=0), "modes must be at least 1 and min_std above 0; they are 0"),
        (lambda: BCGMM(min_std=0.0), "they are 5 and 0.0"),
    ],
)
def test_wrong_settings_are_one_line(make: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        make()


@pytest.mark.parametrize("name", ["bc-gmm", "mip"])
def test_policies_of_several_calls_or_samples_are_not_exported(name: str, tmp_path: Any) -> None:
    with pytest.raises(InvalidSettings, match="cannot be exported: its action is not one call"):
        export(policy(name), tmp_path / "policy.npz", "numpy")


def test_the_absolute_error_learns_the_more_frequent_mode() -> None:
    method = BC(training=SHORT, network=SMALL, error="absolute")
    act = fit(method, FORK, device="cpu")(np.full((1, 1), 0.2))[0, 0] - 0.2
    assert act == pytest.approx(-1, abs=0.2)
    rng = random()
    weights, batch = method.init(Dims(3, 2), rng["init"]), make_batch(rng)
    by_hand = (weights(batch.obs) - batch.act).abs().mean((-2, -1))
    assert torch.allclose(method.loss(weights, batch, rng["loss"], {}).total, by_hand, rtol=1e-12)


@pytest.mark.slow
def test_shortcuts_pass_the_contract_checks() -> None:
    check_method(FlowMatching(width=32, depth=2, shortcut=0.25, calls=2))


def test_the_constant_of_a_gaussian() -> None:
    method = BCGMM(network=Network(width=4, depth=1), modes=1, min_std=1.0)
    weights = method.init(Dims(3, 2), random()["init"])
    zero(weights)
    batch = make_batch(random())
    σ = 1 + math.log(2)
    by_hand = (batch.act / σ).square().sum(-1) / 2 + 2 * math.log(σ) + math.log(2 * math.pi)
    total = method.loss(weights, batch, random()["loss"], {}).total
    assert torch.allclose(total, by_hand.mean(-1), rtol=1e-12)
