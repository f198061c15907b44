import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import diffclone.nn.energy
from diffclone.errors import InvalidSettings
from diffclone.guides import EnergyGuide
from diffclone.model import Batch, Dims
from diffclone.nn.energy import Energy, Langevin, info_nce
from diffclone.rng import Rng


class Bowl(nn.Module):
    """E(s, a) = k ‖a − s‖², for a state and an action of one size. Records its inputs."""

    def __init__(self, k: float):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k, dtype=torch.float64))
        self.asked: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.asked.append(x.detach())
        s, a = x.chunk(2, -1)
        return self.k * (a - s).square().sum(-1, keepdim=True)


def bowl(k: float, half: float = 2.0, size: int = 1) -> Energy:
    return Energy(Bowl(k), Dims(size, size, ((-half,) * size, (half,) * size)))


def rows(*values: float) -> Tensor:
    """Return one member with one row per value."""
    return torch.tensor([values], dtype=torch.float64)[..., None]


def zeroed(net: Energy) -> Energy:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    return net


# InfoNCE.


@pytest.mark.parametrize("n", [1, 3, 64])
@pytest.mark.parametrize("energy", [-2.0, 0.0, 5.0])
def test_equal_energies_have_a_uniform_loss(n: int, energy: float) -> None:
    nce = info_nce(torch.tensor([[energy]]), torch.full((1, 1, n), energy))
    assert nce.item() == pytest.approx(math.log(n + 1), abs=1e-5)


def test_info_nce_by_hand() -> None:
    # e^{−E} of the expert's action 1, 1/4 and 1; of the two others (1/2, 1/2), (1, 1) and (1/4, 3/4).
    positive = -torch.tensor([[1.0, 0.25, 1.0]]).log()
    counter = -torch.tensor([[[0.5, 0.5], [1.0, 1.0], [0.25, 0.75]]]).log()
    assert info_nce(positive, counter)[0].exp().tolist() == pytest.approx([2, 9, 2])


def test_a_lower_energy_of_the_experts_action_is_a_lower_loss() -> None:
    loss = info_nce(torch.tensor([[2.0, 1.0, 0.0, -1.0, -30.0]]), torch.zeros(1, 5, 8))[0]
    assert torch.all(loss.diff() < 0)
    assert loss[-1].item() == pytest.approx(0, abs=1e-6)


def test_descent_lowers_the_experts_energy_and_raises_the_others() -> None:
    positive = torch.zeros(1, 1, requires_grad=True)
    counter = torch.zeros(1, 1, 3, requires_grad=True)
    info_nce(positive, counter).sum().backward()
    assert positive.grad is not None
    assert counter.grad is not None
    # 1 − p and −p, where each of four has p = 1/4.
    assert positive.grad.flatten().tolist() == pytest.approx([0.75])
    assert counter.grad.flatten().tolist() == pytest.approx([-0.25] * 3)


def test_info_nce_is_a_cross_entropy() -> None:
    energies = 3 * Rng([0, 1], dtype=torch.float64)["energies"].normal(7, 6)
    theirs = cross_entropy(-energies.flatten(0, 1), torch.zeros(14, dtype=torch.int64), reduction="none")
    assert torch.allclose(info_nce(energies[..., 0], energies[..., 1:]).flatten(), theirs, rtol=1e-12)


# The energy.


def test_energies_of_several_actions_equal_single_energies(monkeypatch: pytest.MonkeyPatch) -> None:
    dims, rng = Dims(3, 2), Rng([0, 1], dtype=torch.float64)
    energy = EnergyGuide(width=8, depth=2).init(dims, rng["init"])
    obs, acts = rng["obs"].normal(5, 3), rng["act"].normal(5, 4, 2)
    together = energy.energies(obs, acts)
    assert together.shape == (2, 5, 4)
    for k in range(4):
        assert torch.allclose(together[..., k], energy(obs, acts[..., k, :]), rtol=1e-12)
    monkeypatch.setattr(diffclone.nn.energy, "CPU_ROWS", 8)  # two states at a time
    with torch.no_grad():
        assert torch.allclose(energy.energies(obs, acts), together, rtol=1e-12)


@pytest.mark.parametrize("box", [((-1.0, 2.0), (3.0, 2.5)), None])
def test_sampled_actions_fill_the_box(box: Any) -> None:
    energy = EnergyGuide(width=2, depth=1).init(Dims(1, 2, box), Rng([0, 1])["init"])
    acts = energy.sample_box(Rng([0, 1])["anywhere"], 50, 100)
    assert acts.shape == (2, 50, 100, 2)
    low, high = (torch.tensor(edge) for edge in box or ((-2.0, -2.0), (2.0, 2.0)))
    flat = acts.flatten(0, 2)
    assert torch.all((flat > low) & (flat < high))
    share = (flat - low) / (high - low)
    assert share.min() < 0.001
    assert share.max() > 0.999
    assert torch.allclose(share.mean(0), torch.tensor(0.5), atol=0.02)


def test_the_gradient_of_a_quadratic() -> None:
    energy = bowl(3.0)
    acts = torch.tensor([[[[1.0], [-1.0]], [[0.5], [2.0]]]], dtype=torch.float64)
    found = energy.gradient(rows(0.0, 1.0), acts, differentiable=True)
    # 2 k (a − s).
    assert found.flatten().tolist() == [6.0, -6.0, -3.0, 6.0]
    found[0, 0, 0].sum().backward()
    parameter = next(energy.parameters())
    assert parameter.grad is not None
    assert parameter.grad.item() == 2.0
    assert not energy.gradient(rows(0.0, 1.0), acts).requires_grad


