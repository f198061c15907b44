"""The latent of a flow-matching model of pairs, as in FAIL-Detect (Xu et al. 2025), there called logpZO.

x     = [s, a],   z ~ N(0, I),   t ~ U{0, 1/T, …, 1}
x_t   = (1 − t) z + t x
L     = E mean over dimensions of (v(x_t, t) − (x − z))²              over training pairs
ẑ     = the latent of x: Euler steps of dx_t/dt = v(x_t, t) from t = 1 to t = 0
score = ‖ẑ‖² / D                                                      −2 log p(ẑ) / D, without its constant

With one step ẑ = x − v(x, 1). For training pairs v(x, 1) is close to x, since z is independent of x, so ẑ is close to
0; elsewhere v is wrong.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from diffclone.deploy.monitors.base import Context, PairScore, join, train_model
from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Model, Parts, Training
from diffclone.nn import Denoiser
from diffclone.rng import Rng
from diffclone.training.step import Dataset

STEPS = 100
"""T, intervals of t."""


@final
@dataclass(frozen=True)
class Flow(Model[Denoiser]):
    """The training of v."""

    width: int = 128
    depth: int = 3

    def init(self, dims: Dims, rng: Rng) -> Denoiser:
        """Return v. Its input t is an integer from 0 to T."""
        return Denoiser(dims.obs + dims.act, STEPS + 1, self.width, self.depth, "sinusoidal", rng)

    def loss(self, weights: Denoiser, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L."""
        x = join(batch.obs, batch.act)
        z, k = rng["latent"].normal(*x.shape[-2:]), rng["t"].integers(STEPS + 1, x.shape[-2])
        t = (k.to(x.dtype) / STEPS)[..., None]
        v = weights((1 - t) * z + t * x, k)
        return Losses((v - (x - z)).square().mean((-1, -2)))


@final
@dataclass(frozen=True)
class LogpZOScore(PairScore[Denoiser]):
    """The squared norm of a pair's latent."""

    training: Training = Training(updates=3000, lr=1e-3, clip=None)
    """How the network of the score is trained."""
    width: int = 128
    """Units of a hidden layer of v."""
    depth: int = 3
    """Hidden layers of v."""
    calls: int = 1
    """Euler steps from a pair to its latent."""

    def __post_init__(self) -> None:
        if not 1 <= self.calls <= STEPS:
            raise InvalidSettings(f"calls must be from 1 to {STEPS}; it is {self.calls}.")

    @property
    def model(self) -> Flow:
        """The model that is trained."""
        return Flow(self.training, self.width, self.depth)

    def init(self, context: Context, dims: Dims, rng: Rng) -> Denoiser:
        """Return a network that is not trained."""
        return self.model.init(dims, rng)

    def fit(self, context: Context, pairs: Dataset, rng: Rng) -> Denoiser:
        """Train v, the velocity of the flow, on training pairs."""
        trained = train_model(self.model, pairs, rng)
        assert isinstance(trained, Denoiser)
        return trained

    def score(self, weights: Denoiser, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return the squared norm of ẑ per dimension."""
        x = join(s, a)[None]
        for n in range(self.calls):
            k = torch.tensor([[round(STEPS * (1 - n / self.calls))]], device=x.device)
            x = x - weights.denoise(x, weights.embed(k)) / self.calls
        return x.double().square().mean(-1)
