"""A variational autoencoder of the expert's pairs: the cost of a pair is its reconstruction error.

x          = [s, a],   D numbers
z          = μ(x) + σ(x) · ε,          ε ~ N(0, I)
L_rec      = ‖x̂(z) − x‖²
L_KL       = ½ Σ (μ² + σ² − 1 − log σ²)
L_VAE      = L_rec + w L_KL
cost(s, a) = L_rec / D                 or L_VAE / D
"""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.guides.diffusion import join_pair
from diffclone.model import Batch, Default, Dims, Guide, Losses, Parts, Training, scoring
from diffclone.nn import MLP, Network
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Act, Costs, Obs, Rows


@final
class Autoencoder(nn.Module):
    """The encoder and the decoder."""

    def __init__(self, encoder: MLP, decoder: MLP):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, x: Rows, eps: Tensor) -> tuple[Tensor, Tensor]:
        """Return L_rec and L_KL of each row."""
        mean, log_std = self.encoder(x).chunk(2, -1)
        reconstructed = self.decoder(mean + log_std.exp() * eps)
        kl = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(-1)
        return (reconstructed - x).square().sum(-1), kl


@final
@dataclass(frozen=True)
class VAEGuide(Guide[Autoencoder]):
    """The paper's VAE guide: an autoencoder of the expert's pairs. The cost of a pair is its reconstruction error."""

    update_factor: ClassVar[int] = 2
    training: Training = Training(updates=40_000, lr=5e-4, clip=None)
    """How the guide is trained."""
    width: int = Default(128)
    """Units of a hidden layer, in both networks."""
    depth: int = 4
    """Hidden layers of each network."""
    latent: int = 128
    """Numbers of the latent z."""
    kl_weight: float = 0.1
    """w, the weight of L_KL. The paper has 1, with which z may carry no information: the
    cost is then the distance from the mean pair."""
    with_kl: bool = scoring(False)
    """Whether the cost includes L_KL. The paper's main text uses the reconstruction error alone."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.latent < 1 or self.depth < 1 or self.width < 1 or self.kl_weight < 0:
            raise InvalidSettings(
                f"latent, depth and width must be at least 1 and kl_weight not negative; they are "
                f"{self.latent}, {self.depth}, {self.width}, {self.kl_weight}."
            )

    def init(self, dims: Dims, rng: Rng) -> Autoencoder:
        """Return both networks."""
        network = Network(width=self.width, depth=self.depth, activation="leaky-relu", init="default")
        size = dims.obs + dims.act
        return Autoencoder(
            MLP(size, 2 * self.latent, network, rng["encoder"]), MLP(self.latent, size, network, rng["decoder"])
        )

    def loss(self, weights: Autoencoder, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_VAE."""
        x = join_pair(batch.obs, batch.act)
        rec, kl = (term.mean(-1) for term in weights(x, rng["latent"].normal(x.shape[-2], self.latent)))
        return Losses(rec + self.kl_weight * kl, {"L_rec": rec, "L_KL": kl})

    def draw(self, batch: int, dims: Dims, rng: Rng) -> Tensor:
        """Draw ε, the noise of the latent, one row per pair."""
        return rng["latent"].normal(batch, self.latent)

    def cost(self, weights: Autoencoder, obs: Obs, act: Act, draw: Tensor) -> Costs:
        """Return the reconstruction error per dimension, with w L_KL if `with_kl`."""
        x = join_pair(obs, act)
        rec, kl = weights(x, draw)
        return (rec + self.kl_weight * kl if self.with_kl else rec) / x.shape[-1]
