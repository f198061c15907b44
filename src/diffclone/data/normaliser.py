"""The affine map between the world's numbers and the models' numbers.

    z(x)  = clamp((x − mean) / std, ±limit)     states
    z⁻¹(y) = y · std + mean                     actions

    box    = the expert's range of actions, 5 % wider on each side, where the environment lets it

A dimension that never varies in the demonstrations carries no information: its z is 0, and its inverse is the mean.
The pixels of pictures share one mean and one std: a grey means the same wherever it is seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from diffclone.data.demonstrations import Demonstrations
from diffclone.errors import InvalidData
from diffclone.shapes import Seen

LIMIT = 10.0
"""Standard deviations after which a state is no stranger than another."""
PART = 1_000_000
"""Numbers that are looked at together."""
MARGIN = 0.05
"""Of the expert's range of actions, by which the box is wider than it on each side."""


@final
@dataclass(frozen=True, eq=False)
class Normaliser:
    """Means and standard deviations of observations and actions."""

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor
    act_low: Tensor
    """The box: where actions are looked for, in the world's numbers."""
    act_high: Tensor
    obs_limit: Tensor = field(default_factory=lambda: torch.tensor(LIMIT))
    """A state's z lies within ± this."""

    @classmethod
    def from_demonstrations(cls, demos: Demonstrations) -> "Normaliser":
        """The statistics of these demonstrations (standard deviations with n − 1, as the released code)."""
        pictures, size = demos.obs.dtype == np.uint8, demos.obs.shape[1]
        mean, std = _statistics(demos.obs.reshape(-1, 1) if pictures else demos.obs)
        act = (*_statistics(demos.act), *_box(demos))
        return cls(mean.expand(size).contiguous(), std.expand(size).contiguous(), *act)

    @classmethod
    def identity(cls, demos: Demonstrations) -> "Normaliser":
        """Leaves numbers as they are."""
        obs, act = demos.obs.shape[1], demos.act.shape[1]
        unchanged = (torch.zeros(obs), torch.ones(obs), torch.zeros(act), torch.ones(act))
        return cls(*unchanged, *_box(demos), torch.tensor(float("inf")))

    @property
    def box(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lowest and highest action, normalised."""
        low, high = (self.normalise_act(edge).tolist() for edge in (self.act_low, self.act_high))
        return tuple(low), tuple(high)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Normaliser":
        """The same on another device or in another precision."""
        return type(self)(*(t.to(device, dtype) for t in self.tensors().values()))

    def tensors(self) -> dict[str, Tensor]:
        """By name, as they are saved."""
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
        """World to model."""
        if obs.shape[-1] != len(self.obs_mean):
            raise InvalidData(
                f"observations have {obs.shape[-1]} numbers; the policy was trained on {len(self.obs_mean)}."
            )
        return _z(obs, self.obs_mean, self.obs_std).clamp(-self.obs_limit, self.obs_limit)

    def normalise_act(self, act: Tensor) -> Tensor:
        """World to model, without a limit: a target must stay reachable."""
        return _z(act, self.act_mean, self.act_std)

    def restore_act(self, act: Tensor) -> Tensor:
        """Model to world."""
        return act * self.act_std + self.act_mean


def _box(demos: Demonstrations) -> tuple[Tensor, Tensor]:
    low, high = demos.act.min(0), demos.act.max(0)
    wider_low, wider_high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    if (allowed := demos.action_range) is not None:
        wider_low, wider_high = np.maximum(wider_low, allowed[0]), np.minimum(wider_high, allowed[1])
    return torch.tensor(wider_low), torch.tensor(wider_high)


def _z(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return torch.where(std > 0, (x - mean) / std.where(std > 0, torch.ones_like(std)), 0.0)


def in_parts(values: Seen) -> Iterator[Seen]:
    """Some rows after others: what is made of them on the way is small, however many there are."""
    rows = max(1, PART // values.shape[1])
    for begin in range(0, len(values), rows):
        yield values[begin : begin + rows]


def _statistics(values: Seen) -> tuple[Tensor, Tensor]:
    parts = partial(map, partial(torch.tensor, dtype=torch.float64))
    mean = sum((x.sum(0) for x in parts(in_parts(values))), torch.zeros(1)) / len(values)
    squares = sum(((x - mean).square().sum(0) for x in parts(in_parts(values))), torch.zeros(1))
    std = (squares / max(1, len(values) - 1)).sqrt()
    # Rounding leaves a constant column with a spread of about 1e-17 of its size: that is no spread.
    std = torch.where(std > 1e-7 * mean.abs().clamp(min=1e-7), std, torch.zeros_like(std))
    return mean.float(), std.float()
