"""The distance to the nearest training pairs.

x     = [s, w a]                                  w = action_weight, in normalised units
d_i   = ‖x − x_i‖ / √D                            D dimensions: the root mean square difference per dimension
score = the k-th smallest d_i                     over at most `limit` training pairs x_i

A normalised dimension has variance 1 over the training pairs, so a score of 1 is about one standard deviation in every
dimension. The nearest k + 4 pairs are searched with matrix products, which lose digits, and their distances are then
computed from the differences.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from diffclone.deploy.monitors.base import Context, PairScore, choose_rows, join
from diffclone.errors import InvalidSettings
from diffclone.model import Dims
from diffclone.rng import Rng
from diffclone.training.step import Dataset

MORE = 4
"""Candidates beyond k."""


@final
class Neighbours(nn.Module):
    """The training pairs that are kept."""

    x: Tensor
    """(pairs, size)"""

    def __init__(self, x: Tensor):
        super().__init__()
        self.register_buffer("x", x)


@final
@dataclass(frozen=True)
class NearestScore(PairScore[Neighbours]):
    """The distance to the k-th nearest training pair."""

    k: int = 5
    """Which neighbour; one bad demonstration then does not make its surroundings familiar."""
    action_weight: float = 1.0
    """w. With 0 only states are compared."""
    limit: int = 20_000
    """The most pairs that are kept, a random subset. They take 4 · limit · size bytes."""

    def __post_init__(self) -> None:
        if self.k < 1 or self.limit < self.k or not self.action_weight >= 0:
            raise InvalidSettings(
                f"k must be at least 1, limit at least k, and action_weight not negative; they are {self.k}, "
                f"{self.limit} and {self.action_weight:g}."
            )

    def init(self, context: Context, dims: Dims, rng: Rng) -> Neighbours:
        """Return a single pair of zeros."""
        return Neighbours(torch.zeros(1, dims.obs + dims.act, dtype=rng.dtype))

    def fit(self, context: Context, pairs: Dataset, rng: Rng) -> Neighbours:
        """Keep the pairs."""
        rows = choose_rows(rng, len(pairs.obs), self.limit)
        return Neighbours(join(pairs.obs[rows], self.action_weight * pairs.act[rows]))

    def score(self, weights: Neighbours, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return the k-th smallest distance."""
        x, known = join(s, self.action_weight * a), weights.x
        k = min(self.k, len(known))
        # ‖x − x_i‖² − ‖x‖² = ‖x_i‖² − 2 x·x_i has the same order.
        order = torch.addmm(known.square().sum(-1)[None], x, known.T, alpha=-2)
        near = known[order.topk(min(k + MORE, len(known)), largest=False).indices]
        d = (x[:, None, :] - near).double().square().mean(-1).sqrt()
        return d.kthvalue(k, -1).values[None]
