"""Features of pictures, learned before anything else: a guide then models p(f, a) instead of p(s, a).

f     = tanh(CNN(s))                                         k numbers
L_enc = E ‖â(f) − a‖² + E ‖ŝ(f) − coarse(s)‖²                what the expert did there, and what there was to see

â and ŝ are linear, and are of no use once f is learned. Thousands of grey values would leave the few numbers of an
action no say in a guide's cost.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Model, Parts, Training
from diffclone.nn import Linear, Network
from diffclone.nn.images import PictureNet, check_size, pool
from diffclone.rng import Rng
from diffclone.shapes import Obs


@final
class EncoderNet(nn.Module):
    """The network of f, and what it is trained by."""

    def __init__(self, features: PictureNet, act: Linear, coarse: Linear):
        super().__init__()
        self.features = features
        self.act = act
        self.coarse = coarse


@final
@dataclass(frozen=True)
class Encoder(Model[EncoderNet]):
    """Few numbers that stand for a picture."""

    training: Training = Training(updates=2_000, lr=5e-4)
    network: Network = Network(width=256, depth=1, activation="relu", image=(2, 64, 64))
    """CNN, and the size of a picture."""
    features: int = 32
    """k."""
    pool: int = 8
    """Side of the squares of pixels that a picture is made coarse by."""

    def __post_init__(self) -> None:
        image = self.network.image
        if image is None or self.pool < 1 or any(side % self.pool for side in image[1:]) or self.features < 1:
            raise InvalidSettings(
                f"an encoder needs network.image, its height and width multiples of pool, and features; they are "
                f"{image}, {self.pool}, {self.features}."
            )

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        assert self.network.image is not None
        return self.network.image

    def init(self, dims: Dims, rng: Rng) -> EncoderNet:
        """f, â and ŝ."""
        check_size(dims.obs, self.image)
        return EncoderNet(
            PictureNet(self.image, self.features, self.network, rng["features"]),
            Linear(self.features, dims.act, rng["act"]),
            Linear(self.features, dims.obs // self.pool**2, rng["coarse"]),
        )

    def loss(self, weights: EncoderNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L_enc."""
        f = self.encode(weights, batch.obs)
        act = (weights.act(f) - batch.act).square().mean((-2, -1))
        coarse = (weights.coarse(f) - pool(batch.obs, self.image, self.pool)).square().mean((-2, -1))
        return Losses(act + coarse, {"L_act": act, "L_coarse": coarse})

    def encode(self, weights: EncoderNet, obs: Obs) -> Tensor:
        """F of each picture, (…, batch, k)."""
        return torch.tanh(weights.features(obs))
