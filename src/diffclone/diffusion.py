"""Denoising diffusion: the equations, once.

β_t   = β_min + (β_max − β_min) · sigmoid(−6 … 6)                    t = 0 … T − 1
ᾱ_t   = Π_{s ≤ t} (1 − β_s)
x_t   = √ᾱ_t · x + √(1 − ᾱ_t) · ε,          ε ~ N(0, I)              noising
L     = mean over dimensions of (ε − ε̂(x_t, t))²                     denoising error
x_t₋₁ = (x_t − β_t / √(1 − ᾱ_t) · ε̂) / √(1 − β_t) + √β_t · z         ancestral step, z ~ N(0, I), none at t = 0
"""

from typing import final

import torch
from torch import Tensor, nn

from diffclone.nn import Denoiser
from diffclone.rng import Rng
from diffclone.shapes import Rows, Steps

BETA_MIN, BETA_MAX = 1e-4, 0.02


def sigmoid_betas(steps: int) -> Tensor:
    """β of the released code, in double precision."""
    return BETA_MIN + (BETA_MAX - BETA_MIN) * torch.sigmoid(torch.linspace(-6, 6, steps, dtype=torch.float64))


@final
class Diffusion(nn.Module):
    """A denoiser and the schedule it was made for."""

    beta: Tensor
    signal: Tensor
    """√ᾱ"""
    noise: Tensor
    """√(1 − ᾱ)"""

    def __init__(self, denoiser: Denoiser, beta: Tensor):
        super().__init__()
        self.denoiser = denoiser
        alpha_bar = torch.cumprod(1 - beta, 0)
        like = next(denoiser.parameters())
        for name, values in {
            "beta": beta,
            "signal": alpha_bar.sqrt(),
            "noise": (1 - alpha_bar).sqrt(),
        }.items():
            self.register_buffer(name, values.to(like), persistent=False)

    def noised(self, x: Rows, t: Steps, eps: Rows) -> Rows:
        """x_t."""
        return self.signal[t][..., None] * x + self.noise[t][..., None] * eps

    def error(self, x: Rows, t: Steps, eps: Rows) -> Tensor:
        """The denoising error, a number a row."""
        return (eps - self.denoiser(self.noised(x, t, eps), t)).square().mean(-1)

    def ancestral_step(self, x_t: Tensor, t: int, eps_hat: Tensor, z: Tensor) -> Tensor:
        """x_{t−1} from x_t and the predicted noise."""
        beta = self.beta[t]
        mean = (x_t - beta / self.noise[t] * eps_hat) / (1 - beta).sqrt()
        return mean + beta.sqrt() * z if t > 0 else mean

    def sample(self, rows: int, size: int, rng: Rng) -> Tensor:
        """Fresh samples, (members, rows, size), from pure noise through every step."""
        with torch.no_grad():
            x = rng["start"].normal(rows, size)
            for t in reversed(range(len(self.beta))):
                eps_hat = self.denoiser(x, torch.full(x.shape[:-1], t, device=x.device))
                x = self.ancestral_step(x, t, eps_hat, rng["noise"].normal(rows, size))
        return x
