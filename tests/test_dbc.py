import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training, fit
from diffclone.errors import InvalidSettings
from diffclone.methods.bc import imitation_loss
from diffclone.model import Batch, Dims, Guide, Losses, Parts
from diffclone.nn import MLP
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs

STRAIGHT = Network(depth=0)
"""No hidden layer, so that π(s) = s W + b can be written down."""


@dataclass(frozen=True)
class SizeGuide(Guide[nn.Module]):
    """The cost of a pair is |a| plus the draw."""

    def init(self, dims: Dims, rng: Rng) -> nn.Module:
        return nn.Identity()

    def loss(self, weights: nn.Module, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        raise NotImplementedError

    def draw(self, batch: int, dims: Dims, rng: Rng) -> Tensor:
        return rng.normal(batch)

    def cost(self, weights: nn.Module, obs: Obs, act: Act, draw: Any) -> Costs:
        return act.abs().sum(-1) + draw


def copying_policy(members: int = 1) -> MLP:
    net = MLP(1, 1, STRAIGHT, Rng(range(members)))
    with torch.no_grad():
        net.out.weight.fill_(1)
        net.out.bias.zero_()
    return net


def judge(method: DBC, agent: list[float], expert: list[float]) -> dict[str, float]:
    batch = Batch(torch.tensor([agent])[..., None], torch.tensor([expert])[..., None])
    losses = method.loss(copying_policy(), batch, Rng([0]), {"guide": nn.Identity()})
    return {name: value.item() for name, value in {"total": losses.total, **losses.logs}.items()}


# The policy's actions are 3 and 1, the expert's 1 and 2: costs differ by +2 and −1.
MIXED = ([3.0, 1.0], [1.0, 2.0])
# The policy's actions are 1 and 1, the expert's 2 and 5: costs differ by −1 and −4.
BETTER = ([1.0, 1.0], [2.0, 5.0])


@pytest.mark.parametrize(("gate", "mixed", "better"), [("batch", 0.5, 0.0), ("sample", 1.0, 0.0), ("none", 0.5, -2.5)])
def test_the_hinge_by_hand(gate: Literal["batch", "sample", "none"], mixed: float, better: float) -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, guide=SizeGuide(), gate=gate, away=0.0)
    first, second = judge(method, *MIXED), judge(method, *BETTER)
    assert (first["L_DM"], second["L_DM"]) == pytest.approx((mixed, better), abs=1e-6)
    # L_BC: (2² + 1²) / 2 and (1² + 4²) / 2.
    assert (first["L_BC"], second["L_BC"]) == (2.5, 8.5)
    assert first["total"] == pytest.approx(2.5 + 10 * mixed, abs=1e-5)
    assert second["total"] == pytest.approx(8.5 + 10 * better, abs=1e-5)
    assert first["L_agent"] - first["L_expert"] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("gate", ["batch", "sample", "none"])
def test_without_the_expert_term_the_whole_agent_cost_counts(gate: Literal["batch", "sample", "none"]) -> None:
    method = DBC(network=STRAIGHT, coefficient=2.0, guide=SizeGuide(), subtract_expert=False, gate=gate, away=0.0)
    draw = Rng([0])["guide"].normal(2).mean().item()
    losses = judge(method, *BETTER)
    assert losses["L_DM"] == losses["L_agent"] == pytest.approx(1.0 + draw)
    assert losses["total"] == pytest.approx(8.5 + 2 * (1.0 + draw))


def test_the_guide_alone() -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, imitation=0.0, guide=SizeGuide(), away=0.0)
    losses = judge(method, *MIXED)
    assert losses["L_BC"] == 2.5
    assert losses["total"] == pytest.approx(5.0, abs=1e-5)


def test_members_have_their_own_coefficients() -> None:
    agent, expert = (torch.tensor([rows])[..., None].expand(3, 2, 1) for rows in MIXED)
    coefficients = torch.tensor([0.0, 1.0, 10.0])
    method = DBC(network=STRAIGHT, coefficient=coefficients, guide=SizeGuide(), away=0.0)
    losses = method.loss(copying_policy(3), Batch(agent, expert), Rng([0, 1, 2]), {"guide": nn.Identity()})
    assert losses.total.tolist() == pytest.approx([2.5, 3.0, 7.5], abs=1e-5)


def test_agent_and_expert_costs_share_their_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def cost(self: SizeGuide, weights: nn.Module, obs: Tensor, act: Tensor, draw: Tensor) -> Tensor:
        seen.append(draw)
        return act.sum(-1)

    monkeypatch.setattr(SizeGuide, "cost", cost)
    judge(DBC(network=STRAIGHT, coefficient=1.0, guide=SizeGuide(), away=0.0), *MIXED)
    agent, expert = seen
    assert agent is expert


