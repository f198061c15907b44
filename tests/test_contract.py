"""Contract checks over every registered method and guide. A new entry is tested by being registered."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import nn

from diffclone import DBC, Training, fit
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Batch, Dims, Guide, Losses, Method, Model, Parts
from diffclone.nn import MLP, PolicyNet
from diffclone.nn.energy import Langevin
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs
from diffclone.testing import check_guide, check_method
from diffclone.testing.methods import make_demonstrations
from diffclone.training import Progress
from own_models import Reconstruction, Robust

M = TypeVar("M", bound=Model[Any])

SMALL = {"width": 32, "blocks": 1, "training_walk": Langevin(steps=3), "walks": 8, "samples": 100}
VARY = {"mip": {"noise": (0.1, 0.3)}}
DEMOS = make_demonstrations()
WITH_GUIDE = [name for name, cls in METHODS.items() if "guide" in {f.name for f in dataclasses.fields(cls)}]


def small(model: M, updates: int, **training: Any) -> M:
    """Return the same model with narrow networks and little training, and likewise the guide that it needs."""
    changes: dict[str, Any] = {"training": Training(updates=updates, lr=1e-3, **training)}
    for entry in dataclasses.fields(model):
        value = getattr(model, entry.name)
        if entry.name in SMALL:
            changes[entry.name] = SMALL[entry.name]
        elif entry.name == "network":
            changes["network"] = dataclasses.replace(value, width=32, depth=2)
        elif isinstance(value, Guide):
            changes[entry.name] = small(value, updates, **training)
    return dataclasses.replace(model, **changes)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_passes_the_contract_checks(name: str) -> None:
    method = small(METHODS[name](), 40)
    if name in WITH_GUIDE:  # a closed gate would hide the coefficient; all guides are checked with DBC below
        method = dataclasses.replace(method, gate="none")
    check_method(method, vary=VARY.get(name))


@pytest.mark.parametrize("name", GUIDES)
def test_every_guide_passes_the_contract_checks(name: str) -> None:
    check_guide(small(GUIDES[name](), 800, batch=64, clip=None))


METHODS_AND_GUIDES = [(name, guide) for name in METHODS for guide in (GUIDES if name in WITH_GUIDE else [None])]


@pytest.mark.parametrize(("name", "guide"), METHODS_AND_GUIDES)
def test_every_loss_falls(name: str, guide: str | None) -> None:
    seen: list[Progress] = []
    method = METHODS[name]() if guide is None else DBC(guide=GUIDES[guide](), coefficient=0.1, gate="none")
    method = small(method, 320, batch=32)
    fit(method, DEMOS, seeds=(0, 1), device="cpu", progress=seen.append)
    # A part that is trained alongside may make the sum rise.
    falling = "L_BC" if any(part.trained == "alongside" for part in method.needs().values()) else "loss"
    for stage in {progress.stage for progress in seen}:
        losses = [now.losses[falling] for now in seen if now.stage == stage and now.losses]
        assert np.all(np.mean(losses[-3:], 0) < losses[0]), stage


def test_methods_and_guides_of_users_pass_the_contract_checks() -> None:
    check_method(Robust())
    check_guide(Reconstruction(training=Training(updates=600, lr=3e-3)))


# Classes that break one rule each.


@dataclass(frozen=True)
class Broken(Method[PolicyNet]):
    """A sound method, the base of the broken ones."""

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        return Robust().init(dims, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Losses((weights(batch.obs) - batch.act).square().mean((-2, -1)))

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        return weights(obs)


@dataclass(frozen=True)
class OneLoss(Broken):
    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        total: Any = super().loss(weights, batch, rng, parts).total.mean()
        return Losses(total)


@dataclass(frozen=True)
class Coupled(Broken):
    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        total = super().loss(weights, batch, rng, parts).total
        return Losses(total / total.numel())


@dataclass(frozen=True)
class OwnRandomness(Broken):
    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        noise = 0.1 * torch.randn(batch.obs.shape, dtype=batch.obs.dtype)
        return super().loss(weights, Batch(batch.obs + noise, batch.act), rng, parts)


@dataclass(frozen=True)
class SinglePrecision(Broken):
    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        return super().init(dims, rng).float()


@dataclass(frozen=True)
class NoMembers(Broken):
    def init(self, dims: Dims, rng: Rng) -> Any:
        return nn.Linear(dims.obs, dims.act, dtype=rng.dtype)


@dataclass(frozen=True)
class WrongActions(Broken):
    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Any:
        return weights(obs)[..., :1, :]


@dataclass(frozen=True)
class ContagiousNan(Broken):
    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        total = super().loss(weights, batch, rng, parts).total
        return Losses(total * (1 + 0 * total.sum().detach()))


@dataclass(frozen=True)
class Undeclared(Broken):
    options: Any = field(default_factory=lambda: np.ones(2))


class NoDataclass(Broken):
    width: int = 3


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (OneLoss, r"OneLoss: `loss` of OneLoss returns total of shape \(\); it must be \(3,\), one number per member"),
        (Coupled, "Coupled: member .* differs by .* from the same member alone"),
        (OwnRandomness, "OwnRandomness: two trainings with the same seeds differ; take all randomness from `rng`"),
        (SinglePrecision, "SinglePrecision: `init` .* as torch.float32; it must be torch.float64"),
        (NoMembers, r"NoMembers: `init` .* weight of shape \(2, 2\); the first axis must be"),
        (ContagiousNan, "ContagiousNan: NaN weights of one member's ContagiousNan change another member"),
        (WrongActions, r"WrongActions: actions have shape \(3, 1, 2\), not \(3, 4, 2\)"),
        (Undeclared, "Undeclared: the settings cannot be saved and loaded"),
        (NoDataclass, "NoDataclass: the class must be decorated with @dataclass"),
    ],
)
def test_a_broken_method_fails_the_contract_checks(broken: Callable[[], Method[Any]], message: str) -> None:
    with pytest.raises(AssertionError, match=message) as raised:
        check_method(broken())
    assert "\n" not in str(raised.value)


def test_a_sound_method_passes_the_contract_checks() -> None:
    check_method(Broken())


@dataclass(frozen=True)
class BrokenGuide(Guide[MLP]):
    training: Training = Training(updates=300, lr=1e-3)

    def init(self, dims: Dims, rng: Rng) -> MLP:
        return Reconstruction().init(dims, rng)

    def loss(self, weights: MLP, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Reconstruction().loss(weights, batch, rng, parts)

    def draw(self, batch: int, dims: Dims, rng: Rng) -> None: ...

    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None) -> Costs:
        return Reconstruction().cost(weights, obs, act, draw)


@dataclass(frozen=True)
class Inverted(BrokenGuide):
    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None) -> Costs:
        return -super().cost(weights, obs, act, draw)


@dataclass(frozen=True)
class OneCost(BrokenGuide):
    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None) -> Any:
        return super().cost(weights, obs, act, draw).mean(-1)


@dataclass(frozen=True)
class RandomCost(BrokenGuide):
    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None) -> Costs:
        return super().cost(weights, obs, act, draw) * torch.rand(())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Inverted, "Inverted: the expert's pairs cost .* and others .*; the cost must be low where the expert acts"),
        (OneCost, r"OneCost: `cost` of 7 pairs and 2 members is \(2,\); it must be \(2, 7\), one number per pair"),
        (RandomCost, "RandomCost: the same draw gives another cost; take all randomness from `draw`"),
    ],
)
def test_a_broken_guide_fails_the_contract_checks(broken: Callable[[], Guide[Any]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_guide(broken())
