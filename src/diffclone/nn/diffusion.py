"""Denoising diffusion: schedule, loss and samplers.

β_t   = (β_min + (β_max − β_min) · sigmoid(−6 … 6)) · 1000 / T       t = 0 … T − 1, at most 0.999
ᾱ_t   = Π_{s ≤ t} (1 − β_s),   ᾱ_{−1} = 1
x_t   = √ᾱ_t · x + √(1 − ᾱ_t) · ε,          ε ~ N(0, I)              add noise
L     = mean over dimensions of (ε − ε̂(x_t, t))²                     denoising error
x̂     = (x_t − √(1 − ᾱ_t) · ε̂) / √ᾱ_t                                predicted clean sample

A network may predict the velocity v instead of ε (Salimans and Ho 2022, arXiv 2202.00512). An error of ε̂ is divided by
√ᾱ_t in x̂, which is less than a hundredth at the last steps; an error of v̂ is not enlarged:
v     = √ᾱ_t · ε − √(1 − ᾱ_t) · x
x̂     = √ᾱ_t · x_t − √(1 − ᾱ_t) · v̂,         ε̂ = √ᾱ_t · v̂ + √(1 − ᾱ_t) · x_t

A step of a sampler, from x_t to a smaller step:
x_t₋₁ = (x_t − β_t / √(1 − ᾱ_t) · ε̂) / √(1 − β_t) + √β_t · z         ancestral, z ~ N(0, I), none at t = 0
x_u   = √ᾱ_u · x̂ + √(1 − ᾱ_u) · ε̂                                    DDIM, any u < t
x_u   = (σ_u / σ_t) x_t − √ᾱ_u (e^{−h} − 1) D                        DPM-Solver++(2M), σ² = 1 − ᾱ
        ℓ_t = log(√ᾱ_t / σ_t),  h = ℓ_u − ℓ_t,  r = (ℓ_t − ℓ_t′) / h
        D = x̂ + (x̂ − x̂′) / 2r                                       with t′, x̂′ of the previous step; D = x̂ without one
"""

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor, nn

from diffclone.nn import Denoiser
from diffclone.rng import Rng
from diffclone.shapes import Rows, Steps

BETA_MIN, BETA_MAX = 1e-4, 0.02

Sampler = Literal["ancestral", "ddim", "dpm-solver++"]
Prediction = Literal["noise", "velocity"]
"""What the network predicts: ε or v."""
Box = tuple[tuple[float, ...], tuple[float, ...]]


def sigmoid_betas(steps: int) -> Tensor:
    """Return β of the released code, in float64. With fewer steps β is larger, so that x_T is still noise."""
    beta = BETA_MIN + (BETA_MAX - BETA_MIN) * torch.sigmoid(torch.linspace(-6, 6, steps, dtype=torch.float64))
    return (beta * 1000 / steps).clamp(max=0.999)


def spaced_steps(steps: int, calls: int) -> list[int]:
    """Return `calls` evenly spaced diffusion steps, from the last one down."""
    return [round(steps * (calls - k) / calls) - 1 for k in range(calls)]


