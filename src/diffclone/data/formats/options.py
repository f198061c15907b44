"""What a user may say about reading a file: which arrays, which episodes, and what the actions are."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar, final

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.streamed import Streamed
from diffclone.errors import InvalidData

D = TypeVar("D", Demonstrations, Streamed)
Bound: TypeAlias = float | tuple[float, ...]
"""One number for all action dimensions, or one number per dimension."""


@final
@dataclass(frozen=True)
class ReadOptions:
    """Options of `read`. A format lists those that it uses; a format that does not use a given option refuses it."""

    obs_keys: tuple[str, ...] = ()
    """Names of arrays or columns that form the observation, in this order. `obs_*` stands for all that match."""
    action_keys: tuple[str, ...] = ()
    """Names of arrays or columns that form the action, in this order."""
    episode_key: str | None = None
    """Name of the array or column with the number of the episode of each step."""
    filter_key: str | None = None
    """Name of the subset of episodes to read. `PATH#NAME` means the same."""
    action_bounds: tuple[Bound, Bound] | None = None
    """The lowest and the highest action, instead of those that the file states. Every format has this option."""
    action_kind: Literal["continuous"] | None = None
    """"continuous": integer actions are numbers, not the indices of discrete actions."""

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are set."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that are set, for JSON."""
        return {name: getattr(self, name) for name in self.given}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ReadOptions":
        """Return the options of `to_dict`, also after a round trip through JSON, where tuples are lists.

        One name may be given as a string instead of a tuple, and bounds as arrays.
        """

        def freeze(value: Any) -> Any:
            value = value.tolist() if hasattr(value, "tolist") else value  # an array of NumPy
            if isinstance(value, list | tuple):
                return tuple(map(freeze, value))
            return float(value) if isinstance(value, int) else value

        if unknown := [name for name in values if name not in {field.name for field in fields(cls)}]:
            known = ", ".join(field.name for field in fields(cls))
            raise InvalidData(f"there is no option {unknown[0]} of reading; there are {known}.")
        single = {name: (values[name],) for name in ("obs_keys", "action_keys") if isinstance(values.get(name), str)}
        return cls(**{name: freeze(value) for name, value in {**values, **single}.items()})

    def with_subset(self, source: str, subset: str) -> "ReadOptions":
        """Return the options with the subset of `PATH#SUBSET`, if there is one."""
        if subset and self.filter_key not in (None, subset):
            raise InvalidData(f"{source} names the subset {subset}, and --filter-key {self.filter_key}; give one.")
        return replace(self, filter_key=subset) if subset else self

    def apply_bounds(self, demos: D) -> D:
        """Return the demonstrations with these action bounds, if they are set."""
        if self.action_bounds is None:
            return demos
        sides = expand_bounds(self.action_bounds, demos.act.shape[1])
        return replace(demos, meta={**demos.meta, "action_bounds": [*sides]})


NO_OPTIONS = ReadOptions()


def parse_bounds(text: str) -> tuple[Bound, Bound]:
    """Parse `LOW,HIGH` for all action dimensions, or `LOW,LOW,…:HIGH,HIGH,…` with one number per dimension."""
    sides = [side.split(",") for side in text.split(":")]
    with suppress(ValueError):
        if len(sides) == 1 and len(sides[0]) == 2:
            return float(sides[0][0]), float(sides[0][1])
        if len(sides) == 2:
            return tuple(map(float, sides[0])), tuple(map(float, sides[1]))
    raise InvalidData(
        "--action-bounds takes LOW,HIGH for all dimensions, such as -1,1, or LOW,LOW,…:HIGH,HIGH,… with one number per "
        f"dimension; it was given {text!r}."
    )


def expand_bounds(bounds: tuple[Bound, Bound], size: int) -> tuple[list[float], list[float]]:
    """Return both sides with one number per action dimension."""
    low, high = ([float(x) for x in (bound if isinstance(bound, tuple) else [bound] * size)] for bound in bounds)
    if len(low) != size or len(high) != size or not all(x <= y for x, y in zip(low, high, strict=True)):
        raise InvalidData(
            f"the action bounds are {low} and {high}; expected one number for all or one for each of the {size} action "
            "dimensions, and no low above its high."
        )
    return low, high


@contextmanager
def keywords_in_errors() -> Generator[None, None, None]:
    """Name options as keywords (obs_keys), not as flags (--obs-keys), in errors of functions that only Python calls."""
    try:
        yield
    except InvalidData as error:
        text = str(error)
        for option in fields(ReadOptions):
            flag = to_flag(option.name)
            text = text.replace(f"{flag} NAME", f"{option.name}=NAME").replace(flag, option.name)
        raise type(error)(text) from error.__cause__


def to_flag(name: str) -> str:
    """Return the flag of an option."""
    return f"--{name.replace('_', '-')}"
