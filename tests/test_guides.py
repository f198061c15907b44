import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits

from diffclone import BC, DBC, Network, Training
from diffclone.errors import InvalidSettings
from diffclone.guides import GANGuide, VAEGuide
from diffclone.guides.vae import Autoencoder
from diffclone.model import Batch, Dims
from diffclone.nn import MLP
from diffclone.rng import Rng
from diffclone.training.learner import Learner
from diffclone.training.step import Dataset, Updates

LOG_2 = math.log(2)


def rows(*values: float) -> Tensor:
    """Return one member with one row per value."""
    return torch.tensor([values])[..., None]


def set_all(net: MLP, weight: float, bias: list[float]) -> MLP:
    """Set all weights to one value, and all biases except the last to 0."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.fill_(weight if name.endswith("weight") else 0)
        net.out.bias.copy_(torch.tensor(bias))
    return net


# The auto-encoder.

TINY = VAEGuide(width=1, depth=1, latent=1)


def tiny() -> Autoencoder:
    """Return an autoencoder with constant μ = 1, σ = 2, which decodes a positive z as (z, z)."""
    weights = TINY.init(Dims(1, 1), Rng([0]))
    set_all(weights.encoder, 0.0, [1.0, LOG_2])
    set_all(weights.decoder, 1.0, [0.0, 0.0])
    return weights


# z = 1 + 2 ε is 2, then 1/2; pairs (3, 0) and (1, 1): L_rec = 1² + 2² and (1/2)² + (1/2)².
OBS, ACT, EPS = rows(3.0, 1.0), rows(0.0, 1.0), torch.tensor([[[0.5], [-0.25]]])
REC = [5.0, 0.5]
# ½ (μ² + σ² − 1 − log σ²) = ½ (1 + 4 − 1 − 2 log 2).
KL = 2 - LOG_2


def test_the_terms_of_the_vae_by_hand() -> None:
    rebuilt, kl = tiny()(torch.cat([OBS, ACT], -1), EPS)
    assert rebuilt.flatten().tolist() == pytest.approx(REC)
    assert kl.flatten().tolist() == pytest.approx([KL, KL])


def test_the_cost_is_the_reconstruction_error_per_dimension() -> None:
    assert TINY.cost(tiny(), OBS, ACT, EPS).flatten().tolist() == pytest.approx([2.5, 0.25])
    with_kl = replace(TINY, with_kl=True, kl_weight=0.5)
    by_hand = [(rec + 0.5 * KL) / 2 for rec in REC]
    assert with_kl.cost(tiny(), OBS, ACT, EPS).flatten().tolist() == pytest.approx(by_hand)


def test_the_loss_of_the_vae_by_hand() -> None:
    weights = tiny()
    set_all(weights.decoder, 0.0, [2.0, 2.0])  # whatever z is
    losses = replace(TINY, kl_weight=0.5).loss(weights, Batch(OBS, ACT), Rng([0]), {})
    # Pairs (3, 0) and (1, 1) are rebuilt as (2, 2): 1 + 4 and 1 + 1.
    assert losses.logs["L_rec"].item() == pytest.approx(3.5)
    assert losses.logs["L_KL"].item() == pytest.approx(KL)
    assert losses.total.item() == pytest.approx(3.5 + 0.5 * KL)


def test_the_divergence_is_as_in_torch() -> None:
    guide, rng = VAEGuide(width=8, depth=2, latent=5), Rng([0, 1], dtype=torch.float64)
    weights, x = guide.init(Dims(2, 1), rng["init"]), 3 * rng["x"].normal(7, 3)
    mean, log_std = weights.encoder(x).chunk(2, -1)
    theirs = kl_divergence(Normal(mean, log_std.exp()), Normal(torch.zeros_like(mean), 1.0)).sum(-1)
    _, kl = weights(x, rng["eps"].normal(7, 5))
    assert kl.shape == (2, 7)
    assert torch.allclose(kl, theirs, rtol=1e-10)


def test_agent_and_expert_share_the_noise() -> None:
    # A policy that repeats the state, which is what the expert does: only another ε could make a difference.
    method = DBC(network=Network(depth=0), guide=TINY, gate="none", coefficient=1.0, away=0.0)
    policy, same = set_all(method.init(Dims(1, 1), Rng([0])), 1.0, [0.0]), rows(3.0, 1.0)  # pyright: ignore[reportArgumentType]
    first, second = (method.loss(policy, Batch(same, same), Rng([seed]), {"guide": tiny()}) for seed in (0, 1))
    for losses in (first, second):
        assert losses.logs["L_agent"].item() == losses.logs["L_expert"].item() > 0
        assert losses.total.item() == 0
    assert first.logs["L_agent"].item() != second.logs["L_agent"].item()


def test_a_draw_of_the_vae_is_one_noise_per_pair() -> None:
    guide = VAEGuide(latent=3)
    draw = guide.draw(5, Dims(2, 1), Rng([0, 1])["guide"])
    assert torch.equal(draw, Rng([0, 1])["guide"]["latent"].normal(5, 3))


@pytest.mark.parametrize("wrong", [{"latent": 0}, {"depth": 0}, {"width": 0}, {"kl_weight": -0.1}])
def test_invalid_vae_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match="latent, depth and width must be at least 1"):
        VAEGuide(**wrong)


# The discriminator.


def judge() -> MLP:
    """Return a discriminator whose logit is s + a if that is positive."""
    return set_all(GANGuide(width=1, depth=1).init(Dims(1, 1), Rng([0])), 1.0, [0.0])


def test_the_losses_of_the_gan_by_hand() -> None:
    # D = 1 / (1 + e^{−logit}) is 3/4 and 1/2 for the expert, 4/5 and 7/8 for the policy.
    expert, imitated = rows(math.log(3), 0.0), rows(math.log(4), math.log(7))
    batch = Batch(rows(0.0, 0.0), expert, imitated)
    losses = GANGuide().loss(judge(), batch, Rng([0]), {})
    assert losses.total.item() == pytest.approx((math.log(4 / 3) + math.log(5) + math.log(2) + math.log(8)) / 2)
    assert losses.logs["D_expert"].item() == pytest.approx((3 / 4 + 1 / 2) / 2)
    cost = GANGuide().cost(judge(), batch.obs, imitated, None)
    assert cost.flatten().tolist() == pytest.approx([math.log(5 / 4), math.log(8 / 7)])


def test_the_losses_of_the_gan_are_cross_entropies_of_torch() -> None:
    guide, rng = GANGuide(width=16), Rng([0, 1], dtype=torch.float64)
    weights = guide.init(Dims(2, 1), rng["init"])
    obs, act, imitated = rng["obs"].normal(9, 2), 5 * rng["act"].normal(9, 1), 5 * rng["imitated"].normal(9, 1)
    real, made = (weights(torch.cat([obs, a], -1)).squeeze(-1) for a in (act, imitated))

    def entropy(logits: Tensor, label: float) -> Tensor:
        return binary_cross_entropy_with_logits(logits, torch.full_like(logits, label), reduction="none")

    total = guide.loss(weights, Batch(obs, act, imitated), rng, {}).total
    assert torch.allclose(total, (entropy(real, 1.0) + entropy(made, 0.0)).mean(-1), rtol=1e-12)
    assert torch.allclose(guide.cost(weights, obs, imitated, None), entropy(made, 1.0), rtol=1e-12)


def test_the_gan_raises_the_experts_logit_and_lowers_the_policys() -> None:
    expert, imitated = rows(1.0).requires_grad_(), rows(1.0).requires_grad_()
    GANGuide().loss(judge(), Batch(rows(0.0), expert, imitated), Rng([0]), {}).total.sum().backward()
    assert expert.grad is not None
    assert imitated.grad is not None
    d = 1 / (1 + math.exp(-1))
    assert (expert.grad.item(), imitated.grad.item()) == pytest.approx((d - 1, d))


def test_a_gan_cannot_learn_without_a_policy() -> None:
    with pytest.raises(InvalidSettings, match="cannot be trained without a policy"):
        GANGuide().loss(judge(), Batch(rows(0.0), rows(0.0)), Rng([0]), {})


def trained(coefficient: float, updates: int, lr: float = 1e-2) -> tuple[Tensor, Tensor]:
    """Train a policy and a discriminator; return the weights of both."""
    guide = GANGuide(training=Training(lr=1e-2, decay="constant"), width=4)
    training = Training(updates, batch=8, lr=lr)
    method = DBC(training=training, network=Network(4, 1), coefficient=coefficient, guide=guide, gate="none")
    dims, x = Dims(1, 1), Rng([5])["x"].normal(20, 1)[0]
    policy = Learner(method, method.init(dims, Rng([0, 1])["policy"]), updates)
    beside = Learner(guide, guide.init(dims, Rng([0, 1])["guide"]), updates)
    Updates(policy, {"guide": beside}, {}, Dataset(x, x.sin()), Rng([0, 1], path="policy")).run(updates)
    return policy.matrix, beside.matrix


def test_the_policys_loss_does_not_change_the_discriminator() -> None:
    # After one update only the policy's own gradient can have seen the coefficient.
    (away, first), (towards, second) = trained(-100.0, 1), trained(100.0, 1)
    assert not torch.equal(away, towards)
    assert torch.equal(first, second)


def test_the_discriminators_loss_does_not_change_the_policy() -> None:
    method = BC(training=Training(20, batch=8, lr=1e-2), network=Network(4, 1))
    x = Rng([5])["x"].normal(20, 1)[0]
    alone = Learner(method, method.init(Dims(1, 1), Rng([0, 1])["policy"]), 20)
    Updates(alone, {}, {}, Dataset(x, x.sin()), Rng([0, 1], path="policy")).run(20)
    policy, discriminator = trained(0.0, 20)
    assert torch.equal(policy, alone.matrix)
    assert not torch.allclose(discriminator, trained(0.0, 1)[1], atol=1e-3)


def test_the_discriminator_learns_from_the_current_policy() -> None:
    assert not torch.equal(trained(0.0, 20)[1], trained(0.0, 20, lr=1e-9)[1])


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"width": 0}])
def test_invalid_gan_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match="depth and width must be at least 1"):
        GANGuide(**wrong)