@final
class Diffusion(nn.Module):
    """A denoiser with its noise schedule."""

    beta: Tensor
    signal: Tensor
    """√ᾱ"""
    noise: Tensor
    """√(1 − ᾱ)"""

    low: Tensor
    """Lower bound of samples."""
    high: Tensor
    """Upper bound of samples."""

    def __init__(self, denoiser: Denoiser, beta: Tensor, box: Box | None = None, predicts: Prediction = "noise"):
        super().__init__()
        self.denoiser, self.predicts = denoiser, predicts
        alpha_bar = torch.cumprod(1 - beta, 0)
        low, high = box or (-torch.inf, torch.inf)
        like = next(denoiser.parameters())
        for name, values in {
            "beta": beta,
            "signal": alpha_bar.sqrt(),
            "noise": (1 - alpha_bar).sqrt(),
            "low": torch.tensor(low),
            "high": torch.tensor(high),
        }.items():
            self.register_buffer(name, values.to(like), persistent=False)

    def add_noise(self, x: Rows, t: Steps, eps: Rows) -> Rows:
        """Return x_t."""
        return self.signal[t][..., None] * x + self.noise[t][..., None] * eps

    def denoising_error(self, x: Rows, t: Steps, eps: Rows, condition: Tensor | None = None) -> Tensor:
        """Return the denoising error of each row."""
        return (eps - self.denoise(x, t, eps, condition)).square().mean(-1)

    def denoise(self, x: Rows, t: Steps, eps: Rows, condition: Tensor | None = None) -> Rows:
        """Return what the network predicts at x_t."""
        x_t = self.add_noise(x, t, eps)
        return self.denoiser(x_t if condition is None else torch.cat([x_t, condition], -1), t)

    def target(self, x: Rows, t: Steps, eps: Rows) -> Rows:
        """Return what the network learns to predict at x_t."""
        return eps if self.predicts == "noise" else self.signal[t][..., None] * eps - self.noise[t][..., None] * x

    def score_distillation_error(self, x: Rows, t: Steps, eps: Rows) -> Tensor:
        """Return the denoising error with a gradient that omits the denoiser's Jacobian: √ᾱ_t (ε̂ − ε) · 2 / size."""
        x_t = self.add_noise(x, t, eps)
        with torch.no_grad():
            gap = self.denoiser(x_t, t) - eps
        linear = (2 * gap * x_t).mean(-1)
        return gap.square().mean(-1) + linear - linear.detach()

    def predict_clean(self, x_t: Tensor, t: int, eps_hat: Tensor) -> Tensor:
        """Return x̂."""
        return (x_t - self.noise[t] * eps_hat) / self.signal[t]

    def ancestral_step(self, x_t: Tensor, t: int, eps_hat: Tensor, z: Tensor | None) -> Tensor:
        """Return x_{t−1} from x_t and the predicted noise."""
        beta = self.beta[t]
        mean = (x_t - beta / self.noise[t] * eps_hat) / (1 - beta).sqrt()
        return mean if t == 0 or z is None else mean + beta.sqrt() * z

    def ddim_step(self, u: int, clean: Tensor, eps_hat: Tensor) -> Tensor:
        """Return x_u; u = −1 is the clean sample."""
        return self.signal[u] * clean + self.noise[u] * eps_hat if u >= 0 else clean

    def solver_step(self, x_t: Tensor, t: int, u: int, clean: Tensor, before: tuple[int, Tensor] | None) -> Tensor:
        """Return x_u by DPM-Solver++(2M); `before` is (t′, x̂′), or None for a first-order step."""
        if u < 0:
            return clean
        h, direction = self._level(u) - self._level(t), clean
        if before is not None:
            r = (self._level(t) - self._level(before[0])) / h
            direction = clean + (clean - before[1]) / (2 * r)
        return self.noise[u] / self.noise[t] * x_t - self.signal[u] * torch.expm1(-h) * direction

    def _level(self, step: int) -> Tensor:
        return (self.signal[step] / self.noise[step]).log()

    @torch.no_grad()
    def sample(
        self,
        rows: int,
        size: int,
        rng: Rng,
        *,
        sampler: Sampler = "ancestral",
        calls: int | None = None,
        condition: Tensor | None = None,
        within_box: bool = False,
        extra: int = 0,
    ) -> Tensor:
        """Draw samples, (members, rows, size).

        Args:
            rows: number of samples.
            size: numbers per sample.
            rng: the random numbers.
            sampler: the equation of a step.
            calls: number of steps, each a call of the denoiser; None for all. The ancestral sampler takes all.
            condition: (members, rows, …) numbers that the samples are conditioned on.
            within_box: whether x̂ is clipped to the bounds of samples.
            extra: further steps at t = 0 without new noise, which move samples to where they are dense.
        """
        x = rng["start"].normal(rows, size)
        every = len(self.beta)
        steps = spaced_steps(every, every if calls is None or sampler == "ancestral" else calls)
        transitions = [*zip(steps, [*steps[1:], -1], strict=True), *[(0, -1)] * extra]
        # The embeddings of t are the same for all rows. They, and all random numbers, are computed at once.
        embedded = self.denoiser.embed(torch.tensor([t for t, _ in transitions], device=x.device)[None])
        z = rng["noise"].normal(rows, len(steps) - 1, size) if sampler == "ancestral" else None
        before: tuple[int, Tensor] | None = None
        for k, (t, u) in enumerate(transitions):
            now = [e[..., k : k + 1, :] for e in embedded]
            clean, eps_hat = self.predict(x, t, now, condition, within_box=within_box)
            if sampler == "ancestral" or k >= len(steps):
                x = self.ancestral_step(x, t, eps_hat, None if z is None or t == 0 else z[..., k, :])
            elif sampler == "ddim":
                x = self.ddim_step(u, clean, eps_hat)
            else:
                x = self.solver_step(x, t, u, clean, before)
                before = (t, clean)
        return x

    def predict(
        self, x_t: Tensor, t: int, embedded: Sequence[Tensor], condition: Tensor | None, *, within_box: bool
    ) -> tuple[Tensor, Tensor]:
        """Return (x̂, ε̂) at a step that all rows share. If x̂ is clipped, ε̂ is the noise that agrees with it."""
        predicted = self.denoiser.denoise(x_t if condition is None else torch.cat([x_t, condition], -1), embedded)
        if self.predicts == "noise":
            clean, eps_hat = self.predict_clean(x_t, t, predicted), predicted
        else:
            clean = self.signal[t] * x_t - self.noise[t] * predicted
            eps_hat = self.signal[t] * predicted + self.noise[t] * x_t
        if within_box:
            clean = clean.clamp(self.low, self.high)
            eps_hat = (x_t - self.signal[t] * clean) / self.noise[t]
        return clean, eps_hat
