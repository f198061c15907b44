"""What everything learnable is: a frozen value of settings that can make weights and say how wrong they are."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs, Scalars

W = TypeVar("W", bound=nn.Module)
"""The kind of weights a model has."""

Normalisation = Literal["z-score", "none"]

Parts: TypeAlias = Mapping[str, nn.Module]
"""Weights of the models that another one needs, by name."""


@final
@dataclass(frozen=True)
class Training:
    """How a model's weights are found."""

    updates: int = 20_000
    """Gradient updates."""
    batch: int = 128
    """Pairs an update, drawn with replacement."""
    lr: float = 1e-4
    """Adam's learning rate."""
    decay: Literal["linear", "exponential", "constant"] = "linear"
    """How the learning rate falls over the updates: in a straight line to zero, by a constant factor to `remains` of
    itself, or not at all."""
    remains: float = 0.01
    """What an exponential decay leaves of the learning rate."""
    clip: float | None = 0.5
    """Largest norm of a member's gradient; none for no limit."""
    eps: float = 1e-8
    """Adam's epsilon."""
    ema: float | None = None
    """If set, the result is the moving average of the weights with this decay."""

    def __post_init__(self) -> None:
        if self.updates < 1 or self.batch < 1:
            raise InvalidSettings(f"updates and batch must be at least 1; they are {self.updates} and {self.batch}.")
        if not self.lr > 0 or not self.eps > 0 or (self.clip is not None and not self.clip > 0):
            raise InvalidSettings(f"lr, eps and clip must be above 0; they are {self.lr}, {self.eps}, {self.clip}.")
        if not 0 < self.remains <= 1:
            raise InvalidSettings(f"remains must be above 0 and at most 1; it is {self.remains}.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise InvalidSettings(f"ema must lie between 0 and 1; it is {self.ema}.")


@final
@dataclass(frozen=True)
class Dims:
    """Sizes of one pair, and where actions lie."""

    obs: int
    act: int
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Lowest and highest normalised action that is worth a thought; none where nothing asks for it."""

    @property
    def action_box(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The box, or two standard deviations to each side."""
        return self.box or ((-2.0,) * self.act, (2.0,) * self.act)


@final
@dataclass(frozen=True)
class Batch:
    """Normalised pairs, and what the policy answers to them where a part trained alongside needs it."""

    obs: Obs
    act: Act
    imitated: Act | None = None


@final
@dataclass(frozen=True)
class Losses:
    """What a model's `loss` returns."""

    total: Scalars
    """What is minimised, one number a member."""
    logs: Mapping[str, Scalars] = field(default_factory=dict[str, Tensor])
    """What is shown beside it."""
    imitated: Act | None = None
    """The policy's answers, for parts trained alongside it."""


def stackable(default: float | str) -> Any:
    """A field in which the members of one stack may differ."""
    return field(default=default, metadata={"stackable": True})


def judging(default: Any) -> Any:
    """A field of a guide that matters when it judges, and not to its own weights."""
    return field(default=default, metadata={"judging": True})


def acting(default: Any) -> Any:
    """A field of a method that matters when it acts, and not to its weights."""
    return field(default=default, metadata={"acting": True})


@dataclass(frozen=True)
class Model(ABC, Generic[W]):
    """Settings that know how to make weights (`init`) and to judge them (`loss`)."""

    training: Training = Training()
    """How it is trained."""

    @property
    def trained(self) -> Literal["before", "alongside"]:
        """Whether it is fixed when what needs it is trained, or learns from that policy's answers."""
        return "before"

    @property
    def compilable(self) -> bool:
        """Whether a compiler may have the loss: not if it takes gradients itself, which compilers get wrong."""
        return True

    def needs(self) -> Mapping[str, "Model[Any]"]:
        """Return the parts of this model: other models whose weights `loss` receives by these names.

        They are trained in this order. A part may need parts itself; their names are then joined by a dot, as in
        "guide.encoder".
        """
        return {}

    def part_obs(self, name: str, obs: Tensor, parts: Parts) -> Tensor:
        """Return the observations that the part `name` receives, given `obs` and the weights of the parts before it.

        By default every part receives `obs` itself.
        """
        return obs

    @abstractmethod
    def init(self, dims: Dims, rng: Rng) -> W:
        """Fresh weights, one set a member of `rng`."""

    @abstractmethod
    def loss(self, weights: W, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """How wrong the weights are on a batch."""


def nested_parts(parts: Parts, name: str) -> dict[str, nn.Module]:
    """Return the parts of the part `name`, by the names that it uses itself."""
    return {key.removeprefix(f"{name}."): net for key, net in parts.items() if key.startswith(f"{name}.")}


def init_parts(model: Model[Any], dims: Dims, rng: Rng) -> dict[str, nn.Module]:
    """Return fresh weights of everything that a model needs, nested parts included."""
    parts: dict[str, nn.Module] = {}
    for name, part in model.needs().items():
        own = part_dims(model, name, dims, parts)
        parts |= {f"{name}.{key}": net for key, net in init_parts(part, own, rng[name]).items()}
        parts[name] = part.init(own, rng[name]["init"])
    return parts


def part_dims(model: Model[Any], name: str, dims: Dims, parts: Parts) -> Dims:
    """Return the sizes that the part `name` is made for."""
    first = next((p for net in parts.values() for p in net.parameters()), torch.zeros(()))
    with torch.no_grad():
        obs = model.part_obs(name, first.new_zeros(1, 1, dims.obs), parts)
    return replace(dims, obs=obs.shape[-1])


@dataclass(frozen=True)
class Guide(Model[W]):
    """Judges pairs: its cost is low where the expert acts."""

    @abstractmethod
    def draw(self, batch: int, dims: Dims, rng: Rng) -> Any:
        """The randomness of one judgement of `batch` pairs; the same draw makes two judgements comparable."""

    @abstractmethod
    def cost(self, weights: W, obs: Obs, act: Act, draw: Any) -> Costs:
        """Return one number per pair.

        A guide that needs parts has one more parameter, `parts`, with their weights.
        """


def bind_cost(guide: Guide[Any], name: str, parts: Parts) -> Callable[[Obs, Act, Any], Costs]:
    """Return the guide's cost as a function of (obs, act, draw), with the weights of `parts`."""
    cost: Any = guide.cost
    own = nested_parts(parts, name)
    return partial(cost, parts[name], parts=own) if own else partial(cost, parts[name])


@dataclass(frozen=True)
class Method(Model[W]):
    """A model that acts."""

    normalisation: Normalisation = "z-score"
    """What is done to numbers before any model sees them, the guide included: z-scores of the demonstrations, or none,
    as the released code has it for AntReach."""

    @abstractmethod
    def act(self, weights: W, obs: Obs, rng: Rng) -> Act:
        """Normalised observations to normalised actions."""
