"""Contract checks for a guide: every guide in `GUIDES` passes them, and so should yours."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from diffclone.data import Demonstrations, Normaliser
from diffclone.methods import BC, DBC
from diffclone.model import Dims, Guide, bind_cost, init_parts
from diffclone.nn import Network
from diffclone.rng import Rng
from diffclone.testing.methods import (
    check_method,
    check_settings,
    make_demonstrations,
    shorten,
    train,
    weights_of,
)
from diffclone.testing.patches import require

ROWS = 7
"""Pairs of which the cost is checked."""
DRAWS = 20
"""Draws that the cost of the expert's pairs is averaged over."""


def check_guide(guide: Guide[Any], demos: Demonstrations | None = None) -> None:
    """Raise `AssertionError` if a guide breaks a rule that methods with a guide rely on.

    The guide is trained once as its settings say, to compare the cost of the expert's pairs with that of others. All
    other trainings are brief.

    Args:
        guide: the guide with its settings.
        demos: demonstrations to train on, with action bounds; by default 400 steps of two numbers.
    """
    demos = demos or make_demonstrations()
    check_settings(guide)
    check_cost(guide, demos)
    check_zero_coefficient(guide, demos)
    check_expert_pairs(guide, demos)
    check_method(make_method(guide), demos)


def make_method(guide: Guide[Any]) -> DBC:
    """Return a small DBC with the guide, whose gate lets every gradient pass."""
    return DBC(training=guide.training, network=Network(32, 2), coefficient=1.0, gate="none", guide=guide)


def check_cost(guide: Guide[Any], demos: Demonstrations) -> None:
    """The cost is one number per pair, and the same for the same draw."""
    normaliser, rng = Normaliser.from_demonstrations(demos), Rng([0, 1], dtype=torch.float64)
    dims = Dims(demos.obs.shape[1], demos.act.shape[1], normaliser.box)
    cost = bind_cost(guide, "guide", init_parts(make_method(guide), dims, rng))
    obs, act = rng["obs"].normal(ROWS, dims.obs), rng["act"].normal(ROWS, dims.act)
    draw = guide.draw(ROWS, dims, rng["guide"])
    with torch.no_grad():
        first, second = (cost(obs, act, draw) for _ in range(2))
    require(
        first.shape == (2, ROWS),
        guide,
        f"`cost` of {ROWS} pairs and 2 members is {tuple(first.shape)}; it must be (2, {ROWS}), one number per pair",
    )
    require(first.dtype == torch.float64, guide, f"`cost` of float64 weights is {first.dtype}")
    require(torch.equal(first, second), guide, "the same draw gives another cost; take all randomness from `draw`")


def check_zero_coefficient(guide: Guide[Any], demos: Demonstrations) -> None:
    """DBC whose coefficient is 0 equals BC, bit for bit."""
    dbc = shorten(replace(make_method(guide), coefficient=0.0))
    bc = BC(training=dbc.training, network=dbc.network)
    nets = [train(method, demos, dtype=torch.float32).trained.net for method in (bc, dbc)]
    same = torch.equal(*(weights_of(net) for net in nets))
    require(same, guide, "DBC(coefficient=0.0) with this guide differs from BC; take randomness from `rng` only")


def check_expert_pairs(guide: Guide[Any], demos: Demonstrations) -> None:
    """The expert's pairs cost less than others.

    A guide that is trained before the policy is compared on pairs that are shuffled: observations and actions of the
    expert that do not belong together. A guide that is trained alongside a policy knows that policy's actions, so those
    are compared; the policy hardly learns.
    """
    alongside, method = guide.trained == "alongside", make_method(guide)
    brief = replace(guide.training, lr=1e-9) if alongside else shorten(method).training
    policy = train(replace(method, training=brief), demos, (0,), dtype=torch.float32).policy
    assert policy.guide is not None
    others = [policy[0](demos.obs)] if alongside else [np.roll(demos.act, 17 * k, 0) for k in range(1, 6)]
    expert, other = (
        np.mean([policy.guide.cost(demos.obs, act, draws=DRAWS).mean() for act in actions])
        for actions in ([demos.act], others)
    )
    require(
        bool(expert < other),
        guide,
        f"the expert's pairs cost {expert:.3g} and others {other:.3g}; the cost must be low where the expert acts, or "
        "the guide needs more training",
    )
