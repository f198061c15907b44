"""Write your own guide: a model whose cost is low for pairs like the expert's. Here, the distance to a prototype.

python examples/own_guide.py
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from diffclone import DBC, Demonstrations, Guide, Network, Training, fit
from diffclone.model import Batch, Dims, Losses, Parts
from diffclone.rng import Rng


class Prototypes(nn.Module):
    """Pairs that represent the demonstrations, (members, count, size)."""

    def __init__(self, pairs: Tensor):
        super().__init__()
        self.pairs = nn.Parameter(pairs)

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Return the squared distance to the nearest prototype, one number per pair."""
        return torch.cdist(torch.cat([obs, act], -1), self.pairs).amin(-1).square()


@final
@dataclass(frozen=True)
class NearestGuide(Guide[Prototypes]):
    """Moves prototypes to the expert's pairs, like k-means."""

    training: Training = Training(updates=500, lr=1e-2)
    count: int = 64

    def init(self, dims: Dims, rng: Rng) -> Prototypes:
        return Prototypes(rng.normal(self.count, dims.obs + dims.act))

    def loss(self, weights: Prototypes, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Losses(weights(batch.obs, batch.act).mean(-1))

    def draw(self, batch: int, dims: Dims, rng: Rng) -> Any:
        return None  # a distance needs no random numbers

    def cost(self, weights: Prototypes, obs: Tensor, act: Tensor, draw: Any) -> Tensor:
        return weights(obs, act)


rng = np.random.default_rng(0)
obs = rng.uniform(-1, 1, (2000, 3))
act = np.tanh(obs @ rng.normal(size=(3, 2)))
demos = Demonstrations.from_arrays(obs, act, episode_ends=np.arange(100, 2001, 100))
method = DBC(guide=NearestGuide(), training=Training(updates=1000, lr=1e-3), network=Network(width=64, depth=2))
policy = fit(method, demos, seeds=range(3), device="cpu")
print("mean absolute error of three members:", np.abs(policy(obs) - act).mean((1, 2)))