@pytest.mark.parametrize(("agent", "expert", "gradient"), [([3.0], [1.0], 10.0), ([1.0], [3.0], 0.0)])
def test_the_guide_has_a_gradient_only_if_the_agent_costs_more(
    agent: list[float], expert: list[float], gradient: float
) -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, imitation=0.0, guide=SizeGuide(), away=0.0)
    net, batch = copying_policy(), Batch(torch.tensor([agent])[..., None], torch.tensor([expert])[..., None])
    method.loss(net, batch, Rng([0]), {"guide": nn.Identity()}).total.sum().backward()
    assert net.out.bias.grad is not None
    assert net.out.bias.grad.item() == gradient


def test_the_imitation_loss_by_hand() -> None:
    act = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    expert = torch.tensor([[[1.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 2.0]]])
    # A number a member, over 2 rows of 2 dimensions: (0 + 4 + 9 + 0) / 4 and 4 / 4.
    assert imitation_loss(act, expert).tolist() == [3.25, 1.0]


def test_bc_returns_its_actions_with_its_losses() -> None:
    batch = Batch(torch.tensor([[[3.0], [1.0]]]), torch.tensor([[[1.0], [2.0]]]))
    losses = BC(network=STRAIGHT).loss(copying_policy(), batch, Rng([0]), {})
    assert losses.total.tolist() == [2.5]
    assert losses.imitated is not None
    assert torch.equal(losses.imitated, batch.obs)


@pytest.mark.parametrize(("gate", "by_hand"), [("batch", [0.5, 0.0]), ("sample", [1.0, 0.0]), ("none", [0.5, -2.5])])
def test_gates_of_members_are_independent(gate: Literal["batch", "sample", "none"], by_hand: list[float]) -> None:
    agent, expert = (torch.tensor(rows) for rows in zip(MIXED, BETTER, strict=True))
    assert DBC(gate=gate).excess(agent, expert).tolist() == by_hand
    assert DBC(gate=gate, subtract_expert=False).excess(agent, expert).tolist() == [2.0, 1.0]


@pytest.mark.parametrize(("gate", "gradient"), [("batch", 10.0), ("sample", 5.0), ("none", 10.0)])
def test_a_gate_on_pairs_passes_only_pairs_that_cost_more(
    gate: Literal["batch", "sample", "none"], gradient: float
) -> None:
    # Of the two pairs the second costs less than the expert's. The gradient of a pair is 1/2, λ is 10.
    method = DBC(network=STRAIGHT, coefficient=10.0, imitation=0.0, guide=SizeGuide(), gate=gate, away=0.0)
    assert bias_gradient(method, *MIXED) == pytest.approx(gradient)


def bias_gradient(method: DBC, agent: list[float], expert: list[float]) -> float:
    """Return the gradient with respect to the policy's bias: the sum of those with respect to its actions."""
    net, batch = copying_policy(), Batch(torch.tensor([agent])[..., None], torch.tensor([expert])[..., None])
    method.loss(net, batch, Rng([0]), {"guide": nn.Identity()}).total.sum().backward()
    assert net.out.bias.grad is not None
    return net.out.bias.grad.item()


# An automatic coefficient.

AUTO = DBC(network=STRAIGHT, coefficient="auto", guide=SizeGuide(), away=0.0)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("imitation", [1.0, 2.0])
def test_an_auto_coefficient_by_hand(ratio: float, imitation: float) -> None:
    # π = (3, 1), a = (1, 2): g_BC = (2, −1), as long as √5; g_DM = (1/2, 1/2), as long as √½. So λ = ρ √10.
    by_hand = imitation * (1 + ratio * math.sqrt(10))
    assert bias_gradient(replace(AUTO, ratio=ratio, imitation=imitation), *MIXED) == pytest.approx(by_hand)


def test_a_guide_without_gradient_leaves_imitation_alone() -> None:
    # π = (1, 1), a = (2, 5), and the gate is shut: g_BC = (−1, −4).
    assert bias_gradient(AUTO, *BETTER) == -5.0


def test_an_auto_coefficient_changes_gradients_and_no_logged_value() -> None:
    plain, auto = judge(replace(AUTO, coefficient=1.0), *MIXED), judge(AUTO, *MIXED)
    assert plain == auto


def lengths(gradient: Tensor) -> Tensor:
    return gradient.square().sum((-2, -1), keepdim=True).sqrt()


