"""Implicit behavioural cloning by gradients: counter-examples that walk downhill, a slope that is kept small.

L_NCE  = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]          ã_j: Langevin walks on E from U(box)
L_grad = E max(‖∂E/∂a‖_∞ − m, 0)²                                             at a and at the ã_j
L      = L_NCE + w L_grad
π(s)   ≈ arg min_a E(s, a)                                                     the lowest end of several walks
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from diffclone.errors import InvalidSettings
from diffclone.methods.ibc import lowest
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import ResidualMLP
from diffclone.nn.energy import Energy, Langevin, info_nce
from diffclone.rng import Rng
from diffclone.shapes import Act, Obs, Scalars


@final
@dataclass(frozen=True)
class IBCLangevin(Method[Energy]):
    """Implicit BC as its own authors have it for many dimensions of action."""

    training: Training = Training(updates=10_000, lr=1e-3, decay="exponential")
    width: int = 128
    """Units of a layer."""
    blocks: int = 4
    """Residual blocks of two layers."""
    counter_examples: int = 8
    """Walks that the expert's action is told from."""
    training_walk: Langevin = Langevin(steps=20)
    """Of the counter-examples."""
    penalty: float = 1.0
    """w, the weight of L_grad."""
    margin: float = 1.0
    """m, the slope that is not punished, in half-widths of the box."""
    walks: int = acting(64)
    """Walks of a search."""
    walk: Langevin = acting(Langevin(steps=50))
    """A search's first walk."""
    last_walk: Langevin = acting(Langevin(steps=50, start=0.01, noise=0.0))
    """Its second: small steps straight downhill."""

    def __post_init__(self) -> None:
        if self.counter_examples < 1 or self.walks < 1 or self.blocks < 1 or self.width < 1:
            raise InvalidSettings(
                f"counter_examples, walks, blocks and width must be at least 1; they are "
                f"{self.counter_examples}, {self.walks}, {self.blocks}, {self.width}."
            )

    @property
    def compilable(self) -> bool:
        """Walks and the slope are gradients within the loss."""
        return False

    def init(self, dims: Dims, rng: Rng) -> Energy:
        """E's weights."""
        return Energy(ResidualMLP(dims.obs + dims.act, 1, self.width, self.blocks, rng), dims)

    def loss(self, weights: Energy, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L."""
        s, a = batch.obs, batch.act
        start = weights.anywhere(rng["counter"], s.shape[-2], self.counter_examples)
        counter = self.training_walk.walk(weights, s, start, rng["walk"])
        nce = info_nce(weights(s, a), weights.of_each(s, counter)).mean(-1)
        steep = self.steepness(weights, s, torch.cat([a[..., None, :], counter], -2))
        return Losses(nce + self.penalty * steep, {"L_NCE": nce, "L_grad": steep})

    def steepness(self, weights: Energy, obs: Obs, acts: Tensor) -> Scalars:
        """L_grad, one number a member."""
        half = (weights.high - weights.low) / 2
        steep = half * weights.slope(obs, acts, differentiable=True)
        return (steep.abs().amax(-1) - self.margin).clamp(min=0).square().mean((-2, -1))

    def act(self, weights: Energy, obs: Obs, rng: Rng) -> Act:
        """The best end of several walks."""
        acts = weights.anywhere(rng["start"], obs.shape[-2], self.walks)
        acts = self.walk.walk(weights, obs, acts, rng["walk"])
        acts = self.last_walk.walk(weights, obs, acts, rng["last walk"])
        return lowest(acts, weights.of_each(obs, acts))
