"""Random network distillation (Burda et al. 2018) of pairs.

x     = [s, a]
f     = a random network with m outputs, which stays as it is
f̂     = a network that learns f on training pairs:   L = E mean over outputs of (f̂(x) − f(x))²
score = mean over outputs of (f̂(x) − f(x))²
"""

from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from diffclone.deploy.monitors.base import Context, PairScore, join, train_model
from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Model, Parts, Training
from diffclone.nn import MLP, Network
from diffclone.rng import Rng
from diffclone.training.step import Dataset

MOST_OUTPUTS = 2**16


@final
class Distilled(nn.Module):
    """f̂ and f. The weights of f are buffers, so that they are saved but not trained."""

    def __init__(self, learner: MLP, target: MLP):
        super().__init__()
        self.learner, self.target = learner, target
        for layer in target.modules():
            for name, weight in list(layer.named_parameters(recurse=False)):
                delattr(layer, name)
                layer.register_buffer(name, weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean squared difference of each row."""
        return (self.learner(x) - self.target(x)).square().mean(-1)


@final
@dataclass(frozen=True)
class Distillation(Model[Distilled]):
    """The training of f̂."""

    network: Network = Network()
    outputs: int = 32

    def init(self, dims: Dims, rng: Rng) -> Distilled:
        """Return f̂ and f."""
        size = dims.obs + dims.act
        learner = MLP(size, self.outputs, self.network, rng["learner"])
        return Distilled(learner, MLP(size, self.outputs, self.network, rng["target"]))

    def loss(self, weights: Distilled, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L."""
        return Losses(weights(join(batch.obs, batch.act)).mean(-1))


@final
@dataclass(frozen=True)
class RNDScore(PairScore[Distilled]):
    """The error of a network that has learnt a random one."""

    training: Training = Training(updates=2000, lr=1e-3, clip=None)
    """How the network of the score is trained."""
    network: Network = Network(width=128, depth=2, activation="relu", init="default")
    """The architecture of both networks."""
    outputs: int = 32
    """m, numbers that both networks return."""

    def __post_init__(self) -> None:
        if not 1 <= self.outputs <= MOST_OUTPUTS:
            raise InvalidSettings(f"outputs must be from 1 to {MOST_OUTPUTS}; they are {self.outputs}.")

    @property
    def model(self) -> Distillation:
        """The model that is trained."""
        return Distillation(self.training, self.network, self.outputs)

    def init(self, context: Context, dims: Dims, rng: Rng) -> Distilled:
        """Return networks that are not trained."""
        return self.model.init(dims, rng)

    def fit(self, context: Context, pairs: Dataset, rng: Rng) -> Distilled:
        """Train f̂ to return what f returns for training pairs."""
        trained = train_model(self.model, pairs, rng)
        assert isinstance(trained, Distilled)
        return trained

    def score(self, weights: Distilled, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return the error of f̂."""
        return weights(join(s, a)[None]).double()
