"""A guide with its trained weights, which scores pairs of observations and actions in raw units."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Normaliser
from diffclone.data.layout import native
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings
from diffclone.model import Dims, Guide, Model, Parts, bind_cost, init_parts
from diffclone.rng import Rng
from diffclone.training.members import select_members

BATCH = 256
"""Pairs scored at once."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class TrainedGuide:
    """The guide of a policy: its settings and the weights of one or several members."""

    method: Model[Any]
    """The method that needs the guide. It defines which observations the guide receives."""
    normaliser: Normaliser
    """Normalises the pairs that are scored."""
    load: Callable[[], Parts]
    """Returns the weights of the method's parts. It is called when they are first used."""

    @property
    def guide(self) -> Guide[Any]:
        """The settings of the guide."""
        guide = self.method.needs().get("guide")
        if not isinstance(guide, Guide):
            raise InvalidSettings(f"{type(self.method).__name__} has no guide.")
        return guide

    @cached_property
    def parts(self) -> Parts:
        """The weights of the guide and of the other parts of the method, by name."""
        like = self.normaliser.obs_mean
        return {name: net.to(like.device, like.dtype) for name, net in self.load().items()}

    @property
    def weights(self) -> nn.Module:
        """The weights of the guide itself."""
        return self.parts["guide"]

    def __len__(self) -> int:
        """Return the number of members that have a guide of their own; one guide may serve all members."""
        return max(next(net.parameters()).shape[0] for net in self.parts.values())

    def choose(self, members: Sequence[int]) -> "TrainedGuide":
        """Return the guide of some members."""
        return replace(self, load=lambda: {name: select_members(net, members) for name, net in self.parts.items()})

    def to(self, normaliser: Normaliser) -> "TrainedGuide":
        """Return the guide with a normaliser on another device, and its weights there."""
        return replace(self, normaliser=normaliser, load=lambda: copy.deepcopy(dict(self.parts)))

    def observe(self, obs: Tensor) -> Tensor:
        """Return what the guide receives for normalised observations: features, if the method has an encoder."""
        return self.method.part_obs("guide", obs, self.parts)

    def batches(self, obs: npt.ArrayLike, act: npt.ArrayLike) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield one pair (size), (size) or a batch (batch, size), (batch, size) in raw units as the guide receives it.

        Both tensors are (members, rows, size), with at most 256 rows.
        """
        s, a, like = native(obs), native(act), self.normaliser.obs_mean
        sizes = (len(like), len(self.normaliser.act_mean))
        if s.ndim not in (1, 2) or s.shape[:-1] != a.shape[:-1] or (s.shape[-1], a.shape[-1]) != sizes:
            raise InvalidData(
                f"the observation has shape {s.shape} and the action {a.shape}; this guide expects ({sizes[0]},) and "
                f"({sizes[1]},), or batches of equal length."
            )
        for s_rows, a_rows in zip(*(torch.tensor(np.atleast_2d(x)).split(BATCH) for x in (s, a)), strict=True):
            f = self.observe(self.normaliser.normalise_obs(s_rows.to(like)).expand(len(self), -1, -1))
            yield f, self.normaliser.normalise_act(a_rows.to(like)).expand(len(self), -1, -1)

    @torch.no_grad()
    def cost(self, obs: npt.ArrayLike, act: npt.ArrayLike, *, draws: int = 1, seed: int = 0) -> npt.NDArray[np.float64]:
        """Return the cost of one pair (size), (size) or of a batch (batch, size), (batch, size), in raw units.

        Several members return one row each. The random numbers of the guide depend on the seed and on the row in the
        batch only, so that equal calls return equal costs.

        Args:
            obs: raw observations.
            act: raw actions.
            draws: costs with different random numbers that are averaged.
            seed: the seed of the random numbers.
        """
        like, members, cost = self.normaliser.obs_mean, len(self), bind_cost(self.guide, "guide", self.parts)
        rng = Rng([seed] * members, device=like.device, dtype=like.dtype, path="cost")
        costs: list[Tensor] = []
        for k, (f, a) in enumerate(self.batches(obs, act)):
            dims, streams = Dims(f.shape[-1], a.shape[-1]), [rng[f"{k * BATCH} {draw}"] for draw in range(draws)]
            scores = [cost(f, a, self.guide.draw(a.shape[-2], dims, stream)).double() for stream in streams]
            costs.append(torch.stack(scores).mean(0))
        shape = np.shape(obs)[:-1]
        return torch.cat(costs, -1).cpu().numpy().reshape(shape if members == 1 else (members, *shape))

    def __repr__(self) -> str:
        sizes = f"obs {len(self.normaliser.obs_mean)}, act {len(self.normaliser.act_mean)}"
        return f"TrainedGuide({type(self.guide).__name__}, {sizes})"


def parts_from_tensors(
    method: Model[Any], dims: Dims, tensors: Mapping[str, Mapping[str, Tensor]], source: str
) -> dict[str, nn.Module]:
    """Make the parts of a method from saved tensors, by part and by name; `source` is named in errors."""
    # Tensors on the device "meta" have a shape and no memory: a wrong size is found before anything is made.
    for name, net in init_parts(method, dims, Rng([0], device="meta")).items():
        found = tensors.get(name, {})
        for key, value in net.state_dict().items():
            if key not in found or found[key].shape[1:] != value.shape[1:]:
                shape = tuple(found[key].shape) if key in found else "none"
                raise InvalidFile(f"{source}: the settings require {name}.{key} {tuple(value.shape)}; it has {shape}.")
    parts = init_parts(method, dims, Rng([0]))
    for name, net in parts.items():
        for key, value in net.state_dict(keep_vars=True).items():
            value.data = tensors[name][key]
        net.requires_grad_(requires_grad=False)
    return parts
