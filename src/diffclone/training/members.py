"""Members: models that differ in their seed, or in fields marked stackable, and are trained together."""

import copy
import dataclasses
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar, cast, final

import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.model import Model

M = TypeVar("M", bound=Model[Any])
Net = TypeVar("Net", bound=nn.Module)
S = TypeVar("S")

MAX_MEMBERS = 100_000
"""More members than any machine can train at once."""

Member = dict[str, int | float]
"""The seed of a member, and its values of the fields that vary."""


@final
@dataclass(frozen=True)
class Stack:
    """Every combination of seeds and varied fields. The seeds change fastest."""

    seeds: tuple[int, ...]
    vary: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, model: Model[Any], seeds: int | Sequence[int], vary: Mapping[str, Sequence[float]] | None) -> "Stack":
        """Check seeds and values against the model's fields, and return them as a stack."""
        seeds = list_seeds(seeds)
        allowed = stackable_fields(model)
        checked: dict[str, tuple[float, ...]] = {}
        given: Any = {} if vary is None else vary
        if not isinstance(given, Mapping):
            raise InvalidSettings(f'vary must be a dict such as {{"coefficient": [0, 10, 30]}}; it is {vary!r}.')
        for name, values in cast(Mapping[str, Any], given).items():
            if name not in allowed:
                raise InvalidSettings(
                    f"members of {type(model).__name__} cannot vary in {name!r}; "
                    f"fields that can vary: {', '.join(allowed) or 'none'}."
                )
            try:
                checked[name] = tuple(float(value) for value in values)
            except (TypeError, ValueError):
                checked[name] = ()
            if not checked[name]:
                raise InvalidSettings(f"{name} must vary over a list of numbers, at least one; it is {values!r}.")
            for value in checked[name]:
                replace_fields(model, {name: value})  # raises an error for a value that the field cannot have
        check_number(len(seeds) * math.prod(map(len, checked.values())))
        return cls(tuple(seeds), checked)

    @property
    def members(self) -> list[Member]:
        """One entry per member, in the order of the member axis."""
        grid = itertools.product(*self.vary.values())
        return [{"seed": seed, **dict(zip(self.vary, values, strict=True))} for values in grid for seed in self.seeds]

    @property
    def member_seeds(self) -> tuple[int, ...]:
        """The seed of each member."""
        return tuple(int(member["seed"]) for member in self.members)

    def expand_fields(self, model: M, device: torch.device, dtype: torch.dtype) -> M:
        """Return the model with one number per member in each varied field."""
        columns = {
            name: torch.tensor([float(m[name]) for m in self.members], dtype=dtype, device=device) for name in self.vary
        }
        return replace_fields(model, columns)

    def slice_fields(self, expanded: M, members: slice) -> M:
        """Return an expanded model with the numbers of some members."""
        return replace_fields(expanded, {name: operator.attrgetter(name)(expanded)[members] for name in self.vary})


def list_seeds(seeds: Any) -> list[int]:
    """Return the seeds of the members; a number N means the seeds 0 to N − 1."""
    try:
        number = operator.index(seeds) if isinstance(seeds, Integral) else len(seeds)
        check_number(number)
        found = [operator.index(seed) for seed in (range(number) if isinstance(seeds, Integral) else seeds)]
    except TypeError:
        found = []
    if not found or len(set(found)) != len(found) or min(found) < 0:
        raise InvalidSettings(
            "seeds must be different whole numbers of at least 0, such as [0, 1, 2], or how many, at least 1; they are "
            f"{str(seeds)[:80]}."
        )
    return found


def check_number(members: int) -> None:
    """Refuse more members than can be trained."""
    if members > MAX_MEMBERS:
        raise InvalidSettings(f"one training can have at most {MAX_MEMBERS} members; these would be {members}.")


def stackable_fields(settings: Any) -> list[str]:
    """Return the names of the fields in which members may differ, e.g. "coefficient" and "training.lr"."""
    fields = {f.name: (getattr(settings, f.name), f) for f in dataclasses.fields(settings)}
    own = [name for name, (_, field) in fields.items() if field.metadata.get("stackable")]
    # Other models are trained by themselves, not once per member.
    inner = {n: v for n, (v, _) in fields.items() if dataclasses.is_dataclass(v) and not isinstance(v, Model)}
    return own + [f"{name}.{field}" for name, value in inner.items() for field in stackable_fields(value)]


def replace_fields(settings: S, values: Mapping[str, Any]) -> S:
    """Return settings with other values of some fields; a dot separates the names of nested fields."""
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        own: Any = replace_fields(getattr(settings, outer), {inner: value}) if dot else value
        settings = dataclasses.replace(cast(Any, settings), **{outer: own})
    return settings


def select_members(net: Net, members: slice | Sequence[int]) -> Net:
    """Return a copy with the weights of some members; a net with one set of weights is shared and returned as it is."""
    if next(net.parameters()).shape[0] == 1:
        return net
    chosen = copy.deepcopy(net)
    for parameter in chosen.parameters():
        parameter.data = parameter.data[members]
    return chosen


def to_matrix(net: nn.Module) -> Tensor:
    """Move all weights of a net into one (members, numbers) matrix, of which its parameters become views.

    A member is then a row: clipping, Adam, averaging, saving and choosing members are each one operation.
    """
    members = next(net.parameters()).shape[0]
    matrix = torch.cat([p.detach().reshape(members, -1) for p in net.parameters()], 1)
    from_matrix(net, matrix)
    return matrix


def from_matrix(net: Net, matrix: Tensor) -> Net:
    """Make the parameters of a net views of this matrix, which may have another number of members."""
    shapes = [p.shape[1:] for p in net.parameters()]
    columns = matrix.split([shape.numel() for shape in shapes], dim=1)
    for parameter, column, shape in zip(net.parameters(), columns, shapes, strict=True):
        parameter.data = column.unflatten(1, shape)
    return net
