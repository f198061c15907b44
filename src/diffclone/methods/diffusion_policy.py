"""Diffusion policy: p(a | s) as a denoiser of actions, conditioned on the state.

a_t    = √ᾱ_t a + √(1 − ᾱ_t) ε
L_diff = E (v − v̂(a_t, t, s))²,   v = √ᾱ_t ε − √(1 − ᾱ_t) a         predicts: velocity
L_diff = E (ε − ε̂(a_t, t, s))²                                      predicts: noise, as in the comparison of DBC's paper
π(s)   : from a_T ~ N(0, I), step by step to a_0 (`nn/diffusion.py`); x̂ is clipped to the box

DDIM and DPM-Solver++ sample the same weights in few calls. Diffusion-X adds `extra` steps at the end.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Default, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import Denoiser
from diffclone.nn.diffusion import Diffusion, Prediction, Sampler, sigmoid_betas
from diffclone.nn.layers import TimeConditioning
from diffclone.rng import Rng
from diffclone.settings import added, check_types
from diffclone.shapes import Act, Obs


@final
@dataclass(frozen=True)
class DiffusionPolicy(Method[Diffusion]):
    """Predicts one action at a time, as in the comparison of DBC's paper."""

    update_factor: ClassVar[int] = 10
    training: Training = Training(updates=40_000, lr=1e-3, ema=0.999)
    """How the policy is trained."""
    width: int = Default(256)
    """Units of a hidden layer."""
    depth: int = 4
    """Hidden layers."""
    steps: int = 1000
    """T, diffusion steps."""
    conditioning: TimeConditioning = "sinusoidal"
    """How the network is conditioned on t: a sinusoidal embedding, or a learned table per layer."""
    predicts: Prediction = added("noise", default="velocity")
    """What the network predicts. If it predicts the noise, its errors are enlarged in x̂ at the last steps."""
    sampler: Sampler = acting("dpm-solver++")
    """The sampler: ancestral takes all T steps, ddim and dpm-solver++ take `calls`."""
    calls: int = acting(20)
    """Steps of ddim and dpm-solver++, each one call of the network."""
    extra: int = acting(0)
    """Further steps at the end, without new noise (Diffusion-X)."""
    within_box: bool = acting(True)
    """Whether x̂ is clipped to the box, the expert's range of actions, at every step."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.depth < 1 or self.width < 1 or self.extra < 0 or not 1 <= self.calls <= self.steps:
            raise InvalidSettings(
                f"depth and width must be at least 1, extra at least 0, calls within 1 … steps; they are "
                f"{self.depth}, {self.width}, {self.extra}, {self.calls} of {self.steps}."
            )

    def init(self, dims: Dims, rng: Rng) -> Diffusion:
        """Return a denoiser of actions."""
        denoiser = Denoiser(dims.act, self.steps, self.width, self.depth, self.conditioning, rng, condition=dims.obs)
        return Diffusion(denoiser, sigmoid_betas(self.steps), dims.action_box, self.predicts)

    def loss(self, weights: Diffusion, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_diff."""
        rows, size = batch.act.shape[-2:]
        t = rng["t"].integers(self.steps, rows)
        ε = rng["noise"].normal(rows, size)
        target = weights.target(batch.act, t, ε)
        diff = (target - batch.mask(weights.denoise(batch.act, t, ε, batch.obs), target)).square().mean(-1)
        diff = diff.mean(-1)
        return Losses(diff, {"L_diff": diff})

    def act(self, weights: Diffusion, obs: Obs, rng: Rng) -> Act:
        """Draw an action."""
        return weights.sample(
            obs.shape[-2],
            len(weights.low),
            rng,
            sampler=self.sampler,
            calls=self.calls,
            condition=obs,
            within_box=self.within_box,
            extra=self.extra,
        )
