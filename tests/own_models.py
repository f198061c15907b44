"""A method and a guide as a user writes them, outside of the package and in no registry.

L     = Huber(π(s), a) + w · cost(s, π(s))
cost  = ‖x̂(x) − x‖²,   x = (s, a)                   x̂ is a network with few hidden units
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch.nn.functional import smooth_l1_loss

from diffclone.model import Batch, Dims, Guide, Losses, Method, Model, Parts, Training, stackable
from diffclone.nn import MLP, Network, PolicyNet, policy_net
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs, Scalar


@final
@dataclass(frozen=True)
class Reconstruction(Guide[MLP]):
    """An autoencoder of state-action pairs: its error is small for pairs like those of the expert."""

    training: Training = Training(updates=500, lr=1e-3)
    width: int = 3
    """Hidden units."""

    def init(self, dims: Dims, rng: Rng) -> MLP:
        """Make the weights of x̂."""
        return MLP(dims.obs + dims.act, dims.obs + dims.act, Network(self.width, 1), rng)

    def loss(self, weights: MLP, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return the mean cost of the expert's pairs."""
        cost = self.cost(weights, batch.obs, batch.act, None).mean(-1)
        return Losses(cost, {"L_reconstruction": cost})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> None:
        """Draw nothing: the cost has no randomness."""

    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None) -> Costs:
        """Return ‖x̂(x) − x‖² of each pair."""
        x = torch.cat([obs.expand(*act.shape[:-1], -1), act], -1)
        return (weights(x) - x).square().mean(-1)


@final
@dataclass(frozen=True)
class Robust(Method[PolicyNet]):
    """Behavioural cloning with the Huber loss, and a guide."""

    training: Training = Training(updates=500, lr=1e-3)
    network: Network = Network(width=16, depth=1)
    weight: Scalar = stackable(0.1)
    """The weight of the guide's cost."""
    guide: Guide[Any] = Reconstruction()

    def needs(self) -> Mapping[str, Model[Any]]:
        """Name the guide, which is trained first."""
        return {"guide": self.guide}

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        """Make the weights of π."""
        return policy_net(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L."""
        act = weights(batch.obs)
        huber = smooth_l1_loss(act, batch.act.expand_as(act), reduction="none").mean((-2, -1))
        draw = self.guide.draw(act.shape[-2], Dims(batch.obs.shape[-1], act.shape[-1]), rng["guide"])
        cost = self.guide.cost(cast(MLP, parts["guide"]), batch.obs, act, draw).mean(-1)
        return Losses(huber + self.weight * cost, {"L_Huber": huber, "L_cost": cost}, imitated=act)

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        """Return π(s)."""
        return weights(obs)
