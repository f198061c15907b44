import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffclone import BC, Demonstrations, Network, Training, fit
from diffclone.errors import InvalidSettings
from diffclone.methods import IBC, IBCLangevin
from diffclone.methods.ibc import lowest, resample
from diffclone.model import Batch, Dims, Method
from diffclone.nn.energy import Energy, Langevin
from diffclone.rng import Rng
from test_energy import Bowl, bowl, rows, zeroed

STILL = Langevin(steps=1, start=1e-9, end=1e-9, noise=0.0)
"""A walk that does not move."""


def random(*seeds: int) -> Rng:
    return Rng(seeds or [0], dtype=torch.float64)


# The search without derivatives.


def test_resampling_by_hand() -> None:
    acts = torch.tensor([[[[10.0], [20.0], [30.0]]]])
    u = torch.tensor([[[0.1, 0.21, 0.69, 0.71, 0.9999999]]])
    p = torch.tensor([[[0.2, 0.5, 0.3]]])
    assert resample(acts, p, u).flatten().tolist() == [10, 20, 20, 30, 30]


def test_resampling_draws_by_p_and_stays_with_its_state() -> None:
    p = torch.tensor([[[0.2, 0.5, 0.3], [0.7, 0.0, 0.3]], [[0.0, 0.0, 1.0], [0.25, 0.5, 0.25]]])
    acts = torch.arange(12.0).reshape(2, 2, 3, 1).repeat_interleave(2, -1)
    drawn = resample(acts, p, Rng([0, 1])["resample"].uniform(2, 20_000))
    assert drawn.shape == (2, 2, 20_000, 2)
    assert torch.equal(drawn[..., 0], drawn[..., 1])  # all dimensions of an action are drawn together
    for member in range(2):
        for state in range(2):
            counts = torch.bincount(drawn[member, state, :, 0].long(), minlength=12)
            expected = torch.zeros(12)
            expected[acts[member, state, :, 0].long()] = p[member, state]
            assert (counts / 20_000 - expected).abs().max() < 0.012
            assert torch.all((counts > 0) == (expected > 0))


def test_lowest_returns_the_action_with_the_lowest_energy() -> None:
    acts = torch.arange(12.0).reshape(1, 2, 3, 2)
    assert lowest(acts, torch.tensor([[[3.0, -1.0, 2.0], [0.0, 1.0, -5.0]]])).tolist() == [[[2, 3], [10, 11]]]


def distance(method: Method[Energy], k: float, size: int = 2) -> float:
    """Return the mean distance of a search's result from the minimum, over 50 states and two members."""
    rng = random(0, 1)
    obs = 2 * rng["obs"].uniform(50, size) - 1
    act = method.act(bowl(k, size=size), obs, rng["act"])
    assert act.shape == obs.shape
    return (act - obs).norm(dim=-1).mean().item()


def test_the_search_ends_near_the_lowest_energy() -> None:
    once, thrice = distance(IBC(iterations=1), 50.0), distance(IBC(iterations=3), 50.0)
    # A thousand actions in a square of side 4 lie some 0.06 from any point.
    assert once == pytest.approx(0.5 * math.sqrt(16 / 1000), rel=0.2)
    assert thrice < 0.6 * once


def test_one_iteration_returns_the_best_action_without_resampling() -> None:
    energy, obs = bowl(0.01, size=2), torch.tensor([[[0.5, -1.0], [1.0, 0.0]]]).double()
    act = IBC(iterations=1, samples=300).act(energy, obs, random()["act"])
    seen = energy.sample_box(random()["act"]["start"], 2, 300)
    nearest = (seen - obs[..., None, :]).norm(dim=-1).min(-1).values
    # The bowl is so flat that a draw by p would be anywhere.
    assert torch.equal((act - obs).norm(dim=-1), nearest)
    assert distance(IBC(), 0.01) < 0.1


