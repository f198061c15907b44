"""The order of operations in a linear layer changes how fast it is on a GPU, and nothing else."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from diffclone.nn.layers import Linear, product
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
