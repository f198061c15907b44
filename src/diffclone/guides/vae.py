"""A variational auto-encoder of the expert's pairs: the cost of a pair is how badly it is rebuilt.

x          = [s, a],   of D numbers
z          = μ(x) + σ(x) · ε,          ε ~ N(0, I)
L_rec      = ‖x̂(z) − x‖²
L_KL       = ½ Σ (μ² + σ² − 1 − log σ²)
L_VAE      = L_rec + w L_KL
cost(s, a) = L_rec / D                 or L_VAE / D
"""

from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.guides.diffusion import pair
from diffclone.model import Batch, Dims, Guide, Losses, Parts, Training, judging
from diffclone.nn import MLP, Network
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs, Rows


@final
class Autoencoder(nn.Module):
    """The two networks."""

    def __init__(self, encoder: MLP, decoder: MLP):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, x: Rows, eps: Tensor) -> tuple[Tensor, Tensor]:
        """L_rec and L_KL of each row."""
        mean, log_std = self.encoder(x).chunk(2, -1)
        rebuilt = self.decoder(mean + log_std.exp() * eps)
        kl = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(-1)
        return (rebuilt - x).square().sum(-1), kl


@final
@dataclass(frozen=True)
class VAEGuide(Guide[Autoencoder]):
    """The paper's guide by reconstruction."""

    training: Training = Training(updates=40_000, lr=5e-4, clip=None)
    width: int = 128
    """Units of a hidden layer, in both networks."""
    depth: int = 4
    """Hidden layers of each."""
    latent: int = 128
    """Numbers in z."""
    kl_weight: float = 0.1
    """w. The paper has 1, with which z may tell nothing at all and every pair costs its distance from the mean."""
    with_kl: bool = judging(False)
    """Whether the cost has L_KL in it. The paper's main text speaks of the reconstruction error."""

    def __post_init__(self) -> None:
        if self.latent < 1 or self.depth < 1 or self.width < 1 or self.kl_weight < 0:
            raise InvalidSettings(
                f"latent, depth and width must be at least 1 and kl_weight not negative; they are "
                f"{self.latent}, {self.depth}, {self.width}, {self.kl_weight}."
            )

    def init(self, dims: Dims, rng: Rng) -> Autoencoder:
        """Both networks."""
        network = Network(width=self.width, depth=self.depth, activation="leaky-relu", init="default")
        size = dims.obs + dims.act
        return Autoencoder(
            MLP(size, 2 * self.latent, network, rng["encoder"]), MLP(self.latent, size, network, rng["decoder"])
        )

    def loss(self, weights: Autoencoder, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L_VAE."""
        x = pair(batch.obs, batch.act)
        rebuilt, kl = (part.mean(-1) for part in weights(x, rng["latent"].normal(x.shape[-2], self.latent)))
        return Losses(rebuilt + self.kl_weight * kl, {"L_rec": rebuilt, "L_KL": kl})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> Tensor:
        """ε."""
        return rng["latent"].normal(batch, self.latent)

    def cost(self, weights: Autoencoder, obs: Obs, act: Act, draw: Tensor) -> Costs:
        """What a pair loses on its way through z."""
        x = pair(obs, act)
        rebuilt, kl = weights(x, draw)
        return (rebuilt + self.kl_weight * kl if self.with_kl else rebuilt) / x.shape[-1]
