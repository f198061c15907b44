"""The affine map between raw numbers and the normalised numbers that models work with.

    z(x)   = clip((x − mean) / std, ±limit)     observations
    z⁻¹(y) = y · std + mean                     actions

    box    = the expert's range of actions, 5 % wider on each side, within the action bounds of the environment

A dimension that is constant in the demonstrations carries no information: its z is 0, and its inverse is the mean.
All pixels of images share one mean and one std. Of images with numbers, pixels are divided by 255, and the numbers are
normalised as above. `Normaliser.robust` divides observations that hardly vary by more
than their std (`robust.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from diffclone.data.layout import Layout
from diffclone.data.moments import Moments
from diffclone.data.robust import LIMIT as ROBUST_LIMIT
from diffclone.data.robust import raise_small
from diffclone.data.streamed import AnyDemonstrations, Streamed
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidData
from diffclone.shapes import Seen

LIMIT = 10.0
"""Standard deviations to which observations are clipped."""
CHUNK = 1_000_000
"""Numbers that are processed at once."""
PIXEL_SCALE = 255.0
"""Pixels of images with numbers are divided by this."""
MARGIN = 0.05
"""Width that the box adds on each side, as a fraction of the expert's range of actions."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Normaliser:
    """Means and standard deviations of observations and actions."""

    obs_mean: Tensor
    """(observation size): mean of each number of an observation, in raw units."""
    obs_std: Tensor
    """(observation size): standard deviation; 0 where the number never varies."""
    act_mean: Tensor
    """(action size): mean of each number of an action, in raw units."""
    act_std: Tensor
    """(action size): standard deviation; 0 where the number never varies."""
    act_low: Tensor
    """(action size): lowest action of the box in raw units. Methods search for actions inside the box."""
    act_high: Tensor
    """(action size): highest action of the box in raw units."""
    obs_limit: Tensor = field(default_factory=lambda: torch.tensor(LIMIT))
    """Normalised observations are clipped to ± this number of standard deviations."""

    @classmethod
    def from_demonstrations(cls, demos: AnyDemonstrations) -> "Normaliser":
        """Return the statistics of demonstrations (standard deviations with n − 1, as in the released code)."""
        images, layout, size = demos.obs.dtype == np.uint8, demos.layout, demos.obs_size
        if isinstance(demos, Streamed):
            found = demos.summary
            (mean, std), act = _scales(found.obs.pool() if images else found.obs), (*_scales(found.act), *_box(demos))
            return cls(mean.expand(size).contiguous(), std.expand(size).contiguous(), *act)
        act = (*_statistics(demos.act), *_box(demos))
        if layout is not None:
            return cls(*_add_pixels(layout, *_statistics(layout.numbers_of(demos.obs))), *act)
        mean, std = _statistics(demos.obs.reshape(-1, 1) if images else demos.obs)
        return cls(mean.expand(size).contiguous(), std.expand(size).contiguous(), *act)

    @classmethod
    def robust(cls, demos: AnyDemonstrations) -> "Normaliser":
        """Return the statistics with raised scales of observations that hardly vary, and a lower limit of all."""
        normaliser = cls.from_demonstrations(demos)
        if demos.obs.dtype == np.uint8 and demos.layout is None:  # all pixels have the same scale
            return normaliser
        pixels = 0 if demos.layout is None else demos.layout.pixels
        scales = torch.tensor(raise_small(normaliser.obs_std[pixels:].double().numpy())).float()
        limit = torch.tensor(ROBUST_LIMIT)
        return replace(normaliser, obs_std=torch.cat([normaliser.obs_std[:pixels], scales]), obs_limit=limit)

    @classmethod
    def identity(cls, demos: AnyDemonstrations) -> "Normaliser":
        """Return a normaliser that changes no number. Pixels of images with numbers are divided by 255."""
        layout, act = demos.layout, demos.act.shape[1]
        count = demos.obs_size if layout is None else layout.numbers
        obs = (torch.zeros(count), torch.ones(count))
        obs = obs if layout is None else _add_pixels(layout, *obs)
        return cls(*obs, torch.zeros(act), torch.ones(act), *_box(demos), torch.tensor(float("inf")))

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

    def normalise_stored(self, stored: Tensor, layout: Layout | None) -> Tensor:
        """Normalise observations as demonstrations store them: bytes of images, or of images with numbers."""
        dtype = self.obs_mean.dtype
        if layout is None:
            return self.normalise_obs(stored.to(dtype))
        numbers = stored[..., layout.pixels :].contiguous().view(torch.float32)
        return self.normalise_obs(torch.cat([stored[..., : layout.pixels].to(dtype), numbers.to(dtype)], -1))

    def normalise_act(self, act: Tensor) -> Tensor:
        """Normalise raw actions. They are not clipped, since they are training targets."""
        return _z(act, self.act_mean, self.act_std)

    def restore_act(self, act: Tensor) -> Tensor:
        """Return raw actions."""
        return act * self.act_std + self.act_mean

    def __repr__(self) -> str:
        limit = f"clipped to ±{float(self.obs_limit):g} standard deviations"
        return f"Normaliser(obs {len(self.obs_mean)}, act {len(self.act_mean)}, {limit})"


def _box(demos: AnyDemonstrations) -> tuple[Tensor, Tensor]:
    if isinstance(demos, Streamed):
        low, high = (edge.astype(np.float32) for edge in (demos.summary.act.low, demos.summary.act.high))
    else:
        low, high = demos.act.min(0), demos.act.max(0)
    wider_low, wider_high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    if (allowed := demos.action_range) is not None:
        wider_low, wider_high = np.maximum(wider_low, allowed[0]), np.minimum(wider_high, allowed[1])
    return torch.tensor(wider_low), torch.tensor(wider_high)


def _add_pixels(layout: Layout, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means and standard deviations of numbers after those of pixels, which divide by 255."""
    pixels = torch.zeros(layout.pixels)
    return torch.cat([pixels, mean]), torch.cat([pixels + PIXEL_SCALE, std])


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
    return _to_scales(mean, squares, len(values))


def _scales(moments: Moments) -> tuple[Tensor, Tensor]:
    return _to_scales(torch.tensor(moments.mean), torch.tensor(moments.squares), moments.count)


def _to_scales(mean: Tensor, squares: Tensor, count: int) -> tuple[Tensor, Tensor]:
    std = (squares / max(1, count - 1)).sqrt()
    # Rounding gives a constant column a standard deviation of about 1e-17 of its size; it counts as 0.
    std = torch.where(std > 1e-7 * mean.abs().clamp(min=1e-7), std, torch.zeros_like(std))
    return mean.float(), std.float()
