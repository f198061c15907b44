"""What a reader found in a file, and how it becomes the arguments of `Demonstrations.from_arrays`."""

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidData, MissingPackage

Source: TypeAlias = str | Path
Numbers: TypeAlias = npt.NDArray[Any]
Episode: TypeAlias = tuple[Mapping[str, Numbers], Numbers]
"""Observations by key, and actions."""


TEXT = 16 << 20
"""Letters of JSON that are read; parsed they may take fifty times their size."""


@final
@dataclass(frozen=True)
class Found:
    """Arrays over all steps, as they lie in the file."""

    format: str
    """For people."""
    obs: Mapping[str, Numbers]
    """In the order in which they are laid side by side; the first axis is steps."""
    act: Numbers
    episode_ends: npt.NDArray[np.int64]
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """Shapes of what is there but not used: pictures and texts."""

    def arguments(self, source: Source) -> dict[str, Any]:
        """Of `Demonstrations.from_arrays`; `meta["understood"]` says what became of the file."""
        if not self.obs:
            there = ", ".join(f"{key} {_shape(shape)}" for key, shape in self.left_out.items()) or "nothing"
            raise InvalidData(
                f"{source} has no low-dimensional observations; it has {there}. Pictures and texts are not read from "
                f"{self.format}; save them as .npz, flattened."
            )
        if self.act.dtype.kind in "iub":
            raise InvalidData(
                f"{source}: actions are whole numbers ({self.act.dtype}); discrete actions are not supported. "
                "Continuous ones must be stored as floats."
            )
        understood = {
            "format": self.format,
            "observations": {key: list(values.shape[1:]) for key, values in self.obs.items()},
            "actions": list(self.act.shape[1:]),
            "left_out": {key: list(shape) for key, shape in self.left_out.items()},
            "episodes": len(self.episode_ends),
            "steps": len(self.act),
        }
        columns = [_columns(source, key, values) for key, values in self.obs.items()]
        sizes = [[key, part.shape[1]] for key, part in zip(self.obs, columns, strict=True)]
        return {
            "obs": columns[0] if len(columns) == 1 else np.concatenate(columns, 1),
            "act": self.act,
            "episode_ends": self.episode_ends,
            # What was flattened first keeps its names, however often the numbers are converted.
            "meta": {"observation_keys": sizes, **self.meta, "understood": understood},
        }


def join_episodes(source: Source, episodes: Sequence[Episode]) -> tuple[dict[str, Numbers], Numbers, Numbers]:
    """Observations, actions and ends of episodes laid end to end. All must have the same keys and sizes."""
    if not episodes:
        raise InvalidData(f"{source} has no episodes; at least one of one step is needed.")
    keys = list(episodes[0][0])
    shapes: dict[str, Any] = {}
    for number, (obs, act) in enumerate(episodes):
        if list(obs) != keys:
            raise InvalidData(
                f"{source}: episode {number} observes {', '.join(obs) or 'nothing'}; the first observes "
                f"{', '.join(keys) or 'nothing'}. All must observe the same."
            )
        for key, values in {**obs, "actions": act}.items():
            if values.ndim < 1 or len(values) != len(act):
                raise InvalidData(
                    f"{source}: episode {number} has {key} of shape {values.shape} for {len(act)} actions. "
                    "Row i of both must be the same step."
                )
            if shapes.setdefault(key, values.shape[1:]) != values.shape[1:]:
                raise InvalidData(
                    f"{source}: {key} is {_shape(values.shape[1:])} a step in episode {number}, and "
                    f"{_shape(shapes[key])} before. All episodes must agree."
                )
    obs = {key: np.concatenate([episode[0][key] for episode in episodes]) for key in keys}
    ends = np.cumsum([len(act) for _, act in episodes], dtype=np.int64)
    return obs, np.concatenate([act for _, act in episodes]), ends


def is_picture(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Whether rows of this shape (steps first) are pictures: height and width, in bytes, or also channels."""
    return len(shape) >= 4 or (len(shape) == 3 and dtype == np.uint8)


def in_order(keys: Iterable[str], meta: Mapping[str, Any]) -> list[str]:
    """The recorded order of observation keys, if there is one for just these; else sorted."""
    keys, recorded = sorted(keys), [key for key, _ in split_sizes(meta)]
    return recorded if sorted(recorded) == keys else keys


def split_sizes(meta: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Names and sizes of the parts of an observation, as recorded; none where the record makes no sense."""
    recorded = meta.get("observation_keys")
    if not isinstance(recorded, list):
        return []
    match = [
        (entry[0], entry[1])
        for entry in recorded
        if isinstance(entry, list | tuple)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], int)
        and entry[1] > 0
    ]
    return match if len(match) == len(recorded) == len({key for key, _ in match}) else []


def parse_meta(source: Source, text: Any) -> dict[str, Any]:
    """A JSON object from a string in a file."""
    text = str(text)
    if len(text) > TEXT:
        raise InvalidData(f"{source}: meta has {len(text)} letters; {TEXT} are read at most.")
    try:
        meta = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as fault:
        raise InvalidData(f"{source}: meta is not JSON ({fault}).") from None
    if not isinstance(meta, dict):
        raise InvalidData(f"{source}: meta must be a JSON object; it is {json.dumps(meta)[:40]}.")
    return meta


def read_meta(path: Path) -> dict[str, Any]:
    """A JSON object that is a file."""
    with path.open(encoding="utf-8") as file:
        return parse_meta(path, file.read(TEXT + 1))


def check_meta(source: Source, meta: Mapping[str, Any]) -> None:
    """Refuse what others would stumble over later."""
    for key in ("understood", "image", "observation_keys"):
        if key in meta and not KNOWN[key](meta[key]):
            raise InvalidData(f"{source}: {key} in meta makes no sense: {json.dumps(meta[key])[:60]}. Remove it.")
    if not isinstance(meta.get("task"), str | None):
        raise InvalidData(f"{source}: the task in meta must be a name; it is {json.dumps(meta['task'])[:40]}.")


def need(package: str, source: Source) -> Any:
    """An optional package, imported only when a file asks for it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackage(
            f"{source} needs the package {package.partition('.')[0]}. Try: pip install 'diffclone[data]'."
        ) from None


def _sides(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(side, int) for side in value)


def _shapes(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_sides, value.values()))


KNOWN: Mapping[str, Callable[[Any], bool]] = {
    "understood": lambda value: (
        isinstance(value, dict) and all(_shapes(value.get(key, {})) for key in ("observations", "left_out"))
    ),
    "image": lambda value: _sides(value) and len(value) == 3,
    "observation_keys": lambda value: (
        isinstance(value, list) and len(split_sizes({"observation_keys": value})) == len(value)
    ),
}
"""What these entries of meta must look like."""


def _columns(source: Source, key: str, values: Numbers) -> Numbers:
    if values.dtype.kind not in "fiub":
        raise InvalidData(f"{source}: {key} must hold numbers; it holds {values.dtype}.")
    rows = values.reshape(len(values), -1) if len(values) else values.reshape(0, 1)
    return rows.astype(np.float32) if rows.dtype == np.bool_ else rows


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))})"
