"""Implicit behavioural cloning with Langevin counter-examples and a gradient penalty.

L_NCE  = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]          ã_j: Langevin dynamics on E from U(box)
L_grad = E max(‖∂E/∂a‖_∞ − m, 0)²                                             at a and at the ã_j
L      = L_NCE + w L_grad
π(s)   ≈ arg min_a E(s, a)                                                     the lowest result of several walks
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from diffclone.errors import InvalidSettings
from diffclone.methods.ibc import lowest
from diffclone.model import Batch, Default, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import ResidualMLP
from diffclone.nn.energy import Energy, Langevin
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Obs, Scalars


@final
@dataclass(frozen=True)
class IBCLangevin(Method[Energy]):
    """IBC in its authors' variant for high-dimensional actions."""

    update_factor: ClassVar[int] = 1
    training: Training = Training(updates=10_000, lr=1e-3, decay="exponential")
    """How the policy is trained."""
    width: int = Default(128)
    """Units of a layer."""
    blocks: int = 4
    """Residual blocks of two layers each."""
    counter_examples: int = 8
    """Counter-examples ã_j of each pair."""
    training_walk: Langevin = Langevin(steps=20)
    """Langevin dynamics of the counter-examples."""
    penalty: float = 1.0
    """w, the weight of L_grad."""
    margin: float = 1.0
    """m, the gradient that is not penalised, in half-widths of the box."""
    walks: int = acting(64)
    """Langevin walks of a search."""
    walk: Langevin = acting(Langevin(steps=50))
    """The first phase of a walk."""
    last_walk: Langevin = acting(Langevin(steps=50, start=0.01, noise=0.0))
    """The second phase: small steps without noise."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.counter_examples < 1 or self.walks < 1 or self.blocks < 1 or self.width < 1:
            raise InvalidSettings(
                f"counter_examples, walks, blocks and width must be at least 1; they are "
                f"{self.counter_examples}, {self.walks}, {self.blocks}, {self.width}."
            )

    @property
    def compilable(self) -> bool:
        """False: the loss takes gradients itself."""
        return False

    def init(self, dims: Dims, rng: Rng) -> Energy:
        """Return the weights of E."""
        return Energy(ResidualMLP(dims.obs + dims.act, 1, self.width, self.blocks, rng), dims)

    def loss(self, weights: Energy, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L, and log its terms."""
        s, a = batch.obs, batch.act
        start = weights.sample_box(rng["counter"], s.shape[-2], self.counter_examples)
        counter = batch.mask(self.training_walk.walk(weights, s, start, rng["walk"]))
        nce = weights.contrastive_loss(s, a, counter)
        grad = self.gradient_penalty(weights, batch, torch.cat([a[..., None, :], counter], -2))
        return Losses(nce + self.penalty * grad, {"L_NCE": nce, "L_grad": grad})

    def gradient_penalty(self, weights: Energy, batch: Batch, acts: Tensor) -> Scalars:
        """Return L_grad, one number per member."""
        half = (weights.high - weights.low) / 2
        gradient = half * weights.gradient(batch.obs, acts, differentiable=True)
        gradient = batch.mask(gradient, torch.zeros_like(batch.act))
        return (gradient.abs().amax(-1) - self.margin).clamp(min=0).square().mean((-2, -1))

    def act(self, weights: Energy, obs: Obs, rng: Rng) -> Act:
        """Return the result of the walk that ends lowest."""
        acts = weights.sample_box(rng["start"], obs.shape[-2], self.walks)
        acts = self.walk.walk(weights, obs, acts, rng["walk"])
        acts = self.last_walk.walk(weights, obs, acts, rng["last walk"])
        return lowest(acts, weights.energies(obs, acts))
