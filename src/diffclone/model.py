"""The base classes of everything that is trained: frozen settings that make weights and compute a loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, final

import torch
from torch import Tensor, nn

from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidSettings
from diffclone.rng import Rng
from diffclone.settings import added, check_types
from diffclone.shapes import Act, Costs, Obs, Scalar, Scalars, lowest

W = TypeVar("W", bound=nn.Module)
"""The class of a model's weights."""

Normalisation = Literal["z-score", "robust", "none"]

Parts: TypeAlias = Mapping[str, nn.Module]
"""Weights of the models that another one needs, by name."""


def stackable(default: float | str) -> Any:
    """Return a field in which the members of one stack may differ."""
    return field(default=default, metadata={"stackable": True})


@final
@dataclass(frozen=True)
class Training:
    """How a model's weights are trained."""

    updates: int = 20_000
    """Gradient updates."""
    batch: int = 128
    """Pairs per update, drawn with replacement."""
    lr: Scalar = stackable(1e-4)
    """Adam's learning rate. Members of one stack may differ in it (`vary={"training.lr": …}`)."""
    decay: Literal["linear", "exponential", "constant"] = "linear"
    """How the learning rate decreases: linearly to zero, exponentially to `remains` of its initial value, or not."""
    remains: float = 0.01
    """The fraction of the learning rate that an exponential decay ends with."""
    clip: float | None = 0.5
    """Largest norm of a member's gradient; none for no limit."""
    eps: float = 1e-8
    """Adam's epsilon."""
    ema: float | None = None
    """If set, the result is an exponential moving average of the weights. This is its decay, which starts lower and
    grows over the first updates: after n updates it is at most (1 + n) / (10 + n)."""
    weight_decay: Scalar = added(0.0, stackable=True)
    """Each update first multiplies all weights, biases included, by 1 − lr · weight_decay, as AdamW does."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.updates < 1 or self.batch < 1:
            raise InvalidSettings(f"updates and batch must be at least 1; they are {self.updates} and {self.batch}.")
        if not lowest(self.lr) > 0 or not self.eps > 0 or (self.clip is not None and not self.clip > 0):
            raise InvalidSettings(f"lr, eps and clip must be above 0; they are {self.lr}, {self.eps}, {self.clip}.")
        if not 0 < self.remains <= 1:
            raise InvalidSettings(f"remains must be above 0 and at most 1; it is {self.remains}.")
        if lowest(self.weight_decay) < 0:
            raise InvalidSettings(f"weight_decay must not be negative; it is {self.weight_decay}.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise InvalidSettings(f"ema must be between 0 and 1; it is {self.ema}.")


@final
@dataclass(frozen=True)
class Dims:
    """Sizes of observations and actions, and the bounds of the action search."""

    obs: int
    """Numbers of an observation."""
    act: int
    """Numbers of an action."""
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Lowest and highest normalised action that a method considers (`Normaliser.box`); None if no model uses it."""

    @property
    def action_box(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The box; ±2 standard deviations if there is none."""
        return self.box or ((-2.0,) * self.act, (2.0,) * self.act)

    def windows(self, chunks: Chunks) -> "Dims":
        """Return the sizes of a call's window of observations and of its chunk of actions, as a model receives them."""
        low, high = self.box or ((), ())
        box = None if self.box is None else (low * chunks.horizon, high * chunks.horizon)
        return Dims(self.obs * chunks.history, self.act * chunks.horizon, box)


@final
@dataclass(frozen=True)
class Batch:
    """Normalised pairs, and the policy's actions for them if a part is trained alongside the policy.

    If the method has a history or a horizon, `obs` is a window of observations and `act` a chunk of actions, one after
    the other in the last axis.
    """

    obs: Obs
    """(…, batch, observation size): normalised observations."""
    act: Act
    """(…, batch, action size): the expert's normalised actions."""
    imitated: Act | None = None
    """(…, batch, action size): the policy's normalised actions; None for parts that are trained before the policy."""
    held_out: bool = False
    """Whether the loss is only reported, on data that is not trained on. It then has no noise on states."""
    real: Tensor | None = None
    """False where a chunk extends beyond the end of its episode, where `act` repeats the last action; None if none
    does."""

    def mask(self, predicted: Tensor, target: Tensor | None = None) -> Tensor:
        """Return a prediction with the numbers of the target (`act`) beyond the end of an episode.

        A loss that compares the result with the target is 0 there and has no gradient. Predictions are
        (…, batch, act), or (…, batch, n, act).
        """
        if self.real is None:
            return predicted
        real, target = self.real, self.act if target is None else target
        if predicted.dim() > real.dim():
            real, target = real[..., None, :], target[..., None, :]
        return torch.where(real, predicted, target)


@final
@dataclass(frozen=True)
class Losses:
    """The result of a model's `loss`."""

    total: Scalars
    """The value to minimise, one number per member."""
    logs: Mapping[str, Scalars] = field(default_factory=dict[str, Tensor])
    """Values to report."""
    imitated: Act | None = None
    """The policy's actions, for parts trained alongside it."""


class Default(int):
    """A default that `suggest` may replace. A number that the user sets is a plain int and stays."""


def scoring(default: Any) -> Any:
    """Return a field of a guide that its cost depends on, but not its weights."""
    return field(default=default, metadata={"scoring": True})


def acting(default: Any) -> Any:
    """Return a field of a method that its actions depend on, but not its weights."""
    return field(default=default, metadata={"acting": True})


@dataclass(frozen=True)
class Model(ABC, Generic[W]):
    """Settings that make weights (`init`) and compute their loss (`loss`)."""

    update_factor: ClassVar[int] = 0
    """If not 0, `suggest` replaces unset sizes and schedules, with this many times the updates of plain BC."""

    training: Training = Training()
    """How it is trained."""

    @property
    def trained(self) -> Literal["before", "alongside"]:
        """Whether it is trained before the model that needs it, or alongside it, on the actions of that policy."""
        return "before"

    @property
    def compilable(self) -> bool:
        """Whether the loss may be compiled. A loss that takes gradients itself may not: compilers get them wrong."""
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
        """Return initial weights for pairs of these sizes, one set per member of `rng`."""

    @abstractmethod
    def loss(self, weights: W, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return the loss of the weights on a batch.

        Args:
            weights: what `init` returned, or the weights after some updates.
            batch: normalised pairs of the expert.
            rng: the source of all random numbers.
            parts: weights of the models that `needs` names, by name.
        """


def nested_parts(parts: Parts, name: str) -> dict[str, nn.Module]:
    """Return the parts of the part `name`, by the names that it uses itself."""
    return {key.removeprefix(f"{name}."): net for key, net in parts.items() if key.startswith(f"{name}.")}


def init_parts(model: Model[Any], dims: Dims, rng: Rng) -> dict[str, nn.Module]:
    """Return initial weights of everything that a model needs, nested parts included."""
    parts: dict[str, nn.Module] = {}
    for name, part in model.needs().items():
        own = part_dims(model, name, dims, parts)
        parts |= {f"{name}.{key}": net for key, net in init_parts(part, own, rng[name]).items()}
        parts[name] = part.init(own, rng[name]["init"])
    return parts


def part_dims(model: Model[Any], name: str, dims: Dims, parts: Parts) -> Dims:
    """Return the sizes of the pairs that the part `name` receives."""
    first = next((p for net in parts.values() for p in net.parameters()), torch.zeros(()))
    with torch.no_grad():
        obs = model.part_obs(name, first.new_zeros(1, 1, dims.obs), parts)
    return replace(dims, obs=obs.shape[-1])


@dataclass(frozen=True)
class Guide(Model[W]):
    """A model of the expert's pairs: its cost is low for pairs like the expert's."""

    @abstractmethod
    def draw(self, batch: int, dims: Dims, rng: Rng) -> Any:
        """Draw the random numbers that the cost of `batch` pairs needs; None if it needs none.

        With equal draws, costs can be compared.
        """

    @abstractmethod
    def cost(self, weights: W, obs: Obs, act: Act, draw: Any) -> Costs:
        """Return one number per pair, low for pairs like the expert's.

        A guide that needs parts has one more parameter, `parts`, with their weights.

        Args:
            weights: the trained weights.
            obs: normalised observations.
            act: normalised actions.
            draw: what `draw` returned.
        """


def bind_cost(guide: Guide[Any], name: str, parts: Parts) -> Callable[[Obs, Act, Any], Costs]:
    """Return the guide's cost as a function of (obs, act, draw), with the weights of `parts`."""
    cost: Any = guide.cost
    own = nested_parts(parts, name)
    return partial(cost, parts[name], parts=own) if own else partial(cost, parts[name])


@dataclass(frozen=True)
class Method(Model[W]):
    """A model that acts."""

    normalisation: Normalisation = "robust"
    """How observations and actions are normalised for all models, the guide included: z-scores of the demonstrations,
    with observations clipped to ±10; "robust", with larger scales of observations that hardly vary and a clip of ±3
    (`data/robust.py`); or not at all, as the released code does for AntReach."""
    horizon: int = added(1)
    """Actions that a call returns: a chunk. In training, chunks end with their episode."""
    execute: int = added(1, acting=True)
    """Actions of a chunk that are played before the next call."""
    history: int = added(1)
    """Observations that a call sees, the current one included. At the start of an episode the first one is repeated."""
    ensemble: float | None = added(None, acting=True)
    """If set, a call is made at every step, and the action is the mean of all predictions of it, with weights
    e^(ensemble · age in steps), 0.01 in ACT. Older predictions weigh more; with a negative number they weigh less."""

    @property
    def chunks(self) -> Chunks:
        """The four settings of chunks and history, checked."""
        chunks = Chunks(self.horizon, self.execute, self.history, self.ensemble)
        if problem := chunks.problem():
            raise InvalidSettings(problem)
        return chunks

    @abstractmethod
    def act(self, weights: W, obs: Obs, rng: Rng) -> Act:
        """Map normalised observations to normalised actions.

        Args:
            weights: the trained weights.
            obs: normalised observations; windows of them, if the method has a history.
            rng: random numbers of this call, for methods that sample actions.

        Returns:
            Normalised actions; chunks of them, if the method has a horizon.
        """
