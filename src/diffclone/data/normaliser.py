"""The affine map between raw numbers and the normalised numbers that models work with.

    z(x)   = clip((x − mean) / std, ±limit)     observations
    z⁻¹(y) = y · std + mean                     actions

    box    = the expert's range of actions, 5 % wider on each side, within the action bounds of the environment

A dimension that is constant in the demonstrations carries no information: its z is 0, and its inverse is the mean.
All pixels of an image share one mean and one std. `Normaliser.robust` divides observations that hardly vary by more
than their std (`robust.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.robust import raise_small
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidData
from diffclone.shapes import Seen

LIMIT = 10.0
"""Standard deviations to which observations are clipped."""
CHUNK = 1_000_000
"""Numbers that are processed at once."""
MARGIN = 0.05
"""Width that the box adds on each side, as a fraction of the expert's range of actions."""


@final
@dataclass(frozen=True, eq=False)
class Normaliser:
    """Means and standard deviations of observations and actions."""

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor
    act_low: Tensor
    """Bounds of the box in raw units: methods search for actions between them."""
    act_high: Tensor
    obs_limit: Tensor = field(default_factory=lambda: torch.tensor(LIMIT))
    """Normalised observations are clipped to ± this."""

    @classmethod
    def from_demonstrations(cls, demos: Demonstrations) -> "Normaliser":
        """Return the statistics of demonstrations (standard deviations with n − 1, as in the released code)."""
        images, size = demos.obs.dtype == np.uint8, demos.obs.shape[1]
        mean, std = _statistics(demos.obs.reshape(-1, 1) if images else demos.obs)
        act = (*_statistics(demos.act), *_box(demos))
        return cls(mean.expand(size).contiguous(), std.expand(size).contiguous(), *act)

    @classmethod
    def robust(cls, demos: Demonstrations) -> "Normaliser":
        """Return the statistics of demonstrations, with raised scales of observations that hardly vary."""
        normaliser = cls.from_demonstrations(demos)
        if demos.obs.dtype == np.uint8:  # all pixels have the same scale
            return normaliser
        scales = torch.tensor(raise_small(normaliser.obs_std.double().numpy())).float()
        return replace(normaliser, obs_std=scales)

    @classmethod
    def identity(cls, demos: Demonstrations) -> "Normaliser":
        """Return a normaliser that changes no number."""
        obs, act = demos.obs.shape[1], demos.act.shape[1]
        unchanged = (torch.zeros(obs), torch.ones(obs), torch.zeros(act), torch.ones(act))
        return cls(*unchanged, *_box(demos), torch.tensor(float("inf")))

    @property
    def box(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lowest and highest normalised action of the box."""
        low, high = (self.normalise_act(edge).tolist() for edge in (self.act_low, self.act_high))
        return tuple(low), tuple(high)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Normaliser":
        """Return the normaliser on another device or in another precision."""
        return type(self)(*(t.to(device, dtype) for t in self.tensors().values()))

    def windows(self, chunks: Chunks) -> "Normaliser":
        """Return the normaliser of a call's window of observations and of its chunk of actions, each in one row."""
        repeats = {"obs": chunks.history, "act": chunks.horizon}
        tiled = {name: t.repeat(repeats[name[:3]]) for name, t in self.tensors().items() if name != "obs_limit"}
        return replace(self, **tiled) if chunks.has_memory else self

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name, as they are saved."""
        return {
            "obs_mean": self.obs_mean,
            "obs_std": self.obs_std,
            "act_mean": self.act_mean,
            "act_std": self.act_std,
            "act_low": self.act_low,
            "act_high": self.act_high,
            "obs_limit": self.obs_limit,
        }

    def normalise_obs(self, obs: Tensor) -> Tensor:
        """Normalise raw observations."""
        if obs.shape[-1] != len(self.obs_mean):
            raise InvalidData(
                f"observations have {obs.shape[-1]} numbers; the policy was trained on {len(self.obs_mean)}."
            )
        return _z(obs, self.obs_mean, self.obs_std).clamp(-self.obs_limit, self.obs_limit)

    def normalise_act(self, act: Tensor) -> Tensor:
        """Normalise raw actions. They are not clipped, since they are training targets."""
        return _z(act, self.act_mean, self.act_std)

    def restore_act(self, act: Tensor) -> Tensor:
        """Return raw actions."""
        return act * self.act_std + self.act_mean


def _box(demos: Demonstrations) -> tuple[Tensor, Tensor]:
    low, high = demos.act.min(0), demos.act.max(0)
    wider_low, wider_high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    if (allowed := demos.action_range) is not None:
        wider_low, wider_high = np.maximum(wider_low, allowed[0]), np.minimum(wider_high, allowed[1])
    return torch.tensor(wider_low), torch.tensor(wider_high)


def _z(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return torch.where(std > 0, (x - mean) / std.where(std > 0, torch.ones_like(std)), 0.0)


def split_rows(values: Seen) -> Iterator[Seen]:
    """Yield chunks of rows, so that temporary copies of them stay small."""
    rows = max(1, CHUNK // values.shape[1])
    for begin in range(0, len(values), rows):
        yield values[begin : begin + rows]


def _statistics(values: Seen) -> tuple[Tensor, Tensor]:
    chunks = partial(map, partial(torch.tensor, dtype=torch.float64))
    mean = sum((x.sum(0) for x in chunks(split_rows(values))), torch.zeros(1)) / len(values)
    squares = sum(((x - mean).square().sum(0) for x in chunks(split_rows(values))), torch.zeros(1))
    std = (squares / max(1, len(values) - 1)).sqrt()
    # Rounding gives a constant column a standard deviation of about 1e-17 of its size; it counts as 0.
    std = torch.where(std > 1e-7 * mean.abs().clamp(min=1e-7), std, torch.zeros_like(std))
    return mean.float(), std.float()
