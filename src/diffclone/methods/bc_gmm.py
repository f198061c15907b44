"""Behavioural cloning with a mixture of Gaussians, as in robomimic (Mandlekar et al. 2021, arXiv 2108.03298).

p(a | s) = Σ_k w_k(s) N(a; μ_k(s), diag σ_k(s)²)      w = softmax,   σ = softplus + min_std,   k = 1 … K
L_NLL    = −E log p(a | s)
π(s)     = μ_k(s) + 10⁻⁴ z,   k ~ w(s),   z ~ N(0, I)     low noise; otherwise σ_k(s) z
"""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.methods.bc import add_state_noise, check_state_noise
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import Network, policy_net
from diffclone.rng import Rng
from diffclone.settings import added, check_types
from diffclone.shapes import Act, Obs, Scalar

LOW_NOISE = 1e-4
"""The standard deviation of actions around μ_k with low noise, as in robomimic."""


@final
class MixtureNet(nn.Module):
    """The network of w, μ and σ."""

    def __init__(self, dims: Dims, modes: int, min_std: float, network: Network, rng: Rng):
        super().__init__()
        self.modes, self.min_std = modes, min_std
        self.net = policy_net(dims.obs, modes * (1 + 2 * dims.act), network, rng)

    def forward(self, s: Tensor, dropout: Rng | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return log w, (…, batch, K), and μ and σ, (…, batch, K, action size)."""
        out = self.net(s, dropout)
        logits, rest = out[..., : self.modes], out[..., self.modes :]
        μ, raw = rest.unflatten(-1, (2, self.modes, -1)).unbind(-3)
        return torch.log_softmax(logits, -1), μ, torch.nn.functional.softplus(raw) + self.min_std


@final
@dataclass(frozen=True)
class BCGMM(Method[MixtureNet]):
    """Regression of the expert's distribution of actions, which may have several modes."""

    update_factor: ClassVar[int] = 1
    training: Training = Training(updates=20_000, lr=5e-4)
    """How the policy is trained."""
    network: Network = Network()
    """The network of w, μ and σ."""
    modes: int = 5
    """K, Gaussians in the mixture."""
    min_std: float = 1e-4
    """Lowest σ in training, in standard deviations of the demonstrations."""
    low_noise: bool = acting(True)
    """Whether actions are drawn with a standard deviation of 10⁻⁴ around μ_k instead of σ_k."""
    state_noise: Scalar = added(0.0, stackable=True)
    """The standard deviation of noise added to the states in training, as in `BC`."""

    def __post_init__(self) -> None:
        check_types(self)
        check_state_noise(self.state_noise)
        if self.modes < 1 or not self.min_std > 0:
            raise InvalidSettings(
                f"modes must be at least 1 and min_std above 0; they are {self.modes} and {self.min_std}."
            )

    def init(self, dims: Dims, rng: Rng) -> MixtureNet:
        """Return the weights of w, μ and σ."""
        return MixtureNet(dims, self.modes, self.min_std, self.network, rng)

    def loss(self, weights: MixtureNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_NLL."""
        dropout = None if batch.held_out else rng["dropout"]
        log_w, μ, σ = weights(add_state_noise(batch, self.state_noise, rng), dropout)
        z = (batch.act[..., None, :] - μ) / σ
        log_n = -(z.square() / 2 + σ.log() + math.log(2 * math.pi) / 2)
        log_n = batch.mask(log_n, torch.zeros_like(batch.act)).sum(-1)
        nll = -torch.logsumexp(log_w + log_n, -1).mean(-1)
        return Losses(nll, {"L_NLL": nll})

    def act(self, weights: MixtureNet, obs: Obs, rng: Rng) -> Act:
        """Draw a Gaussian, and an action from it."""
        log_w, μ, σ = weights(obs)
        u = rng["mode"].uniform(obs.shape[-2], 1)
        k = torch.searchsorted(log_w.exp().cumsum(-1), u.contiguous()).clamp(max=self.modes - 1)[..., None]
        z = rng["noise"].normal(obs.shape[-2], μ.shape[-1])
        chosen = torch.take_along_dim(μ, k, -2).squeeze(-2)
        spread = LOW_NOISE if self.low_noise else torch.take_along_dim(σ, k, -2).squeeze(-2)
        return chosen + spread * z
