"""Linear layers and networks of them. Weights are (members, in, out), inputs are (…, batch, in)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, final

import torch
from torch import Tensor, nn

from diffclone.data.layout import SMALLEST_SIDE
from diffclone.errors import InvalidSettings
from diffclone.rng import Rng
from diffclone.settings import added, check_types

Activation = Literal["tanh", "relu", "leaky-relu", "silu", "gelu"]
Initialisation = Literal["default", "orthogonal"]
TimeConditioning = Literal["table", "sinusoidal"]

LAYER_NORM_EPS = 1e-5
"""Added to the variance in a layer normalisation."""

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky-relu": nn.functional.leaky_relu,
    "silu": nn.functional.silu,
    "gelu": partial(nn.functional.gelu, approximate="tanh"),  # which NumPy can compute, too
}


@final
class Linear(nn.Module):
    """x W + b, with one matrix product per member."""

    def __init__(self, fan_in: int, fan_out: int, rng: Rng, init: Initialisation = "default"):
        super().__init__()
        weight, bias = initial_weights(fan_in, fan_out, rng, init)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, batch, in) to (…, batch, out)."""
        if x.dim() == 3 and x.shape[0] == self.weight.shape[0] and not x.is_cuda:
            return torch.baddbmm(self.bias, x, self.weight)
        return product(x, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W + b in the form that is fastest on a GPU, or with one W for the x of all members."""
    members, fan_in, fan_out = weight.shape
    if members > 1:
        # The compiler fuses the addition with the next operation; baddbmm would first copy the bias.
        return x @ weight + bias
    if x.dim() != 3 or x.shape[0] > 1:  # shared weights: a single product of all rows
        return nn.functional.linear(x, weight[0].mT, bias[0, 0])
    if fan_in < fan_out:
        # A GPU takes 52 µs for the gradient of 8 × 128 weights, and 4 µs for that of 128 × 8. Autograd gives a
        # gradient the layout of the matrix in the product, hence the copy.
        return nn.functional.linear(x, weight[0].mT.contiguous(), bias[0, 0])
    return x @ weight + bias


def initial_weights(fan_in: int, fan_out: int, rng: Rng, init: Initialisation) -> tuple[Tensor, Tensor]:
    """Return a weight (members, in, out) and a bias (members, 1, out)."""
    if init == "orthogonal":
        return orthogonal(fan_in, fan_out, rng) * math.sqrt(2), rng.uniform(1, fan_out) * 0
    bound = 1 / math.sqrt(fan_in)
    weight = (2 * rng.uniform(fan_in, fan_out) - 1) * bound
    return weight, (2 * rng.uniform(1, fan_out) - 1) * bound


def orthogonal(fan_in: int, fan_out: int, rng: Rng) -> Tensor:
    """Return a random matrix per member with orthonormal columns, or rows if there are fewer rows."""
    tall = rng.normal(max(fan_in, fan_out), min(fan_in, fan_out))
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # uniform over all such matrices
    return q if fan_in >= fan_out else q.mT.contiguous()


@final
@dataclass(frozen=True)
class Network:
    """The architecture of a policy's network."""

    width: int = 256
    """Units of a hidden layer."""
    depth: int = 3
    """Hidden layers."""
    activation: Activation = "tanh"
    """Activation after each hidden layer. The output is linear."""
    init: Initialisation = "orthogonal"
    """Initial weights of hidden layers: orthogonal with gain √2 and zero bias, or PyTorch's default. The last layer has
    the default."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width of observations that are images: three convolutions (`nn/images.py`) then precede the
    hidden layers. None for plain numbers."""
    dropout: float = added(0.0)
    """Probability with which a unit of a hidden layer is 0 in training, rounded to a multiple of 1/256; the other units
    are scaled up to keep the mean. Actions use all units."""
    layer_norm: bool = added(absent=False)
    """Whether each hidden layer is normalised over its units before its activation: to mean 0 and variance 1, then with
    a learned gain and bias."""
    residual: bool = added(absent=False)
    """Whether each hidden layer after the first adds its output to its input, h ← h + f(W h + b)."""
    state: int = added(0)
    """Numbers that follow the image in an observation. They join the output of the convolutions."""
    shift: int = added(0)
    """Largest random shift of an image in training, in pixels, up or down and left or right; the edge is repeated.
    Actions use the image as it is."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.width < 1 or self.depth < 0:
            raise InvalidSettings(
                f"width must be at least 1, and depth not negative; they are {self.width} and {self.depth}."
            )
        if not 0 <= self.dropout < 1 or round(256 * self.dropout) == 256:
            raise InvalidSettings(f"dropout must be at least 0 and below 1; it is {self.dropout}.")
        if self.image is not None and (
            len(self.image) != 3 or self.image[0] < 1 or min(self.image[1:]) < SMALLEST_SIDE
        ):
            raise InvalidSettings(
                f"image must be channels, height and width, at least 1, {SMALLEST_SIDE} and {SMALLEST_SIDE}; it is "
                f"{self.image}."
            )
        most = 0 if self.image is None else min(self.image[1:]) - 1
        if self.state < 0 or (self.state and self.image is None) or not 0 <= self.shift <= most:
            raise InvalidSettings(
                "state and shift belong to an image and are not negative, and shift is less than a side; image, state "
                f"and shift are {self.image}, {self.state}, {self.shift}."
            )


@final
class LayerNorm(nn.Module):
    """Normalises over units to mean 0 and variance 1, then applies a learned gain and bias per member."""

    def __init__(self, width: int, rng: Rng):
        super().__init__()
        shape = (len(rng.seeds), 1, width)
        self.gain = nn.Parameter(torch.ones(shape, device=rng.device, dtype=rng.dtype))
        self.bias = nn.Parameter(torch.zeros(shape, device=rng.device, dtype=rng.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, batch, width) to (…, batch, width)."""
        return nn.functional.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPS) * self.gain + self.bias


