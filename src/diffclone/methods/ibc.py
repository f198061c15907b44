"""Implicit behavioural cloning: learn an energy of (s, a), and act by minimising it.

L_NCE  = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]          ã_j ~ U(box)
π(s)   ≈ arg min_a E(s, a)

The search uses no derivatives. It starts with N actions a_i ~ U(box) and repeats, N_iter times:
    p_i ∝ e^{−E(s, a_i)};  draw N of them by p, with replacement;  a_i ← a_i + σ z, within the box;  σ ← shrink · σ
The last iteration takes the action with the largest p instead of drawing.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training, acting
from diffclone.nn import MLP, Network
from diffclone.nn.energy import Energy
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Obs


@final
@dataclass(frozen=True)
class IBC(Method[Energy]):
    """IBC as in DBC's paper: uniform counter-examples, a shallow network, a short search without derivatives."""

    update_factor: ClassVar[int] = 4
    training: Training = Training(updates=20_000, lr=5e-4)
    """How the policy is trained."""
    network: Network = Network(width=1024, depth=1, activation="relu", init="default")
    """The network of E."""
    counter_examples: int = 64
    """Counter-examples ã_j of each pair."""
    samples: int = acting(1000)
    """N, actions in the search."""
    iterations: int = acting(3)
    """N_iter, iterations of the search."""
    noise: float = acting(0.33)
    """Initial σ, in half-widths of the box."""
    shrink: float = acting(0.5)
    """Factor by which σ is multiplied after each iteration."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.network.image is not None:
            raise InvalidSettings(
                f"IBC does not support images; its network.image must be none, and is {self.network.image}."
            )
        if self.network.dropout:
            raise InvalidSettings(f"IBC has no dropout; its network.dropout must be 0, and is {self.network.dropout}.")
        if self.counter_examples < 1 or self.samples < 1 or self.iterations < 1:
            raise InvalidSettings(
                f"counter_examples, samples and iterations must be at least 1; they are "
                f"{self.counter_examples}, {self.samples}, {self.iterations}."
            )

    def init(self, dims: Dims, rng: Rng) -> Energy:
        """Return the weights of E."""
        return Energy(MLP(dims.obs + dims.act, 1, self.network, rng), dims)

    def loss(self, weights: Energy, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_NCE."""
        counter = weights.sample_box(rng["counter"], batch.obs.shape[-2], self.counter_examples)
        nce = weights.contrastive_loss(batch.obs, batch.act, batch.mask(counter))
        return Losses(nce, {"L_NCE": nce})

    def act(self, weights: Energy, obs: Obs, rng: Rng) -> Act:
        """Return the action with the lowest energy found."""
        acts = weights.sample_box(rng["start"], obs.shape[-2], self.samples)
        half, noise = (weights.high - weights.low) / 2, self.noise
        for _ in range(self.iterations - 1):
            p = torch.softmax(-weights.energies(obs, acts), -1)
            acts = resample(acts, p, rng["resample"].uniform(obs.shape[-2], self.samples))
            acts = acts + noise * half * rng["noise"].normal(*acts.shape[-3:])
            acts = acts.clamp(weights.low, weights.high)
            noise *= self.shrink
        return lowest(acts, weights.energies(obs, acts))


def resample(acts: Tensor, p: Tensor, u: Tensor) -> Tensor:
    """Draw actions by p, with replacement, by inverting the cumulative sum of p at u."""
    index = torch.searchsorted(p.cumsum(-1), u.contiguous()).clamp(max=p.shape[-1] - 1)
    return torch.take_along_dim(acts, index[..., None], -2)


def lowest(acts: Tensor, energy: Tensor) -> Act:
    """Return the action with the lowest energy, (…, batch, n, act) to (…, batch, act)."""
    best = energy.argmin(-1, keepdim=True)[..., None]
    return torch.take_along_dim(acts, best, -2).squeeze(-2)
