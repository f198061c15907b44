"""Features of images, trained before the guide, which then models p(f, a) instead of p(s, a).

f     = tanh(CNN(s))                                         k numbers, or
f     = [tanh(CNN(image)), numbers]                          if s is an image with numbers
L_enc = E ‖â(f) − a‖² + E ‖ŝ(f) − coarse(s)‖²                predict the action, and the image at a low resolution

â and ŝ are linear and are used in training only. Without features, thousands of pixels would outweigh the few numbers
of an action in a guide's cost.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Model, Parts, Training
from diffclone.nn import Linear, Network
from diffclone.nn.images import ConvNet, pool, split_numbers, stack_images
from diffclone.rng import Rng
from diffclone.settings import check_types
from diffclone.shapes import Obs


@final
class EncoderNet(nn.Module):
    """The network of f, and the linear maps that it is trained with."""

    def __init__(self, features: ConvNet, act: Linear, coarse: Linear):
        super().__init__()
        self.features = features
        self.act = act
        self.coarse = coarse


@final
@dataclass(frozen=True)
class Encoder(Model[EncoderNet]):
    """Encodes an image as a few numbers."""

    training: Training = Training(updates=2_000, lr=5e-4)
    """How the encoder is trained."""
    network: Network = Network(width=256, depth=1, activation="relu", image=(2, 64, 64))
    """CNN, and the size of an image."""
    features: int = 32
    """k, number of features."""
    pool: int = 8
    """Side of the squares of pixels that coarse(s) averages."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.network.dropout:
            raise InvalidSettings(
                f"an encoder has no dropout; network.dropout must be 0; it is {self.network.dropout}."
            )
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
        """Return f, â and ŝ."""
        steps, image = stack_images(dims.obs, self.image, self.network.state)
        size = self.features + steps * self.network.state
        return EncoderNet(
            ConvNet(image, self.features, self.network, rng["features"], steps=steps),
            Linear(size, dims.act, rng["act"]),
            Linear(size, math.prod(image) // self.pool**2, rng["coarse"]),
        )

    def loss(self, weights: EncoderNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L_enc."""
        f = self.encode(weights, batch.obs)
        act = (batch.mask(weights.act(f)) - batch.act).square().mean((-2, -1))
        pixels, _ = split_numbers(batch.obs, weights.features.steps, self.network.state)
        coarse = (weights.coarse(f) - pool(pixels, weights.features.image, self.pool)).square().mean((-2, -1))
        return Losses(act + coarse, {"L_act": act, "L_coarse": coarse})

    def encode(self, weights: EncoderNet, obs: Obs) -> Tensor:
        """Return f of each observation, (…, batch, k), and after it the numbers beside an image."""
        pixels, numbers = split_numbers(obs, weights.features.steps, self.network.state)
        f = torch.tanh(weights.features(pixels))
        return f if numbers is None else torch.cat([f, numbers.expand(*f.shape[:-1], -1)], -1)
