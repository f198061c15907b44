"""Networks for images: three convolutions, then a multi-layer perceptron.

An image is one row of channels · height · width numbers, a feature axis like any other: inputs are (…, batch, in).
Weights are (members, out, in, side, side). One grouped convolution computes all members.
"""

import math
from typing import TypeAlias, final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.nn.layers import ACTIVATIONS, MLP, Network, initial_weights
from diffclone.rng import Rng

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride of each convolution: the usual three for small images."""


@final
class Convolution(nn.Module):
    """A convolution without padding, with its own weights for each member."""

    def __init__(self, channels_in: int, channels_out: int, side: int, stride: int, network: Network, rng: Rng):
        super().__init__()
        weight, bias = initial_weights(channels_in * side**2, channels_out, rng, network.init)
        self.weight = nn.Parameter(weight.mT.unflatten(-1, (channels_in, side, side)).contiguous())
        self.bias = nn.Parameter(bias)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Map (members, batch, in, height, width) to (members, batch, out, smaller height, smaller width)."""
        members = len(self.weight)
        grouped = x.transpose(0, 1).flatten(1, 2)  # members as groups of channels
        out = torch.conv2d(grouped, self.weight.flatten(0, 1), self.bias.flatten(), stride=self.stride, groups=members)
        return out.unflatten(1, (members, -1)).transpose(0, 1)


@final
class ConvNet(nn.Module):
    """Convolutions, then an MLP."""

    def __init__(self, image: tuple[int, int, int], fan_out: int, network: Network, rng: Rng):
        super().__init__()
        self.image = image
        channels, *sides = image
        layers: list[Convolution] = []
        for out, side, stride in LAYERS:
            layers.append(Convolution(channels, out, side, stride, network, rng))
            channels, sides = out, [(length - side) // stride + 1 for length in sides]
        self.convolutions = nn.ModuleList(layers)
        self.mlp = MLP(channels * math.prod(sides), fan_out, network, rng)
        self.activation = ACTIVATIONS[network.activation]

    def forward(self, x: Tensor, dropout: Rng | None = None) -> Tensor:
        """Map (…, batch, in) to (…, batch, out). All members receive the input if it has no member axis."""
        members = len(self.mlp.out.weight)
        hidden = x.expand(members, *x.shape[-2:]).unflatten(-1, self.image)
        for layer in self.convolutions:
            hidden = self.activation(layer(hidden))
        return self.mlp(hidden.flatten(-3), dropout)


PolicyNet: TypeAlias = MLP | ConvNet
"""The network of a policy."""


def policy_net(obs: int, act: int, network: Network, rng: Rng) -> PolicyNet:
    """Return initial weights of a policy: an MLP, after convolutions if observations are images."""
    if network.image is None:
        return MLP(obs, act, network, rng)
    return ConvNet(stack_images(obs, network.image), act, network, rng)


def stack_images(obs: int, image: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the sides of an observation of `obs` numbers: one image, or a history of them stacked as channels."""
    images, rest = divmod(obs, math.prod(image))
    if rest or not images:
        raise InvalidSettings(
            f"an observation has {obs} numbers; an image of {' × '.join(map(str, image))} (the setting `image`) "
            f"has {math.prod(image)}."
        )
    return (images * image[0], *image[1:])


def pool(obs: Tensor, image: tuple[int, int, int], side: int) -> Tensor:
    """Average images (…, batch, in) over squares of `side` × `side` pixels, to (…, batch, in / side²)."""
    channels, height, width = image
    squares = obs.unflatten(-1, (channels, height // side, side, width // side, side))
    return squares.mean((-3, -1)).flatten(-3)
