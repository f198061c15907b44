"""Networks that look at pictures: three convolutions, then a multi-layer perceptron.

A picture comes as one row of numbers, channels · height · width, so that it is a feature axis like any other: inputs
are (…, batch, in). Weights are (members, out, in, side, side), and one grouped convolution serves all members.
"""

import math
from typing import TypeAlias, final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.nn.layers import ACTIVATIONS, MLP, Network, initial_weights
from diffclone.rng import Rng

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, side of the window and stride of each convolution: the usual three for small pictures."""


@final
class Convolution(nn.Module):
    """A window slid over a picture, without a margin, for each member its own."""

    def __init__(self, channels_in: int, channels_out: int, side: int, stride: int, network: Network, rng: Rng):
        super().__init__()
        weight, bias = initial_weights(channels_in * side**2, channels_out, rng, network.init)
        self.weight = nn.Parameter(weight.mT.unflatten(-1, (channels_in, side, side)).contiguous())
        self.bias = nn.Parameter(bias)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """(members, batch, in, height, width) to (members, batch, out, less height, less width)."""
        members = len(self.weight)
        beside = x.transpose(0, 1).flatten(1, 2)  # members side by side, as groups of channels
        seen = torch.conv2d(beside, self.weight.flatten(0, 1), self.bias.flatten(), stride=self.stride, groups=members)
        return seen.unflatten(1, (members, -1)).transpose(0, 1)


@final
class PictureNet(nn.Module):
    """Convolutions, and an MLP of what they find."""

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

    def forward(self, x: Tensor) -> Tensor:
        """(…, batch, in) to (…, batch, out); what leads is members, or is shared by all of them."""
        members = len(self.mlp.out.weight)
        seen = x.expand(members, *x.shape[-2:]).unflatten(-1, self.image)
        for layer in self.convolutions:
            seen = self.activation(layer(seen))
        return self.mlp(seen.flatten(-3))


PolicyNet: TypeAlias = MLP | PictureNet
"""What a policy's `Network` can be made into."""


def policy_net(obs: int, act: int, network: Network, rng: Rng) -> PolicyNet:
    """Fresh weights of a policy: an MLP, after convolutions where an observation is a picture."""
    if network.image is None:
        return MLP(obs, act, network, rng)
    check_size(obs, network.image)
    return PictureNet(network.image, act, network, rng)


def check_size(obs: int, image: tuple[int, int, int]) -> None:
    """An observation must have the numbers of the picture it is said to be."""
    if math.prod(image) != obs:
        raise InvalidSettings(
            f"an observation has {obs} numbers; a picture of {' × '.join(map(str, image))} (the setting `image`) "
            f"has {math.prod(image)}."
        )


def pool(obs: Tensor, image: tuple[int, int, int], side: int) -> Tensor:
    """Pictures (…, batch, in) averaged over squares of `side` × `side` pixels, (…, batch, in / side²)."""
    channels, height, width = image
    squares = obs.unflatten(-1, (channels, height // side, side, width // side, side))
    return squares.mean((-3, -1)).flatten(-3)
