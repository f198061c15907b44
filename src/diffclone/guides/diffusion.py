"""A diffusion model of p(s, a): the cost of a pair is its denoising error.

x          = [s, a]
cost(s, a) = 1/K Σ_k mean over dimensions of (ε_k − ε̂(x_{t_k}, t_k))²        K draws of (t, ε)
L_diff     = E cost(s, a)                                                   over expert pairs
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from diffclone.data.normaliser import LIMIT
from diffclone.errors import DiffcloneWarning, InvalidSettings
from diffclone.model import Batch, Default, Dims, Guide, Losses, Parts, Training, scoring
from diffclone.nn import Denoiser
from diffclone.nn.diffusion import Diffusion, sigmoid_betas
from diffclone.nn.layers import TimeConditioning
from diffclone.rng import Rng
from diffclone.settings import added, check_types
from diffclone.shapes import Act, Costs, Obs, Rows, Steps

Draw = tuple[Tensor, Tensor]


@final
@dataclass(frozen=True)
class DiffusionGuide(Guide[Diffusion]):
    """The paper's guide: a diffusion model of the expert's pairs. The cost of a pair is its denoising error."""

    update_factor: ClassVar[int] = 2
    training: Training = Training(updates=40_000, lr=5e-4)
    """How the guide is trained."""
    width: int = Default(128)
    """Units of a hidden layer."""
    depth: int = 3
    """Hidden layers. (The released network also has a fourth, which is never used; it is not reproduced.)"""
    steps: int = 1000
    """T, diffusion steps."""
    conditioning: TimeConditioning = "sinusoidal"
    """How the network is conditioned on t: a sinusoidal embedding, or a learned table per layer as in the released
    code."""
    draws: int = scoring(1)
    """K, draws of (t, ε) for the cost of a pair. The guide's own training uses one."""
    t_sampling: Literal["uniform", "antithetic", "stratified"] = scoring("antithetic")
    """How t is drawn for the cost: independently, as in the paper; t and T − 1 − t in the two halves of a batch, as in
    the released code; or one draw in each of K · batch equal intervals of the range."""
    jacobian: bool = scoring(True)
    """Whether the gradient of the cost passes through the denoiser. Without it (score distillation) the action moves
    along √ᾱ (ε̂ − ε), which costs half as much and is smoother at small t."""
    t_low: int = scoring(0)
    """Smallest t of the cost, from 0 to T − 1."""
    t_high: int | None = scoring(None)
    """The cost uses t below this; none for T."""
    shuffle_pairs: bool = added(absent=False)
    """Whether it is trained on states with the actions of other states: a model of p(s) p(a). This is a control, which
    shows what the relation of state and action contributes."""

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.t_low < self.t_stop <= self.steps:
            raise InvalidSettings(
                f"the range of t must satisfy 0 <= t_low < t_high <= steps; it is "
                f"{self.t_low}, {self.t_stop}, {self.steps}."
            )
        if self.draws < 1 or self.depth < 1 or self.width < 1:
            raise InvalidSettings(
                f"draws, depth and width must be at least 1; they are {self.draws}, {self.depth}, {self.width}."
            )
        if self.t_sampling not in T_SAMPLERS:
            raise InvalidSettings(f"t_sampling must be one of {', '.join(T_SAMPLERS)}; it is {self.t_sampling!r}.")

    @staticmethod
    def upgrade_settings(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of files by version 0.1.0, which could draw t by importance, as settings of this one."""
        values = {name: value for name, value in values.items() if name != "t_shares"}
        if values.get("t_sampling") == "importance":
            warnings.warn(
                'a guide has t_sampling="importance", which this version no longer has. Its weights are not affected; '
                'a new training would use "stratified".',
                DiffcloneWarning,
                stacklevel=2,
            )
            values["t_sampling"] = "stratified"
        return values

    @property
    def t_stop(self) -> int:
        """The end of the range of t."""
        return self.steps if self.t_high is None else self.t_high

    def init(self, dims: Dims, rng: Rng) -> Diffusion:
        """Return a denoiser of pairs."""
        denoiser = Denoiser(dims.obs + dims.act, self.steps, self.width, self.depth, self.conditioning, rng)
        return Diffusion(denoiser, sigmoid_betas(self.steps))

    def loss(self, weights: Diffusion, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_diff, with one antithetic draw of t over all steps, as in the released code."""
        # Pairs of a batch are independent draws, so the action of the next one is that of a random state.
        x = join_pair(batch.obs, batch.act.roll(1, -2) if self.shuffle_pairs else batch.act)
        rows, size = x.shape[-2:]
        t = antithetic(rng["t"], rows, 0, self.steps)
        diff = weights.denoising_error(x, t, rng["noise"].normal(rows, size)).mean(-1)
        return Losses(diff, {"L_diff": diff})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> Draw:
        """Draw K · batch steps and noises; the K draws of a pair are `batch` rows apart."""
        rows = self.draws * batch
        t = T_SAMPLERS[self.t_sampling](rng["t"], rows, self.t_low, self.t_stop)
        return t, rng["noise"].normal(rows, dims.obs + dims.act)

    def cost(self, weights: Diffusion, obs: Obs, act: Act, draw: Draw) -> Costs:
        """Return the denoising error of each pair, averaged over its K draws."""
        x = join_pair(obs, act)
        if self.draws > 1:
            x = x.repeat(*[1] * (x.dim() - 2), self.draws, 1)
        error = weights.denoising_error(x, *draw) if self.jacobian else weights.score_distillation_error(x, *draw)
        return error.unflatten(-1, (self.draws, obs.shape[-2])).mean(-2)

    def sample(self, weights: Diffusion, rows: int, dims: Dims, rng: Rng) -> tuple[Tensor, Tensor]:
        """Draw pairs from the model: normalised observations and actions."""
        x = weights.sample(rows, dims.obs + dims.act, rng)
        return x[..., : -dims.act], x[..., -dims.act :]


def join_pair(obs: Obs, act: Act) -> Rows:
    """Return x, with the action clipped to the limit of a guide's inputs."""
    return torch.cat([obs, act.clamp(-LIMIT, LIMIT)], -1)


def uniform(rng: Rng, rows: int, low: int, high: int) -> Steps:
    """Draw independent steps."""
    return low + rng.integers(high - low, rows)


def antithetic(rng: Rng, rows: int, low: int, high: int) -> Steps:
    """Draw uniform steps for the first half of the rows and mirror them in the second half."""
    first = rng.integers(high - low, (rows + 1) // 2)
    mirrored = (high - low - 1) - first
    return low + torch.cat([first, mirrored], -1)[..., :rows]


def stratified(rng: Rng, rows: int, low: int, high: int) -> Steps:
    """Draw one uniform step in each of `rows` equal intervals of the range, in increasing order."""
    u = (torch.arange(rows, device=rng.device) + rng.uniform(rows)) / rows
    return (low + (high - low) * u).long().clamp(max=high - 1)


T_SAMPLERS = {"uniform": uniform, "antithetic": antithetic, "stratified": stratified}
