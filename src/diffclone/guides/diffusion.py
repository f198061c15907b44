"""A diffusion model of p(s, a): the cost of a pair is how badly its noise is told from it.

x          = [s, a]
cost(s, a) = 1/K Σ_k w(t_k) · mean over dimensions of (ε_k − ε̂(x_{t_k}, t_k))²   K draws of (t, ε)
w(t)       = 1, or 1 / (T p(t)) where t was drawn with chance p(t), by shares of equal parts of its range
L_diff     = E cost(s, a)                                                       over expert pairs, w = 1
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Literal, final

import torch
from torch import Tensor

from diffclone.data.normaliser import LIMIT
from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Guide, Losses, Parts, Training, judging
from diffclone.nn import Denoiser
from diffclone.nn.diffusion import Diffusion, sigmoid_betas
from diffclone.nn.layers import TimeConditioning
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs, Rows, Steps

Draw = tuple[Tensor, Tensor]


@final
@dataclass(frozen=True)
class DiffusionGuide(Guide[Diffusion]):
    """The paper's guide."""

    training: Training = Training(updates=40_000, lr=5e-4)
    width: int = 128
    """Units of a hidden layer."""
    depth: int = 3
    """Hidden layers in use. (The released network builds a fourth that nothing reaches; it is not reproduced.)"""
    steps: int = 1000
    """T, diffusion steps."""
    conditioning: TimeConditioning = "sinusoidal"
    """How the network knows t: sines and cosines, or a learned table a layer, as released."""
    draws: int = judging(1)
    """K, draws of (t, ε) for each judged pair. Training of the guide itself uses one."""
    t_sampling: Literal["uniform", "antithetic", "stratified", "importance"] = judging("antithetic")
    """How t is drawn when judging: independently, as the paper prints it; t and T − 1 − t in the two halves of a
    batch, as released; one draw in each of K · batch equal parts of the range; or so by `t_shares`, weighted to have
    the same mean."""
    t_shares: tuple[float, ...] | None = judging(None)
    """p, the share of draws of each of as many equal parts of the range of t, for "importance"; `gradient_shares`
    measures them."""
    jacobian: bool = judging(True)
    """Whether the cost's gradient passes through the denoiser. Without it (score distillation) the action is moved
    along √ᾱ (ε̂ − ε), which costs half as much and stays tame at small t."""
    t_low: int = judging(0)
    """Smallest t when judging."""
    t_high: int | None = judging(None)
    """Judging stays below this t; none for T."""

    def __post_init__(self) -> None:
        if not 0 <= self.t_low < self.t_stop <= self.steps:
            raise InvalidSettings(
                f"the range of t must satisfy 0 <= t_low < t_high <= steps; it is "
                f"{self.t_low}, {self.t_stop}, {self.steps}."
            )
        if self.draws < 1 or self.depth < 1 or self.width < 1:
            raise InvalidSettings(
                f"draws, depth and width must be at least 1; they are {self.draws}, {self.depth}, {self.width}."
            )
        shares = self.t_shares
        fit = shares is None or (len(shares) > 0 and all(share > 0 for share in shares))
        if (shares is not None) != (self.t_sampling == "importance") or not fit:
            raise InvalidSettings(
                f't_shares are numbers above 0, for t_sampling="importance" and for nothing else; '
                f"they are {self.t_shares} with {self.t_sampling!r}."
            )

    @property
    def t_stop(self) -> int:
        """The end of the range of t."""
        return self.steps if self.t_high is None else self.t_high

    def init(self, dims: Dims, rng: Rng) -> Diffusion:
        """A denoiser of pairs."""
        denoiser = Denoiser(dims.obs + dims.act, self.steps, self.width, self.depth, self.conditioning, rng)
        return Diffusion(denoiser, sigmoid_betas(self.steps))

    def loss(self, weights: Diffusion, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L_diff, with one antithetic draw of t over all steps, as released."""
        x = pair(batch.obs, batch.act)
        rows, size = x.shape[-2:]
        t = antithetic(rng["t"], rows, 0, self.steps)
        error = weights.error(x, t, rng["noise"].normal(rows, size))
        diff = error.mean(-1)
        return Losses(diff, {"L_diff": diff})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> Draw:
        """K · batch steps and noises, the K draws of a pair `batch` rows apart."""
        rows = self.draws * batch
        if self.t_shares is None:
            t = T_SAMPLERS[self.t_sampling](rng["t"], rows, self.t_low, self.t_stop)
        else:
            t = importance(rng["t"], rows, self.t_low, self.t_stop, self.t_shares)
        return t, rng["noise"].normal(rows, dims.obs + dims.act)

    def cost(self, weights: Diffusion, obs: Obs, act: Act, draw: Draw) -> Costs:
        """The denoising error of each pair, averaged over its K draws."""
        x = pair(obs, act)
        if self.draws > 1:
            x = x.repeat(*[1] * (x.dim() - 2), self.draws, 1)
        error = weights.error(x, *draw) if self.jacobian else weights.score_error(x, *draw)
        if self.t_shares is not None:
            error = error * importance_weight(draw[0], self.t_low, self.t_stop, self.t_shares, error.dtype)
        return error.unflatten(-1, (self.draws, obs.shape[-2])).mean(-2)

    def gradient_shares(
        self, weights: Diffusion, obs: Obs, act: Act, rng: Rng, *, parts: int = 10, away: float = 0.1
    ) -> tuple[float, ...]:
        """`t_shares` by what the cost does: how long its gradient by the action is in each part of the range of t.

        Args:
            weights: of the trained guide.
            obs: normalised expert observations.
            act: normalised expert actions.
            rng: what is drawn from.
            parts: of the range.
            away: how far from the expert's the judged actions are, in standard deviations.
        """
        edges = [self.t_low + (self.t_stop - self.t_low) * k // parts for k in range(parts + 1)]
        judged = act + away * rng["away"].normal(*act.shape[-2:])
        lengths: list[float] = []
        for k, (low, high) in enumerate(pairwise(edges)):
            part = replace(self, t_sampling="stratified", t_shares=None, t_low=low, t_high=high)
            at = judged.detach().requires_grad_()
            draw = part.draw(at.shape[-2], Dims(obs.shape[-1], act.shape[-1]), rng[str(k)])
            (gradient,) = torch.autograd.grad(part.cost(weights, obs.expand(*at.shape[:-1], -1), at, draw).sum(), at)
            lengths.append(gradient.square().sum(-1).mean().sqrt().item())
        # No part may be left out: its weight would have no bound.
        floor = 0.01 * sum(lengths) / parts
        shares = [max(length, floor) for length in lengths]
        return tuple(share / sum(shares) for share in shares)

    def sample(self, weights: Diffusion, rows: int, dims: Dims, rng: Rng) -> tuple[Tensor, Tensor]:
        """Pairs the guide has learned to expect, normalised: observations and actions."""
        x = weights.sample(rows, dims.obs + dims.act, rng)
        return x[..., : -dims.act], x[..., -dims.act :]


def pair(obs: Obs, act: Act) -> Rows:
    """x, within the limit of a guide's inputs."""
    return torch.cat([obs, act.clamp(-LIMIT, LIMIT)], -1)


def uniform(rng: Rng, rows: int, low: int, high: int) -> Steps:
    """Independent steps."""
    return low + rng.integers(high - low, rows)


def antithetic(rng: Rng, rows: int, low: int, high: int) -> Steps:
    """Uniform steps in the first half of the rows, mirrored in the second (an odd row is the mirror of none)."""
    first = rng.integers(high - low, (rows + 1) // 2)
    mirrored = (high - low - 1) - first
    return low + torch.cat([first, mirrored], -1)[..., :rows]


def stratified(rng: Rng, rows: int, low: int, high: int) -> Steps:
    """One uniform step in each of `rows` equal parts of the range, in rising order over the rows."""
    u = (torch.arange(rows, device=rng.device) + rng.uniform(rows)) / rows
    return (low + (high - low) * u).long().clamp(max=high - 1)


def importance(rng: Rng, rows: int, low: int, high: int, shares: tuple[float, ...]) -> Steps:
    """Stratified draws by shares: part j of the range gets p_j of them."""
    u = (torch.arange(rows, device=rng.device) + rng.uniform(rows)) / rows
    likely = step_shares(high - low, shares, rng.device, rng.dtype)
    return low + torch.searchsorted(likely.cumsum(0), u).clamp(max=high - low - 1)


def importance_weight(t: Steps, low: int, high: int, shares: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """w(t)."""
    likely = step_shares(high - low, shares, t.device, dtype)
    return (1 / ((high - low) * likely))[t - low]


@cache  # made once: a captured graph cannot fetch numbers from the CPU
def step_shares(steps: int, shares: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """The chance of each step. One that lies across a border of two parts has some of both."""
    parts, total = len(shares), sum(shares)

    def below(edge: int) -> float:
        whole = min(int(edge * parts / steps), parts - 1)
        return (sum(shares[:whole]) + (edge * parts / steps - whole) * shares[whole]) / total

    return torch.tensor([below(k + 1) - below(k) for k in range(steps)], dtype=dtype, device=device)


T_SAMPLERS = {"uniform": uniform, "antithetic": antithetic, "stratified": stratified}