def test_the_noise_of_the_search_is_in_half_widths_and_shrinks() -> None:
    net = Bowl(1e9)  # so steep that the best of all is drawn every time
    energy = Energy(net, Dims(1, 1, ((-8.0,), (8.0,))))
    IBC(samples=4000, iterations=4, noise=0.1, shrink=0.25).act(energy, rows(0.0), random())
    looks = [x[0, :, 1] for x in net.asked]
    assert [len(look) for look in looks] == [4000] * 4
    spreads = [look.std().item() for look in looks]
    assert spreads == pytest.approx([16 / math.sqrt(12), 0.8, 0.2, 0.05], rel=0.05)


def test_the_search_stays_in_the_box() -> None:
    act = IBC().act(bowl(50.0), rows(5.0, -5.0, 0.0), random())
    assert act.flatten().tolist() == pytest.approx([2.0, -2.0, 0.0], abs=0.05)
    assert act.abs().max() <= 2


# Their losses.


@pytest.mark.parametrize("method", [IBC(counter_examples=4), IBCLangevin(counter_examples=4, blocks=1)])
def test_the_initial_loss(method: Method[Energy]) -> None:
    rng = Rng([0, 1])
    weights = zeroed(method.init(Dims(3, 2), rng["init"]))
    losses = method.loss(weights, Batch(rng["obs"].normal(7, 3), rng["act"].normal(7, 2)), rng, {})
    assert losses.total.tolist() == pytest.approx([math.log(5)] * 2)


def test_counter_examples_of_ibc_are_uniform_in_the_box() -> None:
    losses = IBC(counter_examples=3).loss(bowl(2.0), Batch(rows(0.0), rows(0.5)), random(), {})
    counter = (-2 + 4 * random()["counter"].uniform(1, 3)).flatten().tolist()
    of_all = math.exp(-0.5) + sum(math.exp(-2 * a**2) for a in counter)
    assert losses.total.item() == pytest.approx(-math.log(math.exp(-0.5) / of_all))


def test_langevin_counter_examples_are_harder_to_distinguish() -> None:
    obs = 2 * random()["obs"].uniform(100, 1) - 1
    still, walked = (
        IBCLangevin(counter_examples=3, training_walk=walk).loss(bowl(4.0), Batch(obs, obs), random(), {}).logs["L_NCE"]
        for walk in (STILL, Langevin(steps=30))
    )
    assert still.item() < math.log(2)
    assert walked.item() == pytest.approx(math.log(4), abs=0.1)  # they end where the expert is


