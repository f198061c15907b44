"""Replacements of `init` and `loss` that check the results, or make a member NaN."""

from collections.abc import Callable
from typing import Any

from torch import nn

from diffclone.model import Batch, Dims, Losses, Method, Model, Parts
from diffclone.rng import Rng


def require(condition: bool, model: Model[Any], message: str) -> None:  # noqa: FBT001
    """Raise `AssertionError` with the name of the model."""
    if not condition:
        raise AssertionError(f"{type(model).__name__}: {message}.")


def checked_init(method: Method[Any], cls: type[Model[Any]]) -> Callable[..., nn.Module]:
    """Return `init` of a class with checks of the weights."""
    original = cls.init

    def init(self: Model[Any], dims: Dims, rng: Rng) -> nn.Module:
        net = original(self, dims, rng)
        for name, weight in net.named_parameters():
            what = f"`init` of {cls.__name__} makes {name}"
            shape, members = tuple(weight.shape), len(rng.seeds)
            require(
                shape[:1] == (members,), method, f"{what} of shape {shape}; the first axis must be {members} members"
            )
            require(weight.dtype == rng.dtype, method, f"{what} as {weight.dtype}; it must be {rng.dtype}, as of `rng`")
        return net

    return init


def checked_loss(method: Method[Any], cls: type[Model[Any]]) -> Callable[..., Losses]:
    """Return `loss` of a class with checks of the losses."""
    original = cls.loss

    def loss(self: Model[Any], weights: nn.Module, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        losses = original(self, weights, batch, rng, parts)
        members, dtype = len(next(weights.parameters())), batch.act.dtype
        for name, value in {"total": losses.total, **losses.logs}.items():
            what, shape = f"`loss` of {cls.__name__} returns {name}", tuple(value.shape)
            rule = f"it must be ({members},), one number per member: reduce the last two axes only"
            require(shape == (members,), method, f"{what} of shape {shape}; {rule}")
            require(value.dtype == dtype, method, f"{what} as {value.dtype}; it must be {dtype}, as the batch")
        return losses

    return loss


def poisoned_init(cls: type[Model[Any]]) -> Callable[..., nn.Module]:
    """Return `init` of a class with NaN weights of the first of two members."""
    original = cls.init

    def init(self: Model[Any], dims: Dims, rng: Rng) -> nn.Module:
        net = original(self, dims, rng)
        for weight in net.parameters() if len(rng.seeds) == 2 else ():
            weight.data[0] = float("nan")
        return net

    return init
