"""The affine map between the world's numbers and the models' numbers.

    z(x)  = clamp((x − mean) / std, ±limit)     states and the guide's inputs
    z⁻¹(y) = y · std + mean                     actions

A dimension that never varies in the demonstrations carries no information: its z is 0, and its inverse is the mean.
The pixels of pictures share one mean and one std: a grey means the same wherever it is seen.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from diffclone.data.demonstrations import Demonstrations
from diffclone.errors import InvalidData

LIMIT = 10.0
"""Standard deviations after which a state is no stranger than another."""


@final
@dataclass(frozen=True, eq=False)
class Normaliser:
    """Means and standard deviations of observations and actions."""

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor
    obs_limit: Tensor = field(default_factory=lambda: torch.tensor(LIMIT))
    """A state's z lies within ± this."""

    @classmethod
    def from_demonstrations(cls, demos: Demonstrations) -> "Normaliser":
        """The statistics of these demonstrations (standard deviations with n − 1, as the released code)."""
        pictures, size = demos.obs.dtype == np.uint8, demos.obs.shape[1]
        mean, std = _statistics(demos.obs.reshape(-1, 1) if pictures else demos.obs)
        return cls(mean.expand(size).contiguous(), std.expand(size).contiguous(), *_statistics(demos.act))

    @classmethod
    def identity(cls, obs: int, act: int) -> "Normaliser":
        """Leaves numbers as they are."""
        unchanged = (torch.zeros(obs), torch.ones(obs), torch.zeros(act), torch.ones(act))
        return cls(*unchanged, torch.tensor(float("inf")))

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


def _z(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return torch.where(std > 0, (x - mean) / std.where(std > 0, torch.ones_like(std)), 0.0)


def _statistics(values: object) -> tuple[Tensor, Tensor]:
    x = torch.tensor(values, dtype=torch.float64)
    mean, std = x.mean(0), x.std(0) if len(x) > 1 else torch.zeros_like(x[0])
    # Rounding leaves a constant column with a spread of about 1e-17 of its size: that is no spread.
    std = torch.where(std > 1e-7 * mean.abs().clamp(min=1e-7), std, torch.zeros_like(std))
    return mean.float(), std.float()
