"""Linear layers, whose order of operations changes only how fast they are, and networks of them."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from diffclone.nn.layers import MLP, LayerNorm, Linear, Network, product
from diffclone.rng import Rng


@pytest.mark.parametrize(("fan_in", "fan_out"), [(3, 5), (5, 3)])
@pytest.mark.parametrize(
    ("members", "shape"),
    [(1, (1,)), (1, (4,)), (1, (2, 1)), (1, (2, 4)), (4, (4,)), (4, (2, 4))],
)
def test_a_product_is_x_times_w_plus_b(fan_in: int, fan_out: int, members: int, shape: tuple[int, ...]) -> None:
    """Compare for x with a member axis, for shared weights, and for further leading axes."""
    layer = Linear(fan_in, fan_out, Rng(range(members), dtype=torch.float64)["init"])
    x = torch.randn(*shape, 7, fan_in, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    written_out = torch.einsum("...bi,...io->...bo", x, layer.weight) + layer.bias
    slopes = torch.autograd.grad(written_out.square().sum(), [layer.weight, layer.bias])
    for found in (product(x, layer.weight, layer.bias), layer(x)):
        assert torch.allclose(found, written_out, rtol=0, atol=1e-12)
        for mine, theirs in zip(
            torch.autograd.grad(found.square().sum(), [layer.weight, layer.bias]), slopes, strict=True
        ):
            assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


class Products(TorchDispatchMode):
    """Records the shapes of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in {torch.ops.aten.mm.default, torch.ops.aten.bmm.default}:
            self.sizes.append(tuple(found.shape[-2:]))
        return found


@pytest.mark.parametrize(("fan_in", "fan_out"), [(8, 128), (128, 8)])
def test_one_members_gradient_is_a_product_of_many_rows(fan_in: int, fan_out: int) -> None:
    """A GPU is slow at products with few rows and many columns."""
    layer = Linear(fan_in, fan_out, Rng([0])["init"])
    total = product(torch.ones(1, 32, fan_in), layer.weight, layer.bias).square().sum()
    with Products() as taken:
        torch.autograd.grad(total, [layer.weight])
    assert taken.sizes == [(128, 8)]


def test_layer_normalisation_by_hand() -> None:
    norm = LayerNorm(4, Rng([0, 1], dtype=torch.float64))
    with torch.no_grad():
        norm.gain[1], norm.bias[1] = 2.0, 3.0
    x = torch.tensor([[[1.0, 3.0, 1.0, 3.0]]], dtype=torch.float64).expand(2, 1, 4)
    # The mean is 2 and the variance 1.
    signs = torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    assert torch.allclose(norm(x), torch.stack([signs, 2 * signs + 3])[:, None], atol=1e-4)


def test_a_residual_network_by_hand() -> None:
    network = Network(width=8, depth=3, activation="silu", layer_norm=True, residual=True)
    net, x = MLP(2, 1, network, Rng([0, 1])), torch.randn(2, 5, 2)
    first, second, third, n1, n2, n3 = (layer for layers in (net.hidden, net.norms) for layer in layers)

    def silu(y: torch.Tensor) -> torch.Tensor:
        return y * torch.sigmoid(y)

    h = silu(n1(first(x)))  # the input has another size
    h = h + silu(n2(second(h)))
    h = h + silu(n3(third(h)))
    assert torch.allclose(net(x), net.out(h), atol=1e-6)


def test_gelu_is_the_function_of_that_name() -> None:
    net, x = MLP(1, 1, Network(width=8, depth=1, activation="gelu"), Rng([0])), torch.linspace(-4, 4, 50)[None, :, None]
    (hidden,) = net.hidden
    assert torch.allclose(net(x), net.out(torch.nn.functional.gelu(hidden(x))), atol=2e-3)


@pytest.mark.parametrize("changes", [{"layer_norm": True}, {"residual": True}, {"activation": "silu"}])
def test_members_of_any_network_are_independent(changes: dict[str, Any]) -> None:
    network = Network(width=8, depth=2, **changes)
    x = torch.randn(1, 5, 3)
    together = MLP(3, 2, network, Rng([3, 4]))(x.expand(2, 5, 3))
    assert torch.allclose(together[1], MLP(3, 2, network, Rng([4]))(x)[0], atol=1e-6)
    plain = MLP(3, 2, Network(width=8, depth=2), Rng([3]))(x)
    assert not torch.allclose(together[0], plain[0], atol=1e-3)
