"""The denoising error of the policy's diffusion guide.

x        = [s, a]                            D = D_s + D_a dimensions
r_k      = ε_k − ε̂(x_{t_k}, t_k)             k = 1 … K: one t in each of K equal intervals of the range of t
E_k      = mean of r_k² over a part's dimensions and over ε_k and −ε_k
state    = mean over k of (E_k − m_k) / σ_k                         over the first D_s dimensions
action   = the same                                                 over the last D_a
both     = the same                                                 over all D

m_k and σ_k are mean and standard deviation of E_k over training pairs: E_k is close to 1 for small t and close to 0 for
large t, and without them a few values of t decide. The draws of (t, ε) come from a fixed seed, so the score of a pair
is always the same. Without training pairs, and in monitors of versions before 0.4, m = 0 and σ = 1.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import torch
from torch import Tensor, nn

from diffclone.deploy.monitors.base import BATCH, Context, PairScore, choose_rows, join
from diffclone.errors import InvalidSettings
from diffclone.guides.diffusion import DiffusionGuide, stratified
from diffclone.model import Dims, Model
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng
from diffclone.training.step import Dataset

ROWS = 2048
"""Training pairs from which m and σ are estimated, at most."""
MOST_LEVELS = 1000


@final
class Levels(nn.Module):
    """m and σ, (3, K): for state, action and both."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.draws: tuple[Tensor, Tensor, list[Tensor]] | None = None
        """(t, ε) and the embedding of t, once they are computed."""


def diffusion_of(context: Context) -> tuple[DiffusionGuide, Diffusion]:
    """Return the settings and the weights of the policy's diffusion guide."""
    method: Model[Any] = context.method
    guide = method.needs().get("guide")
    if guide is None or "guide" not in context.parts:
        raise InvalidSettings(
            f"this {type(method).__name__} policy has no guide. Use another --score, or a policy with a diffusion "
            "guide, from `fit` or `Run.policy`: diffclone train DATA --method dbc --guide diffusion."
        )
    if not isinstance(guide, DiffusionGuide):
        raise InvalidSettings(
            f"the score 'guide' needs a DiffusionGuide; this guide is {type(guide).__name__}. Use another --score, or "
            "train a policy with one: diffclone train DATA --method dbc --guide diffusion."
        )
    return guide, cast(Diffusion, context.parts["guide"])


@final
@dataclass(frozen=True)
class GuideScore(PairScore[Levels]):
    """The standardised denoising error, averaged over a range of t."""

    parts: ClassVar[tuple[str, ...]] = ("state", "action", "both")
    needs_pairs: ClassVar[bool] = False
    uses_parts: ClassVar[bool] = True
    low: float = 0.0
    """Start of the range of t, as a fraction of T."""
    high: float = 1.0
    """End of the range of t, as a fraction of T."""
    levels: int = 32
    """K, the values of t over which the error is averaged."""

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1 or not 1 <= self.levels <= MOST_LEVELS:
            raise InvalidSettings(
                f"the range of t must satisfy 0 <= low < high <= 1, and levels must be from 1 to {MOST_LEVELS}; they "
                f"are {self.low:g}, {self.high:g} and {self.levels}."
            )

    def init(self, context: Context, dims: Dims, rng: Rng) -> Levels:
        """Return m = 0 and σ = 1."""
        diffusion_of(context)
        return self.plain()

    def plain(self) -> Levels:
        """Return m = 0 and σ = 1."""
        shape = len(self.parts), self.levels
        return Levels(torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64))

    def fit(self, context: Context, pairs: Dataset, rng: Rng) -> Levels:
        """Return m and σ of training pairs."""
        plain, rows = self.init(context, context.dims, rng), choose_rows(rng, len(pairs.obs), ROWS)
        if not len(rows):
            return plain
        with torch.no_grad():
            batches = zip(pairs.obs[rows].split(BATCH), pairs.act[rows].split(BATCH), strict=True)
            errors = torch.cat([self.errors(plain, context, s, a) for s, a in batches], 1)
        return Levels(errors.mean(1), errors.std(1).clamp(min=1e-9))

    def score(self, weights: Levels, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return state, action and both."""
        errors = self.errors(weights, context, s, a)
        return ((errors - weights.mean[:, None]) / weights.std[:, None]).mean(-1)

    def errors(self, weights: Levels, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return E_k of state, action and both, (3, rows, K)."""
        diffusion, x = diffusion_of(context)[1], join(s, a)
        t, eps, embedding = self.draw(weights, context, x.shape[-1])
        rows, draws, size = len(x), *eps.shape
        x_t = diffusion.add_noise(x[:, None, :].expand(rows, draws, size), t, eps).reshape(1, rows * draws, size)
        eps_hat = diffusion.denoiser.denoise(x_t, [e.repeat(1, rows, 1) for e in embedding])
        squares = (eps - eps_hat.reshape(rows, draws, size)).square().double().unflatten(1, (2, -1)).mean(1)
        d_s, d_a = s.shape[-1], a.shape[-1]
        state, action = squares[..., :d_s].mean(-1), squares[..., d_s:].mean(-1)
        return torch.stack([state, action, (d_s * state + d_a * action) / (d_s + d_a)])

    def draw(self, weights: Levels, context: Context, size: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return t (2K), ε (2K, size), where the second half is −ε, and the denoiser's embedding of t."""
        if weights.draws is None:
            guide, diffusion = diffusion_of(context)
            like, steps = diffusion.beta, guide.steps
            low, high = round(self.low * steps), max(round(self.low * steps) + 1, round(self.high * steps))
            rng = Rng([0], dtype=like.dtype)["monitor"]
            t, eps = stratified(rng["t"], self.levels, low, high)[0], rng["noise"].normal(self.levels, size)[0]
            t, eps = torch.cat([t, t]).to(like.device), torch.cat([eps, -eps]).to(like)
            with torch.no_grad():
                weights.draws = t, eps, diffusion.denoiser.embed(t[None])
        return weights.draws
