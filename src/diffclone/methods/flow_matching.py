"""Flow matching: p(a | s) as a velocity field that moves noise to actions (Lipman et al. 2023, arXiv 2210.02747).

a_τ    = (1 − τ) ε + τ a,      ε ~ N(0, I),   τ uniform in {0, 1/T, …, (T − 1)/T}
L_flow = E (v(a_τ, τ, s) − (a − ε))²                       mean over the batch and the action's dimensions
π(s)   : from x ~ N(0, I) at τ = 0 to τ = 1 in `calls` Euler steps, x ← x + d v(x, τ, s)
         of about equal lengths d, multiples of 1/T

With `shortcut` the network also knows the length d = 1/T, 2/T, 4/T, …, 1 of its step, and learns to take one step
instead of two (shortcut models, Frans et al. 2025, arXiv 2410.12557), so that a single call gives an action:
    v₁     = v(a_τ, τ, d, s),     v₂ = v(a_τ + d v₁, τ + d, d, s)
    L_self = E (v(a_τ, τ, 2d, s) − sg (v₁ + v₂)/2)²        sg stops the gradient; τ is a multiple of 2d
    L      = the mean over a batch in which the fraction `shortcut` of the pairs has L_self, and the rest L_flow at 1/T
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, final

import torch
from torch import Tensor

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Default, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import Denoiser
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Obs

HALVINGS = 7
TIMES = 2**HALVINGS
"""T, the number of values of τ, as in the paper on shortcut models."""


@final
@dataclass(frozen=True)
class FlowMatching(Method[Denoiser]):
    """Draws an action in a few Euler steps, or in one if it has learned shortcuts."""

    update_factor: ClassVar[int] = 10
    training: Training = Training(updates=40_000, lr=1e-3, ema=0.999)
    """How the policy is trained."""
    width: int = Default(256)
    """Units of a hidden layer."""
    depth: int = 4
    """Hidden layers."""
    shortcut: float = 0.0
    """Fraction of a batch that is trained for steps longer than 1/T; 0 is plain flow matching. The paper on shortcut
    models has 0.25."""
    calls: int = acting(8)
    """Euler steps, each one call of the network; with `shortcut` 1, 2, 4, … or 128."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.depth < 1 or self.width < 1 or not 1 <= self.calls <= TIMES:
            raise InvalidSettings(
                f"depth and width must be at least 1, calls within 1 … {TIMES}; they are {self.depth}, {self.width}, "
                f"{self.calls}."
            )
        if not 0 <= self.shortcut < 1:
            raise InvalidSettings(f"shortcut is a fraction of a batch, at least 0 and below 1; it is {self.shortcut}.")
        if self.shortcut and not 0 < round(self.shortcut * self.training.batch) < self.training.batch:
            raise InvalidSettings(
                f"shortcut is {self.shortcut}, which is none or all of a batch of {self.training.batch}; choose 0 or a "
                "fraction of at least one pair and not all."
            )
        if self.shortcut and TIMES % self.calls:
            raise InvalidSettings(f"with shortcut, calls must be a power of two; it is {self.calls}.")

    def init(self, dims: Dims, rng: Rng) -> Denoiser:
        """Return the weights of v."""
        lengths = HALVINGS + 1 if self.shortcut else 0
        return Denoiser(dims.act, TIMES, self.width, self.depth, "sinusoidal", rng, condition=dims.obs + lengths)

    def loss(self, weights: Denoiser, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_flow, or L."""
        s, a = batch.obs, batch.act
        rows = a.shape[-2]
        longer = min(round(self.shortcut * rows), rows - 1)  # held-out batches may be smaller
        ε, k, n = rng["noise"].normal(*a.shape[-2:]), rng["t"].integers(TIMES, rows), None
        if longer:  # in the first pairs the step has the length 2ⁿ/T, and τ is a multiple of it
            n = 1 + rng["length"].integers(HALVINGS, rows)
            n = n * (torch.arange(rows, device=n.device) < longer)
            k = (k >> n) << n
        τ = (k.to(a.dtype) / TIMES)[..., None]
        a_τ, target = (1 - τ) * ε + τ * a, a - ε
        if n is not None:
            first = (a_τ[..., :longer, :], k[..., :longer], n[..., :longer], s[..., :longer, :])
            target = torch.cat([self.two_steps(weights, *first), target[..., longer:, :]], -2)
        error = (batch.mask(self.velocity(weights, a_τ, k, n, s), target) - target).square().mean(-1)
        flow = error[..., longer:].mean(-1)
        logs = {"L_flow": flow, "L_self": error[..., :longer].mean(-1)} if longer else {"L_flow": flow}
        return Losses(error.mean(-1), logs)

    def two_steps(self, weights: Denoiser, x: Tensor, k: Tensor, n: Tensor, s: Tensor) -> Tensor:
        """Return the mean velocity of two steps of half the length 2ⁿ/T, without a gradient."""
        with torch.no_grad():
            half = 1 << (n - 1)
            v1 = self.velocity(weights, x, k, n - 1, s)
            v2 = self.velocity(weights, x + (half.to(x.dtype) / TIMES)[..., None] * v1, k + half, n - 1, s)
            return (v1 + v2) / 2

    def velocity(self, weights: Denoiser, x: Tensor, k: Tensor, n: Tensor | None, s: Tensor) -> Tensor:
        """Return v at τ = k/T, for a step of the length 2ⁿ/T if the network knows lengths."""
        if not self.shortcut:
            return weights(torch.cat([x, s], -1), k)
        known = torch.zeros_like(k) if n is None else n
        length = torch.nn.functional.one_hot(known, HALVINGS + 1).to(x.dtype)
        return weights(torch.cat([x, s, length], -1), k)

    def act(self, weights: Denoiser, obs: Obs, rng: Rng) -> Act:
        """Draw an action."""
        return self.move(weights, obs, rng["start"].normal(obs.shape[-2], weights.out.bias.shape[-1]))

    def move(self, weights: Denoiser, obs: Obs, x: Act) -> Act:
        """Return the action that noise x becomes."""
        for k, after in self.steps:
            now = torch.full(x.shape[:-1], k, device=x.device)
            x = x + (after - k) / TIMES * self.velocity(weights, x, now, torch.full_like(now, self.length), obs)
        return x

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The Euler steps: τ T before and after each of them."""
        return list(pairwise(round(TIMES * step / self.calls) for step in range(self.calls + 1)))

    @property
    def length(self) -> int:
        """The length of a step is 2ⁿ/T if the network knows lengths; this is n."""
        return (TIMES // self.calls).bit_length() - 1
