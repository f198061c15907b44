"""Controls beside DBC: dropout, smoothness, and a guide of shuffled pairs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training, fit
from diffclone.errors import InvalidSettings
from diffclone.methods import IBC
from diffclone.model import Batch, Dims
from diffclone.nn import MLP
from diffclone.nn.encoder import Encoder
from diffclone.nn.images import ConvNet
from diffclone.rng import Rng

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
SHORT = Training(updates=40, batch=16, lr=1e-3)
DROPPING = Network(width=16, depth=2, dropout=0.25)


def test_masks_keep_the_right_share_and_differ_between_members_and_calls() -> None:
    rng = Rng([0, 1])["dropout"]
    first, second = rng.kept(64, 100, 33), rng.kept(64, 100, 33)
    assert first.shape == (2, 100, 33)
    assert first.dtype == torch.bool
    assert first.float().mean((1, 2)).tolist() == pytest.approx([0.75, 0.75], abs=0.03)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first[1], Rng([1])["dropout"].kept(64, 100, 33)[0])
    # Columns are not correlated, although eight masks share one random integer.
    correlations = np.corrcoef(first[0].numpy().T)
    assert np.abs(correlations - np.eye(33)).max() < 0.5


def test_dropout_by_hand() -> None:
    net, x = MLP(2, 1, DROPPING, Rng([0, 1])), torch.randn(2, 8, 2)
    rng = Rng([0, 1])["dropout"]
    hidden: Any = net.hidden
    h = x
    for layer in hidden:
        h = torch.tanh(layer(h)) * rng.kept(64, 8, 16) / 0.75
    assert torch.allclose(net(x, Rng([0, 1])["dropout"]), net.out(h), atol=1e-6)
    # Without random numbers all units count.
    plain = MLP(2, 1, replace(DROPPING, dropout=0.0), Rng([0, 1]))
    assert torch.equal(net(x), plain(x))
    assert torch.equal(plain(x, Rng([0, 1])["dropout"]), plain(x))


@pytest.mark.parametrize("method", [BC(), DBC(guide=DiffusionGuide(training=SHORT, width=16))], ids=["bc", "dbc"])
def test_dropout_is_for_training_only(method: BC | DBC) -> None:
    method = replace(method, training=SHORT, network=DROPPING)
    policy, plain = (
        fit(replace(method, network=network), DEMOS, device="cpu")
        for network in (DROPPING, replace(DROPPING, dropout=0.0))
    )
    assert np.array_equal(policy(X), policy(X))
    assert not np.allclose(policy(X), plain(X))
    # Held-out losses have no dropout either.
    net, s = MLP(2, 1, DROPPING, Rng([0])), torch.randn(1, 8, 2)
    losses = replace(BC(network=DROPPING), state_noise=0.1).loss(net, Batch(s, s[..., :1], held_out=True), Rng([0]), {})
    assert losses.total.item() == pytest.approx((net(s) - s[..., :1]).square().mean().item())


def test_dropout_of_an_image_network_is_in_its_hidden_layers() -> None:
    network = Network(width=16, depth=1, activation="relu", image=(1, 36, 36), dropout=0.5)
    net, x = ConvNet((1, 36, 36), 2, network, Rng([0])), torch.randn(1, 4, 36 * 36)
    assert not torch.equal(net(x), net(x, Rng([0])["dropout"]))


def test_dropout_that_would_be_ignored_is_refused() -> None:
    for dropout in (-0.1, 1.0, 0.9999):
        with pytest.raises(InvalidSettings, match="dropout must be at least 0 and below 1"):
            Network(dropout=dropout)
    with pytest.raises(InvalidSettings, match=r"IBC has no dropout; its network\.dropout must be 0, and is 0\.25"):
        IBC(network=DROPPING)
    with pytest.raises(InvalidSettings, match="an encoder has no dropout"):
        Encoder(network=replace(DROPPING, image=(1, 64, 64)))


def test_smoothness_by_hand() -> None:
    # π(s) = 3 s, so L_smooth is the mean of (3 σ z)².
    net = MLP(1, 1, Network(depth=0), Rng([0, 1]))
    with torch.no_grad():
        net.out.weight.fill_(3.0)
        net.out.bias.zero_()
    s, z = torch.tensor([[1.0], [2.0]]).expand(2, 2, 1), Rng([0, 1])["smoothness"].normal(2, 1)
    method = BC(smoothness=torch.tensor([0.5, 2.0]), smoothness_noise=torch.tensor([0.1, 0.3]))
    losses = method.loss(net, Batch(s, 3 * s), Rng([0, 1]), {})
    σ, μ = torch.tensor([0.1, 0.3]), torch.tensor([0.5, 2.0])
    smooth = (3 * σ[:, None, None] * z).square().mean((-2, -1))
    assert torch.allclose(losses.logs["L_smooth"], smooth, rtol=1e-4)
    assert torch.equal(losses.logs["L_BC"], torch.zeros(2))
    assert torch.allclose(losses.total, μ * smooth, rtol=1e-4)
    # d/dw of (w (s + σ z) − sg(w s))² is 2 w σ z (s + σ z); without the stop it would be 2 w (σ z)².
    (slope,) = torch.autograd.grad(losses.total.sum(), [net.out.weight])
    step = σ[:, None, None] * z
    assert torch.allclose(slope.flatten(), μ * (2 * 3 * step * (s + step)).mean((-2, -1)), rtol=1e-3)


def test_smoothness_makes_a_policy_smoother() -> None:
    method = BC(training=replace(SHORT, updates=150, lr=5e-3), network=Network(width=16, depth=2))
    plain, smooth = (
        fit(replace(method, smoothness=weight, smoothness_noise=0.3), DEMOS, device="cpu") for weight in (0.0, 10.0)
    )
    change = [np.abs(policy(X + 0.05) - policy(X)).mean() for policy in (plain, smooth)]
    assert change[1] < 0.8 * change[0]


def test_a_guide_of_shuffled_pairs_sees_the_actions_of_other_states() -> None:
    guide = DiffusionGuide(width=16, steps=50)
    net = guide.init(Dims(2, 1), Rng([0, 1])["init"])
    s, a = torch.randn(2, 6, 2), torch.randn(2, 6, 1)
    shuffled = replace(guide, shuffle_pairs=True).loss(net, Batch(s, a), Rng([0, 1]), {})
    others = torch.cat([a[:, -1:], a[:, :-1]], 1)  # the action of the pair before
    assert torch.equal(shuffled.total, guide.loss(net, Batch(s, others), Rng([0, 1]), {}).total)
    # The cost of a pair is that of the pair itself.
    draw = guide.draw(6, Dims(2, 1), Rng([0, 1]))
    assert torch.equal(guide.cost(net, s, a, draw), replace(guide, shuffle_pairs=True).cost(net, s, a, draw))


@pytest.mark.slow
def test_a_guide_of_shuffled_pairs_does_not_tell_right_actions_from_wrong_ones() -> None:
    training, ratios = Training(updates=1500, batch=64, lr=2e-3), list[float]()
    for shuffle in (False, True):
        guide = DiffusionGuide(training=training, width=64, shuffle_pairs=shuffle, t_high=300)
        method = DBC(training=SHORT, network=Network(width=16, depth=1), guide=guide)
        trained = fit(method, DEMOS, device="cpu").guide
        assert trained is not None
        right, wrong = (trained.cost(X, np.roll(np.sin(3 * X[:, :1]), k, 0), draws=16).mean() for k in (0, 37))
        ratios.append(float(wrong / right))
    assert ratios[0] > 1.2
    assert ratios[1] < 1.05
