from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from diffclone import BC, DBC, Network
from diffclone.methods.bc import imitation_loss
from diffclone.model import Batch, Dims, Guide, Losses, Parts
from diffclone.nn import MLP
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs

STRAIGHT = Network(depth=0)
"""No hidden layer, so that π(s) = s W + b can be written down."""


@dataclass(frozen=True)
class SizeGuide(Guide[nn.Module]):
    """Costs |a| of each pair, plus the draw."""

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


# The policy answers 3 and 1 where the expert did 1 and 2: costs differ by +2 and −1.
MIXED = ([3.0, 1.0], [1.0, 2.0])
# It answers 1 and 1 where the expert did 2 and 5: costs differ by −1 and −4.
BETTER = ([1.0, 1.0], [2.0, 5.0])


@pytest.mark.parametrize(("gate", "mixed", "better"), [("batch", 0.5, 0.0), ("sample", 1.0, 0.0), ("none", 0.5, -2.5)])
def test_the_hinge_by_hand(gate: Literal["batch", "sample", "none"], mixed: float, better: float) -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, guide=SizeGuide(), gate=gate)
    first, second = judge(method, *MIXED), judge(method, *BETTER)
    assert (first["L_DM"], second["L_DM"]) == pytest.approx((mixed, better), abs=1e-6)
    # L_BC: (2² + 1²) / 2 and (1² + 4²) / 2.
    assert (first["L_BC"], second["L_BC"]) == (2.5, 8.5)
    assert first["total"] == pytest.approx(2.5 + 10 * mixed, abs=1e-5)
    assert second["total"] == pytest.approx(8.5 + 10 * better, abs=1e-5)
    assert first["L_agent"] - first["L_expert"] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("gate", ["batch", "sample", "none"])
def test_without_the_experts_cost_the_agents_counts_whole(gate: Literal["batch", "sample", "none"]) -> None:
    method = DBC(network=STRAIGHT, coefficient=2.0, guide=SizeGuide(), subtract_expert=False, gate=gate)
    draw = Rng([0])["guide"].normal(2).mean().item()
    losses = judge(method, *BETTER)
    assert losses["L_DM"] == losses["L_agent"] == pytest.approx(1.0 + draw)
    assert losses["total"] == pytest.approx(8.5 + 2 * (1.0 + draw))


def test_the_guide_alone() -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, imitation=0.0, guide=SizeGuide())
    losses = judge(method, *MIXED)
    assert losses["L_BC"] == 2.5
    assert losses["total"] == pytest.approx(5.0, abs=1e-5)


def test_members_have_their_own_coefficients() -> None:
    agent, expert = (torch.tensor([rows])[..., None].expand(3, 2, 1) for rows in MIXED)
    coefficients = torch.tensor([0.0, 1.0, 10.0])
    method = DBC(network=STRAIGHT, coefficient=coefficients, guide=SizeGuide())
    losses = method.loss(copying_policy(3), Batch(agent, expert), Rng([0, 1, 2]), {"guide": nn.Identity()})
    assert losses.total.tolist() == pytest.approx([2.5, 3.0, 7.5], abs=1e-5)


def test_agent_and_expert_are_judged_with_the_same_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def cost(self: SizeGuide, weights: nn.Module, obs: Tensor, act: Tensor, draw: Tensor) -> Tensor:
        seen.append(draw)
        return act.sum(-1)

    monkeypatch.setattr(SizeGuide, "cost", cost)
    judge(DBC(network=STRAIGHT, guide=SizeGuide()), *MIXED)
    agent, expert = seen
    assert agent is expert


@pytest.mark.parametrize(("agent", "expert", "slope"), [([3.0], [1.0], 10.0), ([1.0], [3.0], 0.0)])
def test_the_guide_pulls_only_where_the_agent_costs_more(agent: list[float], expert: list[float], slope: float) -> None:
    method = DBC(network=STRAIGHT, coefficient=10.0, imitation=0.0, guide=SizeGuide())
    net, batch = copying_policy(), Batch(torch.tensor([agent])[..., None], torch.tensor([expert])[..., None])
    method.loss(net, batch, Rng([0]), {"guide": nn.Identity()}).total.sum().backward()
    assert net.out.bias.grad is not None
    assert net.out.bias.grad.item() == slope


def test_imitation_by_hand() -> None:
    act = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    expert = torch.tensor([[[1.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 2.0]]])
    # A number a member, over 2 rows of 2 dimensions: (0 + 4 + 9 + 0) / 4 and 4 / 4.
    assert imitation_loss(act, expert).tolist() == [3.25, 1.0]


def test_bc_hands_on_its_answers() -> None:
    batch = Batch(torch.tensor([[[3.0], [1.0]]]), torch.tensor([[[1.0], [2.0]]]))
    losses = BC(network=STRAIGHT).loss(copying_policy(), batch, Rng([0]), {})
    assert losses.total.tolist() == [2.5]
    assert losses.imitated is not None
    assert torch.equal(losses.imitated, batch.obs)
