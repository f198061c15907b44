"""Networks for images: three convolutions, then a multi-layer perceptron.

    h = relu(conv(image)), three times                    [h, numbers] is the input of the perceptron

An image is one row of channels · height · width numbers, a feature axis like any other: inputs are (…, batch, in). The
numbers of an image with numbers follow its pixels. Images of a history are stacked as channels.
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
    """Convolutions, then an MLP, which also receives the numbers beside the images."""

    def __init__(
        self, image: tuple[int, int, int], fan_out: int, network: Network, rng: Rng, *, steps: int = 1, numbers: int = 0
    ):
        """Make the network of images (channels, height, width) that have the channels of `steps` observations.

        Each observation has `numbers` more values.
        """
        super().__init__()
        self.image, self.steps, self.numbers, self.shift = image, steps, numbers, network.shift
        channels, *sides = image
        layers: list[Convolution] = []
        for out, side, stride in LAYERS:
            layers.append(Convolution(channels, out, side, stride, network, rng))
            channels, sides = out, [(length - side) // stride + 1 for length in sides]
        self.convolutions = nn.ModuleList(layers)
        self.mlp = MLP(channels * math.prod(sides) + steps * numbers, fan_out, network, rng)
        self.activation = ACTIVATIONS[network.activation]

    def forward(self, x: Tensor, dropout: Rng | None = None) -> Tensor:
        """Map (…, batch, in) to (…, batch, out). All members receive the input if it has no member axis."""
        members = len(self.mlp.out.weight)
        if members == 1 and x.dim() == 3 and len(x) > 1:  # several members share this network
            return self(x.flatten(0, 1), dropout)[0].unflatten(0, x.shape[:2])
        pixels, numbers = split_numbers(x.expand(members, *x.shape[-2:]), self.steps, self.numbers)
        hidden = pixels.unflatten(-1, self.image)
        if self.shift and dropout is not None:
            hidden = shift_images(hidden, self.shift, dropout["shift"])
        for layer in self.convolutions:
            hidden = self.activation(layer(hidden))
        hidden = hidden.flatten(-3)
        return self.mlp(hidden if numbers is None else torch.cat([hidden, numbers], -1), dropout)


PolicyNet: TypeAlias = MLP | ConvNet
"""The network of a policy."""


def policy_net(obs: int, act: int, network: Network, rng: Rng) -> PolicyNet:
    """Return initial weights of a policy: an MLP, after convolutions if observations are images."""
    if network.image is None:
        return MLP(obs, act, network, rng)
    steps, image = stack_images(obs, network.image, network.state)
    return ConvNet(image, act, network, rng, steps=steps, numbers=network.state)


def stack_images(obs: int, image: tuple[int, int, int], numbers: int = 0) -> tuple[int, tuple[int, int, int]]:
    """Return how many images an input of `obs` values has, each followed by `numbers`, and their sides when stacked."""
    steps, rest = divmod(obs, math.prod(image) + numbers)
    if rest or not steps:
        more = f" and {numbers} numbers (`state`)" if numbers else ""
        raise InvalidSettings(
            f"an observation has {obs} numbers; an image of {' × '.join(map(str, image))} (the setting `image`){more} "
            f"has {math.prod(image) + numbers}."
        )
    return steps, (steps * image[0], *image[1:])


def split_numbers(x: Tensor, steps: int, numbers: int) -> tuple[Tensor, Tensor | None]:
    """Return the pixels of (…, batch, in), all images one after the other, and the numbers beside them, if any."""
    if not numbers:
        return x, None
    each = x.unflatten(-1, (steps, -1))
    return each[..., :-numbers].flatten(-2), each[..., -numbers:].flatten(-2)


def shift_images(images: Tensor, most: int, rng: Rng) -> Tensor:
    """Shift each image (members, batch, channels, height, width) by up to `most` pixels, and repeat its edge."""
    for axis, moved in zip((-2, -1), rng.integers(2 * most + 1, images.shape[1], 2).unbind(-1), strict=True):
        place = torch.arange(images.shape[axis], device=images.device) + (moved - most)[..., None]
        index = place.clamp(0, images.shape[axis] - 1)[:, :, None]
        images = torch.take_along_dim(images, index[..., None] if axis == -2 else index[..., None, :], axis)
    return images


def pool(obs: Tensor, image: tuple[int, int, int], side: int) -> Tensor:
    """Average images (…, batch, in) over squares of `side` × `side` pixels, to (…, batch, in / side²)."""
    channels, height, width = image
    squares = obs.unflatten(-1, (channels, height // side, side, width // side, side))
    return squares.mean((-3, -1)).flatten(-3)