@pytest.mark.parametrize("away", [0.0, 0.7])
def test_an_auto_coefficient_balances_each_member_by_itself(away: float) -> None:
    guide = DiffusionGuide(width=8, steps=20)
    method = DBC(network=Network(8, 2), coefficient="auto", ratio=0.3, guide=guide, gate="none", away=away)
    dims, rng = Dims(3, 2), Rng([0, 1], dtype=torch.float64)
    net, parts = method.init(dims, rng["init"]), {"guide": guide.init(dims, rng["guide weights"])}
    scale = torch.tensor([1.0, 100.0]).double()[:, None, None]  # what one member loses is nothing to the other
    batch = Batch(rng["obs"].normal(6, 3), scale * rng["act"].normal(6, 2))
    losses = method.loss(net, batch, rng["loss"], parts)
    found = torch.autograd.grad(losses.total.sum(), list(net.parameters()))

    again = Rng([0, 1], dtype=torch.float64)["loss"]
    s_away = batch.obs + 0.1 * again["away"].normal(6, 3)
    acts, acts_away = net(batch.obs), net(s_away)
    draw = guide.draw(6, dims, again["guide"])
    bc = imitation_loss(acts, batch.act)
    agent, elsewhere = (guide.cost(parts["guide"], s, a, draw) for s, a in ((batch.obs, acts), (s_away, acts_away)))
    dm = (agent - guide.cost(parts["guide"], batch.obs, batch.act, draw)).mean(-1) + away * elsewhere.mean(-1)
    (g_bc,) = torch.autograd.grad(bc.sum(), acts, retain_graph=True)
    g_dm = torch.cat(torch.autograd.grad(dm.sum(), [acts, acts_away], retain_graph=True), -2)
    balanced = 0.3 * lengths(g_bc) / lengths(g_dm) * g_dm
    assert not torch.allclose(*(lengths(g_bc) / lengths(g_dm)), rtol=0.5)
    reaching = [g_bc + balanced[..., :6, :], balanced[..., 6:, :]]
    by_hand = torch.autograd.grad([acts, acts_away], list(net.parameters()), reaching)
    for ours, theirs in zip(found, by_hand, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X), episode_ends=[200])
BRIEF = Training(updates=40, batch=16, lr=1e-3)
LEARNING = DBC(
    coefficient=1.0,
    away=0.0,
    training=BRIEF,
    network=Network(8, 2),
    guide=DiffusionGuide(training=BRIEF, width=8, steps=20),
)


def weights(method: BC | DBC, *seeds: int) -> Tensor:
    net = fit(method, DEMOS, seeds=seeds, device="cpu").net
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


@pytest.mark.parametrize(
    "change",
    [{"coefficient": "auto"}, {"away": 0.5}, {"coefficient": "auto", "away": 0.5}],
)
def test_members_with_an_auto_coefficient_or_states_away_are_independent(change: dict[str, Any]) -> None:
    plain = replace(LEARNING, gate="none", coefficient=30.0)
    method = replace(plain, **change)
    together = weights(method, 0, 1)
    assert torch.allclose(together[1], weights(method, 1)[0], atol=1e-5)
    assert not torch.allclose(together, weights(plain, 0, 1), atol=1e-4)


def test_a_member_that_is_nan_leaves_the_auto_coefficient_of_the_others() -> None:
    guide = nn.Identity()
    agent, expert = (torch.tensor([rows] * 2)[..., None] for rows in MIXED)

    def gradients(first: float) -> Tensor:
        net = copying_policy(2)
        with torch.no_grad():
            net.out.weight[0] = first
        AUTO.loss(net, Batch(agent, expert), Rng([0, 1]), {"guide": guide}).total.sum().backward()
        assert net.out.bias.grad is not None
        return net.out.bias.grad.flatten()

    sound, poisoned = gradients(1.0), gradients(float("nan"))
    assert poisoned[0].isnan()
    assert sound[1] == poisoned[1]


def test_an_auto_coefficient_needs_the_imitation_term() -> None:
    with pytest.raises(InvalidSettings, match="is relative to the gradient of L_BC, whose weight is 0"):
        DBC(coefficient="auto", imitation=0.0)


# Away from the expert's states.


def test_the_cost_away_by_hand() -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, guide=SizeGuide(), away=0.5, away_noise=0.2)
    losses, plain = judge(method, *MIXED), judge(replace(method, away=0.0), *MIXED)
    # The policy repeats the state, and the guide costs |a| and the draw.
    s_away = torch.tensor(MIXED[0]) + 0.2 * Rng([0])["away"].normal(2, 1).flatten()
    by_hand = s_away.abs().mean() + Rng([0])["guide"].normal(2).mean()
    assert losses["L_away"] == pytest.approx(by_hand.item())
    assert losses["total"] == pytest.approx(2.5 + 10 * (0.5 + 0.5 * by_hand.item()))
    assert "L_away" not in plain
    for name in ("L_BC", "L_DM", "L_agent", "L_expert"):  # what is drawn for one is not taken from another
        assert losses[name] == plain[name]


def test_the_policy_learns_from_states_away() -> None:
    # λ κ / 2 from each of two states, both positive, plus the 10 of L_DM.
    method = DBC(network=STRAIGHT, coefficient=10.0, imitation=0.0, guide=SizeGuide(), away=0.5, away_noise=0.01)
    assert bias_gradient(method, *MIXED) == pytest.approx(10 + 5)


def test_no_weight_on_states_away_draws_nothing_and_changes_no_bit() -> None:
    rng = Rng([0])
    batch = Batch(torch.ones(1, 2, 1), torch.ones(1, 2, 1))
    DBC(network=STRAIGHT, guide=SizeGuide(), away=0.0).loss(copying_policy(), batch, rng, {"guide": nn.Identity()})
    assert set(rng.clock.calls) == {"/guide"}
    assert torch.equal(weights(replace(LEARNING, away=0.0, away_noise=9.0), 0, 1), weights(LEARNING, 0, 1))
