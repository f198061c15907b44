"""What every score of a monitor has: settings, weights fitted to training pairs, and one number per pair.

s, a  = normalised observation and action, a clipped to ±10
x     = [s, a]
score = f(s, a), high where (s, a) is unlike the pairs that the policy was trained on
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Demonstrations, Normaliser
from diffclone.data.layout import native
from diffclone.data.normaliser import LIMIT
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings
from diffclone.model import Dims, Method, Model
from diffclone.rng import Rng
from diffclone.shapes import Floats, Seen
from diffclone.training.loop import run_reporting, train_stage
from diffclone.training.members import Stack
from diffclone.training.session import Session
from diffclone.training.step import Dataset
from diffclone.training.windows import gather_all

W = TypeVar("W", bound=nn.Module)
"""The class of a score's weights."""

BATCH = 256
"""Pairs scored at once."""
SEED = 0
"""Seed of all random numbers of a monitor."""


@final
@dataclass(frozen=True, eq=False)
class Context:
    """The policy's own models, which some scores use."""

    method: Model[Any]
    normaliser: Normaliser
    """That of windows and chunks, if the policy has them. Observations are clipped no closer than to `LIMIT`, also if
    the policy clips them closer: a monitor must see how far they are from the demonstrations."""
    parts: Mapping[str, nn.Module] = field(default_factory=dict[str, nn.Module])
    """Weights of the parts of the method for one member: its guide, and the encoder of images. May be empty."""
    net: nn.Module | None = None
    """Weights of all members of the policy."""

    def __post_init__(self) -> None:
        limit = self.normaliser.obs_limit.clamp(min=LIMIT)
        object.__setattr__(self, "normaliser", replace(self.normaliser, obs_limit=limit))

    @property
    def dims(self) -> Dims:
        """Sizes of raw observations and actions."""
        return Dims(len(self.normaliser.obs_mean), len(self.normaliser.act_mean), self.normaliser.box)

    @property
    def encodes(self) -> bool:
        """Whether the parts change observations: images become features."""
        blank = self.normaliser.obs_mean.new_zeros(1, 1, self.dims.obs)
        return self.observe(blank) is not blank

    def observe(self, obs: Tensor) -> Tensor:
        """Return what scores receive for normalised observations: features, if the guide has an encoder."""
        return self.method.part_obs("guide", obs, self.parts) if self.parts else obs

    def batches(self, obs: npt.ArrayLike, act: npt.ArrayLike) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (s, a), each (rows, size), for one raw pair (size), (size) or a batch (batch, size), (batch, size)."""
        s, a, like = native(obs), native(act), self.normaliser.obs_mean
        sizes = (self.dims.obs, self.dims.act)
        if (
            s.ndim not in (1, 2)
            or a.ndim != s.ndim
            or s.shape[:-1] != a.shape[:-1]
            or (s.shape[-1], a.shape[-1]) != sizes
        ):
            raise InvalidData(
                f"the observation has shape {s.shape} and the action {a.shape}; this monitor expects "
                f"({sizes[0]},) and ({sizes[1]},), or batches of equal length."
            )
        for s_rows, a_rows in zip(*(torch.tensor(np.atleast_2d(x)).split(BATCH) for x in (s, a)), strict=True):
            seen = self.observe(self.normaliser.normalise_obs(s_rows.to(like))[None])[0]
            yield seen, self.normaliser.normalise_act(a_rows.to(like)).clamp(-LIMIT, LIMIT)

    def windows(self, demos: Demonstrations) -> tuple[Seen, Floats]:
        """Return the raw pairs of demonstrations: windows and chunks, if the policy has them."""
        return gather_all(demos, self.method.chunks if isinstance(self.method, Method) else Chunks())

    def pairs(self, demos: Demonstrations) -> Dataset:
        """Return all normalised pairs of demonstrations."""
        with torch.no_grad():
            obs, act = (torch.cat(column) for column in zip(*self.batches(*self.windows(demos)), strict=True))
        return Dataset(obs, act)


@dataclass(frozen=True)
class PairScore(ABC, Generic[W]):
    """The settings of a score. A subclass is registered by a name in `SCORES`."""

    parts: ClassVar[tuple[str, ...]] = ("both",)
    """The numbers that it returns per pair. "both", the score of the whole pair, is always one of them."""
    needs_pairs: ClassVar[bool] = True
    """Whether it must be fitted to training pairs."""
    uses_parts: ClassVar[bool] = False
    """Whether it uses `Context.parts`, which are then saved with the monitor."""
    uses_members: ClassVar[bool] = False
    """Whether it uses `Context.net`, which is then saved with the monitor."""

    @abstractmethod
    def init(self, context: Context, dims: Dims, rng: Rng) -> W:
        """Return weights that are not fitted. Saved weights are loaded into them.

        Args:
            context: the policy's own models.
            dims: sizes of observations and actions.
            rng: the source of all random numbers.
        """

    @abstractmethod
    def fit(self, context: Context, pairs: Dataset, rng: Rng) -> W:
        """Return weights fitted to training pairs.

        Args:
            context: the policy's own models.
            pairs: normalised pairs that the policy was trained on.
            rng: the source of all random numbers.
        """

    @abstractmethod
    def score(self, weights: W, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return (parts, rows) numbers in float64, high where a pair is unlike the training pairs.

        Args:
            weights: what `fit` returned.
            context: the policy's own models.
            s: normalised observations (rows, size).
            a: normalised actions (rows, size).
        """


