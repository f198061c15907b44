"""Behavioural cloning.

L_BC = E ‖π(s) − a‖²          mean over the batch and the action's dimensions
"""

from dataclasses import dataclass
from typing import ClassVar, final

from diffclone.model import Batch, Dims, Losses, Method, Parts, Training
from diffclone.nn import Network, PolicyNet, policy_net
from diffclone.rng import Rng
from diffclone.shapes import Act, Obs, Scalars


@final
@dataclass(frozen=True)
class BC(Method[PolicyNet]):
    """Regression of the expert's action on the state."""

    update_factor: ClassVar[int] = 1
    training: Training = Training(updates=20_000, lr=5e-4, eps=1e-12)
    network: Network = Network()
    """The network of π."""

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        """Return the weights of π."""
        return policy_net(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_BC."""
        act = weights(batch.obs)
        bc = imitation_loss(act, batch.act)
        return Losses(bc, {"L_BC": bc}, imitated=act)

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        """Return π(s)."""
        return weights(obs)


def imitation_loss(act: Act, expert_act: Act) -> Scalars:
    """Return L_BC, one number per member."""
    return (act - expert_act).square().mean((-2, -1))