@final
class MLP(nn.Module):
    """A multi-layer perceptron, plain or with residual connections and layer normalisation."""

    def __init__(self, fan_in: int, fan_out: int, network: Network, rng: Rng):
        super().__init__()
        sizes = [fan_in] + [network.width] * network.depth
        self.hidden = nn.ModuleList(Linear(a, b, rng, network.init) for a, b in pairwise(sizes))
        self.out = Linear(sizes[-1], fan_out, rng)
        self.activation = ACTIVATIONS[network.activation]
        self.norms = nn.ModuleList(LayerNorm(network.width, rng) for _ in range(network.depth * network.layer_norm))
        self.dropped, self.residual = round(256 * network.dropout), network.residual

    def forward(self, x: Tensor, dropout: Rng | None = None) -> Tensor:
        """Map (…, batch, in) to (…, batch, out); in training with the random numbers of dropout."""
        for n, layer in enumerate(self.hidden):
            h = layer(x)
            h = self.activation(self.norms[n](h) if self.norms else h)
            if self.dropped and dropout is not None:
                h = h * dropout.kept(self.dropped, *h.shape[-2:]) * (256 / (256 - self.dropped))
            x = x + h if self.residual and n else h
        return self.out(x)


@final
class ResidualMLP(nn.Module):
    """Residual blocks h ← h + W₂ relu(W₁ relu(h)) between a linear input and a linear output layer."""

    def __init__(self, fan_in: int, fan_out: int, width: int, blocks: int, rng: Rng):
        super().__init__()
        self.inward = Linear(fan_in, width, rng)
        self.first = nn.ModuleList(Linear(width, width, rng) for _ in range(blocks))
        self.second = nn.ModuleList(Linear(width, width, rng) for _ in range(blocks))
        self.out = Linear(width, fan_out, rng)

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, batch, in) to (…, batch, out)."""
        h = self.inward(x)
        for first, second in zip(self.first, self.second, strict=True):
            h = h + second(torch.relu(first(torch.relu(h))))
        return self.out(h)


@final
class Denoiser(nn.Module):
    """Predicts the noise in x at diffusion step t: layers h ← relu(W h + e(t)), then a linear output.

    e(t) is a learned table per layer, as in the released code, or a learned map of a sinusoidal embedding of t. The
    input may have `condition` more numbers, which carry no noise.
    """

    def __init__(
        self,
        size: int,
        steps: int,
        width: int,
        depth: int,
        conditioning: TimeConditioning,
        rng: Rng,
        *,
        condition: int = 0,
    ):
        super().__init__()
        sizes = [size + condition] + [width] * depth
        self.layers = nn.ModuleList(Linear(a, b, rng) for a, b in pairwise(sizes))
        if conditioning == "table":
            self.tables = nn.ParameterList(nn.Parameter(rng.normal(steps, width)) for _ in range(depth))
            self.time = None
        else:
            self.time = Linear(FREQUENCIES, depth * width, rng)  # one product for all layers
            waves = sinusoids(steps).to(rng.device, rng.dtype)
            self.register_buffer("waves", waves, persistent=False)
        self.out = Linear(width, size, rng)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Map x (…, rows, size + condition) and t (…, rows) to the predicted noise (…, rows, size)."""
        return self.denoise(x, self.embed(t))

    def denoise(self, x: Tensor, embedded: Sequence[Tensor]) -> Tensor:
        """Return the predicted noise, given e(t) per layer: (…, rows, width), or (…, 1, width) if all rows share t."""
        for layer, e in zip(self.layers, embedded, strict=True):
            x = torch.relu(layer(x) + e)
        return self.out(x)

    def embed(self, t: Tensor) -> list[Tensor]:
        """Return e(t) for each layer, (…, rows, width)."""
        # `embedding` copies whole rows, which is much faster than indexing single numbers.
        if self.time is not None:
            waves: Tensor = self.waves  # pyright: ignore[reportAssignmentType]
            return list(self.time(nn.functional.embedding(t, waves)).chunk(len(self.layers), -1))
        members, steps, _ = self.tables[0].shape
        # The tables of all members are stacked in one.
        row = t if members == 1 else t + steps * torch.arange(members, device=t.device)[:, None]
        return [nn.functional.embedding(row, table.flatten(0, 1)) for table in self.tables]


FREQUENCIES = 64


def sinusoids(steps: int) -> Tensor:
    """Return a sinusoidal embedding (steps, FREQUENCIES) with periods from all steps down to two steps."""
    t = torch.arange(steps, dtype=torch.float64)[:, None] / steps
    rates = 2 * math.pi * torch.logspace(0, math.log2(steps / 2), FREQUENCIES // 2, base=2, dtype=torch.float64)
    return torch.cat([(t * rates).sin(), (t * rates).cos()], -1)