# Langevin's walk.


def test_two_langevin_steps_by_hand() -> None:
    # E = a²/2 in a box of half-width 2: a ← a − 2 · η · ½ · 2 · a. η is 0.1, then 0.04 + 0.06 · (1 − 1/2)² = 0.055.
    walk = Langevin(steps=2, start=0.1, end=0.04, noise=0.0, cut=10.0)
    end = walk.walk(bowl(0.5), rows(0.0), rows(1.0)[..., None], Rng([0], dtype=torch.float64))
    assert end.item() == pytest.approx(1 * (1 - 0.2) * (1 - 0.11))
    assert not end.requires_grad


@pytest.mark.parametrize("half", [0.5, 2.0])
def test_noise_is_in_half_widths_and_scales_with_the_step(half: float) -> None:
    walk = Langevin(steps=1, start=0.1, noise=3.0, cut=10.0)
    acts = torch.zeros(1, 4, 5, 1, dtype=torch.float64)
    end = walk.walk(bowl(0.0, half), rows(0, 0, 0, 0), acts, Rng([0], dtype=torch.float64)["walk"])
    z = Rng([0], dtype=torch.float64)["walk"].normal(4, 5, 1)
    assert torch.allclose(end, (-half * 0.1 * 3 * z).clamp(-half, half), rtol=1e-12)


def test_a_walk_descends_and_stays_in_the_box() -> None:
    energy, rng = bowl(5.0, half=2.0, size=2), Rng([0, 1], dtype=torch.float64)
    inside, outside = torch.tensor([1.0, -0.5]).double(), torch.tensor([5.0, -0.5]).double()
    obs = torch.stack([inside, outside]).expand(2, 2, 2)
    start = energy.sample_box(rng["start"], 2, 30)
    end = Langevin(steps=100).walk(energy, obs, start, rng["walk"])
    assert end.shape == start.shape
    assert (start[:, 0] - inside).abs().max() > 2
    assert (end[:, 0] - inside).abs().max() < 0.1
    assert torch.all(end[:, 1, :, 0] == 2)  # as near as the box lets it
    assert (end[:, 1, :, 1] + 0.5).abs().max() < 0.1


@pytest.mark.parametrize("noise", [0.0, 50.0])
def test_steps_are_clipped(noise: float) -> None:
    net = Bowl(1e6)
    energy = Energy(net, Dims(1, 1, ((-2.0,), (2.0,))))
    start, rng = rows(1.5, -1.5, 0.05)[..., None], Rng([0], dtype=torch.float64)
    end = Langevin(steps=30, noise=noise, cut=0.05).walk(energy, rows(0, 0, 0), start, rng)
    path = torch.stack([*(x[0, :, 1] for x in net.asked), end.flatten()])
    assert len(path) == 31
    assert path.diff(dim=0).abs().max().item() == pytest.approx(0.05 * 2)  # half-widths
    # So steep a bowl is left by no noise: straight down by the longest step, to and fro at the bottom.
    assert path[:3].flatten().tolist() == pytest.approx([1.5, -1.5, 0.05, 1.4, -1.4, -0.05, 1.3, -1.3, 0.05])


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"end": 0.2}, {"end": 0.0}, {"noise": -1.0}, {"cut": 0.0}, {"start": float("nan")}]
)
def test_invalid_langevin_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match="a Langevin walk needs steps >= 1"):
        Langevin(**wrong)


# The guide.


def test_the_initial_loss_of_the_guide() -> None:
    guide, rng = EnergyGuide(width=8, depth=2), Rng([0, 1])
    weights = zeroed(guide.init(Dims(3, 2), rng["init"]))
    losses = guide.loss(weights, Batch(rng["obs"].normal(7, 3), rng["act"].normal(7, 2)), rng, {})
    assert losses.total.tolist() == pytest.approx([math.log(65)] * 2)


def test_the_guide_separates_the_experts_action_from_actions_of_the_box() -> None:
    guide, obs, act = EnergyGuide(counter_examples=3), rows(0.0, 1.0), rows(0.5, 1.0)
    losses = guide.loss(bowl(2.0), Batch(obs, act), Rng([0], dtype=torch.float64), {})
    counter = -2 + 4 * Rng([0], dtype=torch.float64)["counter"].uniform(2, 3)
    # E = 2 (a − s)² of the expert: 0.5 and 0.
    by_hand = [
        -math.log(math.exp(-e) / (math.exp(-e) + sum(math.exp(-2 * (a - s) ** 2) for a in others)))
        for e, s, others in zip((0.5, 0.0), (0.0, 1.0), counter[0].tolist(), strict=True)
    ]
    assert losses.total.item() == pytest.approx(sum(by_hand) / 2)
    assert losses.logs["L_NCE"] is losses.total


def test_the_guides_cost_is_the_energy_at_the_nearest_action_of_the_box() -> None:
    guide = EnergyGuide()
    draw = guide.draw(2, Dims(1, 1), Rng([0]))
    # 2 (a − s)², where 3 counts as 2, the edge of the box.
    assert guide.cost(bowl(2.0), rows(0.0, 1.0), rows(0.5, 3.0), draw).tolist() == [[0.5, 2.0]]


@pytest.mark.parametrize("wrong", [{"counter_examples": 0}, {"depth": 0}, {"width": 0}])
def test_invalid_guide_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match="counter_examples, depth and width must be at least 1"):
        EnergyGuide(**wrong)
