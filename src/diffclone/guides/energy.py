"""An energy-based model of the expert's actions: the cost of a pair is its energy.

L_NCE      = −log [ e^{−E(s, a)} / (e^{−E(s, a)} + Σ_j e^{−E(s, ã_j)}) ]          64 actions ã_j ~ U(box)
cost(s, a) = E(s, a)                                                     a clipped to the box, where E was trained
"""

from dataclasses import dataclass
from typing import ClassVar, final

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Default, Dims, Guide, Losses, Parts, Training
from diffclone.nn import MLP, Network
from diffclone.nn.energy import Energy
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Costs, Obs


@final
@dataclass(frozen=True)
class EnergyGuide(Guide[Energy]):
    """The paper's energy-based guide: a network that is trained to be low at the expert's pairs, and is the cost."""

    update_factor: ClassVar[int] = 2
    training: Training = Training(updates=40_000, lr=5e-4, decay="exponential", remains=0.45)
    """How the guide is trained."""
    width: int = Default(128)
    """Units of a hidden layer."""
    depth: int = 4
    """Hidden layers."""
    counter_examples: int = 64
    """Counter-examples ã_j of each pair."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.counter_examples < 1 or self.depth < 1 or self.width < 1:
            raise InvalidSettings(
                f"counter_examples, depth and width must be at least 1; they are "
                f"{self.counter_examples}, {self.depth}, {self.width}."
            )

    def init(self, dims: Dims, rng: Rng) -> Energy:
        """Return the weights of E."""
        network = Network(width=self.width, depth=self.depth, activation="relu", init="default")
        return Energy(MLP(dims.obs + dims.act, 1, network, rng), dims)

    def loss(self, weights: Energy, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_NCE."""
        counter = weights.sample_box(rng["counter"], batch.obs.shape[-2], self.counter_examples)
        nce = weights.contrastive_loss(batch.obs, batch.act, batch.mask(counter))
        return Losses(nce, {"L_NCE": nce})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> None:
        """Return None: an energy needs no random numbers."""

    def cost(self, weights: Energy, obs: Obs, act: Act, draw: None) -> Costs:
        """Return E. Outside the box E is not trained and may fall without limit, so actions are clipped to the box."""
        return weights(obs, act.clamp(weights.low, weights.high))