def pair_dims(pairs: Dataset) -> Dims:
    """Return the sizes of pairs."""
    return Dims(pairs.obs.shape[-1], pairs.act.shape[-1])


def join(s: Tensor, a: Tensor) -> Tensor:
    """Return x."""
    return torch.cat([s, a], -1)


def choose_rows(rng: Rng, rows: int, most: int) -> Tensor:
    """Return the indices of all rows, or of a random subset of `most` rows, in increasing order."""
    if rows <= most:
        return torch.arange(rows, device=rng.device)
    return rng["rows"].uniform(rows)[0].argsort()[:most].sort().values


def train_model(model: Model[Any], pairs: Dataset, rng: Rng) -> nn.Module:
    """Train a model on pairs with the library's own loop, one member, on one device."""
    obs = pairs.obs
    session = Session(pairs, pair_dims(pairs), {}, obs.device, obs.dtype)
    updates = run_reporting(train_stage(rng.path, model, Stack(rng.seeds, {}), {}, session), lambda progress: None)
    return updates.results()[0].requires_grad_(requires_grad=False)


@final
@dataclass(frozen=True, eq=False)
class FittedScore:
    """A score with its weights."""

    name: str
    """Its name in `SCORES`."""
    settings: PairScore[Any]
    weights: nn.Module

    @classmethod
    def fit(cls, name: str, settings: PairScore[Any], context: Context, pairs: Dataset | None) -> "FittedScore":
        """Fit the score to training pairs."""
        if pairs is None and settings.needs_pairs:
            raise InvalidSettings(
                f"the score {name!r} is fitted to the demonstrations that the policy was trained on. Pass them: "
                "calibrate(…, training=demos)."
            )
        like = context.normaliser.obs_mean
        blank = Dataset(like.new_zeros(0, context.dims.obs), like.new_zeros(0, context.dims.act))
        rng = Rng([SEED], device=like.device, dtype=like.dtype)["monitor"][name]
        return cls(name, settings, settings.fit(context, pairs or blank, rng).requires_grad_(requires_grad=False))

    @classmethod
    def load(
        cls, name: str, settings: PairScore[Any], context: Context, tensors: Mapping[str, Tensor], source: str
    ) -> "FittedScore":
        """Make the score from saved tensors; `source` is named in errors."""
        like = context.normaliser.obs_mean
        with torch.no_grad():
            seen = context.observe(like.new_zeros(1, 1, context.dims.obs))
        dims = replace(context.dims, obs=seen.shape[-1])
        try:
            # Tensors on the device "meta" have a shape and no memory: a wrong size is found before anything is made.
            shapes = settings.init(context, dims, Rng([SEED], dtype=like.dtype, device="meta")["init"]).state_dict()
        except (RuntimeError, MemoryError, OverflowError) as error:
            reason = str(error).split("\n")[0] or "out of memory"
            raise InvalidFile(f"{source}: the networks of the score {name!r} cannot be made ({reason}).") from None
        for key, value in shapes.items():
            found = tensors.get(key)
            if found is None or found.shape[1:] != value.shape[1:] or found.dim() != value.dim() or not len(found):
                shape = "none" if found is None else tuple(found.shape)
                raise InvalidFile(f"{source}: the settings require {name}.{key} {tuple(value.shape)}; it has {shape}.")
        weights = settings.init(context, dims, Rng([SEED], dtype=like.dtype)["init"])
        for key, value in weights.state_dict(keep_vars=True).items():
            value.data = tensors[key].to(value.dtype)
        return cls(name, settings, weights.to(like.device).requires_grad_(requires_grad=False))

    def score(self, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return (parts, rows) numbers for normalised pairs."""
        return self.settings.score(self.weights, context, s, a)
