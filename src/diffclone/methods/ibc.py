"""Implicit behavioural cloning: learn an energy of (s, a), act by looking for its lowest point.

L_NCE  = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]          ã_j ~ U(box)
π(s)   ≈ arg min_a E(s, a)

The search uses no derivative. From N actions anywhere in the box, N_iter times:
    p_i ∝ e^{−E(s, a_i)};  draw N of them by p, with replacement;  a_i ← a_i + σ z, within the box;  σ ← shrink · σ
after the last look, instead of drawing, the action of the largest p is taken.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import MLP, Network
from diffclone.nn.energy import Energy, info_nce
from diffclone.rng import Rng
from diffclone.shapes import Act, Obs


@final
@dataclass(frozen=True)
class IBC(Method[Energy]):
    """As DBC's paper describes it: uniform counter-examples, a shallow network, a short search without derivatives."""

    training: Training = Training(updates=20_000, lr=5e-4)
    network: Network = Network(width=1024, depth=1, activation="relu", init="default")
    """E."""
    counter_examples: int = 64
    """Actions that the expert's is told from."""
    samples: int = acting(1000)
    """N."""
    iterations: int = acting(3)
    """N_iter, looks at N actions each."""
    noise: float = acting(0.33)
    """σ at first, in half-widths of the box."""
    shrink: float = acting(0.5)
    """What σ is multiplied by after each use."""

    def __post_init__(self) -> None:
        if self.network.image is not None:
            raise InvalidSettings(
                f"IBC sees plain numbers; its network.image must be none, and is {self.network.image}."
            )
        if self.counter_examples < 1 or self.samples < 1 or self.iterations < 1:
            raise InvalidSettings(
                f"counter_examples, samples and iterations must be at least 1; they are "
                f"{self.counter_examples}, {self.samples}, {self.iterations}."
            )

    def init(self, dims: Dims, rng: Rng) -> Energy:
        """E's weights."""
        return Energy(MLP(dims.obs + dims.act, 1, self.network, rng), dims)

    def loss(self, weights: Energy, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L_NCE."""
        counter = weights.anywhere(rng["counter"], batch.obs.shape[-2], self.counter_examples)
        nce = info_nce(weights(batch.obs, batch.act), weights.of_each(batch.obs, counter)).mean(-1)
        return Losses(nce, {"L_NCE": nce})

    def act(self, weights: Energy, obs: Obs, rng: Rng) -> Act:
        """The best action found."""
        acts = weights.anywhere(rng["start"], obs.shape[-2], self.samples)
        half, noise = (weights.high - weights.low) / 2, self.noise
        for _ in range(self.iterations - 1):
            p = torch.softmax(-weights.of_each(obs, acts), -1)
            acts = resampled(acts, p, rng["resample"].uniform(obs.shape[-2], self.samples))
            acts = acts + noise * half * rng["noise"].normal(*acts.shape[-3:])
            acts = acts.clamp(weights.low, weights.high)
            noise *= self.shrink
        return lowest(acts, weights.of_each(obs, acts))


def resampled(acts: Tensor, p: Tensor, u: Tensor) -> Tensor:
    """Actions drawn with replacement by p, each by the place of its u in the running sum of p."""
    index = torch.searchsorted(p.cumsum(-1), u.contiguous()).clamp(max=p.shape[-1] - 1)
    return torch.take_along_dim(acts, index[..., None], -2)


def lowest(acts: Tensor, energy: Tensor) -> Act:
    """The action of the lowest energy, (…, batch, several, act) to (…, batch, act)."""
    best = energy.argmin(-1, keepdim=True)[..., None]
    return torch.take_along_dim(acts, best, -2).squeeze(-2)
