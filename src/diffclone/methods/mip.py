"""Minimum iterative policy, two regressions and two calls ("Much Ado About Noising", Pan et al., arXiv 2512.01809).

L_first  = E ‖f(s, 0, 0) − a‖² / (1 − σ)²                 mean over the batch and the action's dimensions
L_second = E ‖f(s, a + σ ε, 1) − a‖² / σ²                 ε ~ N(0, I)
L        = L_first + L_second
π(s)     = f(s, a₀, 1),   a₀ = f(s, 0, 0)

The last argument of f says which call it is. As in the released code, a₀ is not scaled by 1 − σ, unlike in the paper.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.methods.bc import imitation_loss
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training, stackable
from diffclone.nn import MLP, Network
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Obs, Scalar, lowest, per_row


@final
class TwoCallNet(nn.Module):
    """The network f."""

    def __init__(self, dims: Dims, network: Network, rng: Rng):
        super().__init__()
        self.act_size = dims.act
        self.mlp = MLP(dims.obs + dims.act + 1, dims.act, network, rng)

    def forward(self, s: Tensor, x: Tensor, which: int, dropout: Rng | None = None) -> Tensor:
        """Return f(s, x, which)."""
        return self.mlp(torch.cat([s, x, torch.full_like(x[..., :1], which)], -1), dropout)


@final
@dataclass(frozen=True)
class MIP(Method[TwoCallNet]):
    """Regression, followed by a correction of its own result."""

    update_factor: ClassVar[int] = 1
    training: Training = Training(updates=20_000, lr=5e-4, ema=0.999)
    """How the policy is trained."""
    network: Network = Network()
    """The network of f."""
    noise: Scalar = stackable(0.1)
    """σ, the standard deviation of the noise on the action in the second regression, in standard deviations of the
    demonstrations. Members of one stack may differ in it."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.network.image is not None:
            raise InvalidSettings(
                f"MIP does not support images; its network.image must be none, and is {self.network.image}."
            )
        highest = float(self.noise.max()) if isinstance(self.noise, Tensor) else self.noise
        if lowest(self.noise) <= 0 or highest >= 1:
            raise InvalidSettings(f"noise must be above 0 and below 1; it is {self.noise}.")

    def init(self, dims: Dims, rng: Rng) -> TwoCallNet:
        """Return the weights of f."""
        return TwoCallNet(dims, self.network, rng)

    def loss(self, weights: TwoCallNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L, and log its terms."""
        s, a, σ = batch.obs, batch.act, self.noise
        dropout = None if batch.held_out else rng["dropout"]
        noisy = a + per_row(σ) * rng["noise"].normal(*a.shape[-2:])
        first = imitation_loss(batch.mask(weights(s, torch.zeros_like(a), 0, dropout)), a) / (1 - σ) ** 2
        second = imitation_loss(batch.mask(weights(s, noisy, 1, dropout)), a) / σ**2
        return Losses(first + second, {"L_first": first, "L_second": second})

    def act(self, weights: TwoCallNet, obs: Obs, rng: Rng) -> Act:
        """Return f(s, a₀, 1)."""
        first = weights(obs, obs.new_zeros(*obs.shape[:-1], weights.act_size), 0)
        return weights(obs, first, 1)
