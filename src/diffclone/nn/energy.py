"""Energy-based models: energy, contrastive loss and Langevin sampling.

p(a | s)  ∝ e^{−E(s, a)}
L_NCE     = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]            InfoNCE, counter-examples ã_j
ã_j       ~ U(box)                                                                  the box of `Dims`
a_{k+1}   = a_k − clip(η_k (½ ∂E/∂a + ν z), ±c),   within the box,  z ~ N(0, I)     a Langevin step
η_k       = η_end + (η_start − η_end) (1 − k/n)²
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.model import Dims
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Costs, Obs, Scalars

ROWS, CPU_ROWS = 1 << 20, 512
"""Rows of one network call without gradients, for each member: bounds the memory of a search over many actions.

On a CPU the hidden layers then fit into its cache, which makes a search of many rows faster.
"""


@final
class Energy(nn.Module):
    """A network of (s, a) with one output, and the box of the action search."""

    low: Tensor
    high: Tensor

    def __init__(self, net: nn.Module, dims: Dims):
        super().__init__()
        self.net = net
        like = next(net.parameters())
        for name, edge in zip(("low", "high"), dims.action_box, strict=True):
            self.register_buffer(name, torch.tensor(edge).to(like), persistent=False)

    def forward(self, obs: Obs, act: Act) -> Costs:
        """Return E of each pair."""
        return self.net(torch.cat([obs, act], -1)).squeeze(-1)

    def energies(self, obs: Tensor, acts: Tensor) -> Tensor:
        """Return E of n actions per state: (…, batch, obs) and (…, batch, n, act) to (…, batch, n)."""
        count = acts.shape[-2]
        rows = max(1, (CPU_ROWS if obs.device.type == "cpu" else ROWS) // count)
        if not torch.is_grad_enabled() and rows < obs.shape[-2]:
            chunks = zip(obs.split(rows, -2), acts.split(rows, -3), strict=True)
            return torch.cat([self.energies(s, a) for s, a in chunks], -2)
        repeated = obs[..., None, :].expand(*acts.shape[:-1], obs.shape[-1])
        return self(repeated.flatten(-3, -2), acts.flatten(-3, -2)).unflatten(-1, (-1, count))

    def contrastive_loss(self, obs: Obs, act: Act, counter: Tensor) -> Scalars:
        """Return the mean L_NCE of the expert's actions against counter-examples (…, batch, n, act)."""
        return info_nce(self(obs, act), self.energies(obs, counter)).mean(-1)

    def sample_box(self, rng: Rng, batch: int, count: int) -> Tensor:
        """Draw actions uniformly from the box, (members, batch, count, act)."""
        return self.low + (self.high - self.low) * rng.uniform(batch, count, len(self.low))

    def gradient(self, obs: Tensor, acts: Tensor, *, differentiable: bool = False) -> Tensor:
        """Return ∂E/∂a at n actions per state."""
        with torch.enable_grad():
            at = acts.detach().requires_grad_()
            total = self.energies(obs.detach(), at).sum()
            return torch.autograd.grad(total, at, create_graph=differentiable)[0]


def info_nce(positive: Costs, counter: Tensor) -> Costs:
    """Return L_NCE of each pair, from the energies of the expert's action and of counter-examples (…, batch, n)."""
    logits = -torch.cat([positive[..., None], counter], -1)
    return torch.logsumexp(logits, -1) - logits[..., 0]


@final
@dataclass(frozen=True)
class Langevin:
    """Langevin dynamics: noisy gradient descent on the energy. Lengths are in half-widths of the box."""

    steps: int = 100
    """n, number of steps."""
    start: float = 0.1
    """η_start, size of the first step."""
    end: float = 1e-5
    """η_end, size of the last steps."""
    noise: float = 1.0
    """ν, noise level. It is multiplied by the step size too, so that the noise decreases to almost zero."""
    cut: float = 0.1
    """c, the largest step in a dimension."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.steps < 1 or not self.start >= self.end > 0 or self.noise < 0 or not self.cut > 0:
            raise InvalidSettings(
                f"a Langevin walk needs steps >= 1, start >= end > 0, noise >= 0 and cut > 0; they are "
                f"{self.steps}, {self.start}, {self.end}, {self.noise}, {self.cut}."
            )

    @torch.no_grad()
    def walk(self, energy: Energy, obs: Tensor, acts: Tensor, rng: Rng) -> Tensor:
        """Move actions (…, batch, n, act) towards lower energy."""
        half = (energy.high - energy.low) / 2
        for k in range(self.steps):
            size = self.end + (self.start - self.end) * (1 - k / self.steps) ** 2
            z = rng.normal(*acts.shape[-3:])
            # In half-widths: ∂E/∂u = half · ∂E/∂a for u = a / half.
            step = size * (0.5 * half * energy.gradient(obs, acts) + self.noise * z)
            acts = (acts - half * step.clamp(-self.cut, self.cut)).clamp(energy.low, energy.high)
        return acts
