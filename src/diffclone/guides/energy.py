"""An energy-based model of the expert's actions: the cost of a pair is its energy.

L_NCE      = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]          64 actions ã_j anywhere in the box
cost(s, a) = E(s, a)                                                     a moved into the box, where E was learned
"""

from dataclasses import dataclass
from typing import final

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Guide, Losses, Parts, Training
from diffclone.nn import MLP, Network
from diffclone.nn.energy import Energy, info_nce
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs


@final
@dataclass(frozen=True)
class EnergyGuide(Guide[Energy]):
    """The paper's energy-based guide."""

    training: Training = Training(updates=40_000, lr=5e-4, decay="exponential", remains=0.45)
    width: int = 128
    """Units of a hidden layer."""
    depth: int = 4
    """Hidden layers."""
    counter_examples: int = 64
    """Actions that the expert's is told from."""

    def __post_init__(self) -> None:
        if self.counter_examples < 1 or self.depth < 1 or self.width < 1:
            raise InvalidSettings(
                f"counter_examples, depth and width must be at least 1; they are "
                f"{self.counter_examples}, {self.depth}, {self.width}."
            )

    def init(self, dims: Dims, rng: Rng) -> Energy:
        """E's weights."""
        network = Network(width=self.width, depth=self.depth, activation="relu", init="default")
        return Energy(MLP(dims.obs + dims.act, 1, network, rng), dims)

    def loss(self, weights: Energy, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L_NCE."""
        counter = weights.anywhere(rng["counter"], batch.obs.shape[-2], self.counter_examples)
        nce = info_nce(weights(batch.obs, batch.act), weights.of_each(batch.obs, counter)).mean(-1)
        return Losses(nce, {"L_NCE": nce})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> None:
        """An energy needs no randomness."""

    def cost(self, weights: Energy, obs: Obs, act: Act, draw: None) -> Costs:
        """E. Beyond the box it was never taught, and would fall without end."""
        return weights(obs, act.clamp(weights.low, weights.high))