class Plane(nn.Module):
    """E(s, a) = 3 a₁ − 5 a₂."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.tensor([3.0, -5.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x[..., 1:] @ self.factors[:, None]


@pytest.mark.parametrize(("margin", "by_hand"), [(1.0, 25.0), (4.0, 4.0), (7.0, 0.0)])
def test_the_gradient_penalty_by_hand(margin: float, by_hand: float) -> None:
    # Half-widths 2 and 0.5: the largest of |3 · 2| and |−5 · 0.5| is 6.
    energy = Energy(Plane(), Dims(1, 2, ((-1.0, -0.5), (3.0, 0.5))))
    method = IBCLangevin(margin=margin, penalty=10.0, counter_examples=3, training_walk=STILL)
    batch = Batch(torch.zeros(1, 4, 1), torch.zeros(1, 4, 2))
    losses = method.loss(energy, batch, Rng([0]), {})
    assert losses.logs["L_grad"].tolist() == [by_hand]
    assert losses.total.item() == pytest.approx(losses.logs["L_NCE"].item() + 10 * by_hand)
    losses.logs["L_grad"].sum().backward()
    parameter = next(energy.parameters())
    assert parameter.grad is not None
    # ∂ max(2 |e₁| − m, 0)² / ∂e₁ = 2 · 2 · max(6 − m, 0); the second component is not the largest.
    assert parameter.grad.tolist() == pytest.approx([4 * math.sqrt(by_hand), 0.0])


def test_the_gradient_penalty_leaves_out_padded_actions() -> None:
    # As above, but the first number is beyond the end of the episode: |−5 · 0.5| is 2.5.
    energy = Energy(Plane(), Dims(1, 2, ((-1.0, -0.5), (3.0, 0.5))))
    real = torch.tensor([False, True]).expand(1, 4, 2)
    method = IBCLangevin(counter_examples=3, training_walk=STILL)
    losses = method.loss(energy, Batch(torch.zeros(1, 4, 1), torch.zeros(1, 4, 2), real=real), Rng([0]), {})
    assert losses.logs["L_grad"].tolist() == [1.5**2]


def test_the_gradient_penalty_covers_the_experts_action_and_every_counter_example() -> None:
    # In a bowl of k = 1 and half-width 2 the gradient in half-widths is 4 |a − s|.
    energy, method = bowl(1.0), IBCLangevin(counter_examples=3, margin=0.0, training_walk=STILL)
    acts = torch.tensor([[[[0.5], [1.0], [0.0], [-1.0]]]], dtype=torch.float64)
    batch = Batch(rows(0.0), rows(0.5))
    assert method.gradient_penalty(energy, batch, acts).item() == pytest.approx((2**2 + 4**2 + 0 + 4**2) / 4)
    losses = method.loss(energy, batch, random(), {})
    counter = -2 + 4 * random()["counter"].uniform(1, 3)
    squares = [4.0, *(16 * counter.square()).flatten().tolist()]
    assert losses.logs["L_grad"].item() == pytest.approx(sum(squares) / 4, rel=1e-6)


# The search by walks.


def test_walks_end_near_the_lowest_energy() -> None:
    assert distance(IBCLangevin(walks=8), 5.0) < 0.01
    assert distance(IBCLangevin(walks=8, walk=STILL, last_walk=STILL), 5.0) > 0.3


def test_the_best_walk_is_taken() -> None:
    still = IBCLangevin(walks=200, walk=STILL, last_walk=STILL)
    act = still.act(bowl(0.01), rows(0.5, 1.0), random()["act"])
    seen = bowl(0.01).sample_box(random()["act"]["start"], 2, 200)
    nearest = (seen - rows(0.5, 1.0)[..., None, :]).abs().amin((-2, -1))
    assert torch.allclose((act - rows(0.5, 1.0)).abs().squeeze(-1), nearest, atol=1e-6)


def test_a_minimum_outside_the_box_is_approximated_at_its_boundary() -> None:
    act = IBCLangevin(walks=4).act(bowl(5.0), rows(5.0, -5.0), random())
    assert act.flatten().tolist() == [2.0, -2.0]


# What they are for.

LINE = np.random.default_rng(0).uniform(-0.5, 0.5, (1000, 1))
SIDE = np.random.default_rng(1).choice([-1.0, 1.0], (1000, 1))
FORK = Demonstrations.from_arrays(
    LINE, LINE + SIDE + np.random.default_rng(2).normal(0, 0.05, (1000, 1)), episode_ends=[1000]
)
"""The expert's action is s + 1 or s − 1, equally often."""

BRIEF = Training(updates=300, batch=64, lr=2e-3)


@pytest.mark.parametrize(
    "method",
    [
        IBC(training=BRIEF, network=Network(64, 2, "relu", "default"), counter_examples=16, samples=300),
        IBCLangevin(training=replace(BRIEF, batch=32), width=32, blocks=1, training_walk=Langevin(steps=10), walks=16),
    ],
    ids=lambda method: type(method).__name__,
)
def test_implicit_policies_choose_one_of_two_modes(method: Method[Any]) -> None:
    seen = np.linspace(-0.4, 0.4, 9)[:, None]
    sides = fit(method, FORK, seeds=(0, 1), device="cpu")(seen) - seen
    assert np.abs(np.abs(sides) - 1).max() < 0.15


def test_bc_averages_two_modes() -> None:
    seen = np.linspace(-0.4, 0.4, 9)[:, None]
    answers = fit(BC(training=BRIEF, network=Network(32, 2)), FORK, seeds=(0, 1), device="cpu")(seen)
    assert np.abs(answers - seen).max() < 0.25


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        (IBC, {"counter_examples": 0}),
        (IBC, {"samples": 0}),
        (IBC, {"iterations": 0}),
        (IBCLangevin, {"counter_examples": 0}),
        (IBCLangevin, {"walks": 0}),
        (IBCLangevin, {"blocks": 0}),
        (IBCLangevin, {"width": 0}),
    ],
)
def test_invalid_settings_are_refused(method: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=r"counter_examples, .* must be at least 1"):
        method(**wrong)
