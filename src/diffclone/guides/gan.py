"""A discriminator trained alongside the policy: the cost of a pair is low if it looks like the expert's.

L_D        = −log D(s, a) − log(1 − D(s, π(s)))
cost(s, a) = −log D(s, a)
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch.nn.functional import softplus

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Default, Dims, Guide, Losses, Parts, Training
from diffclone.nn import MLP, Network
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Costs, Obs


@final
@dataclass(frozen=True)
class GANGuide(Guide[MLP]):
    """The paper's adversarial guide: a discriminator D of the expert's and the policy's pairs. The cost is −log D.

    It is trained on the policy's batches for as long as the policy is, so that `updates` and `batch` of its own
    `training` are not used.
    """

    update_factor: ClassVar[int] = 2
    training: Training = Training(updates=20_000, lr=5e-5, decay="constant")
    """How the guide is trained."""
    width: int = Default(256)
    """Units of a hidden layer."""
    depth: int = 2
    """Hidden layers."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.depth < 1 or self.width < 1:
            raise InvalidSettings(f"depth and width must be at least 1; they are {self.depth}, {self.width}.")

    @property
    def trained(self) -> Literal["before", "alongside"]:
        """It learns to distinguish the current policy's actions from the expert's."""
        return "alongside"

    def init(self, dims: Dims, rng: Rng) -> MLP:
        """Return the network of D's logit."""
        network = Network(width=self.width, depth=self.depth, activation="relu", init="default")
        return MLP(dims.obs + dims.act, 1, network, rng)

    def loss(self, weights: MLP, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_D."""
        if batch.imitated is None:
            raise InvalidSettings("a GAN guide learns from a policy's actions; it cannot be trained without a policy.")
        expert = self.cost(weights, batch.obs, batch.act, None)
        imitated = softplus(logit(weights, batch.obs, batch.imitated))  # −log(1 − D)
        total = (expert + imitated).mean(-1)
        return Losses(total, {"L_D": total, "D_expert": (-expert).exp().mean(-1)})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> None:
        """Return None: a discriminator needs no random numbers."""

    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None) -> Costs:
        """Return −log D."""
        return softplus(-logit(weights, obs, act))


def logit(weights: MLP, obs: Obs, act: Act) -> Costs:
    """Return the logit of D."""
    return weights(torch.cat([obs, act], -1)).squeeze(-1)
