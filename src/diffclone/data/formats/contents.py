"""The arrays that a reader found in a file, and how they become `Demonstrations`."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.pictures import is_picture, read_observations, warn_about_small_images
from diffclone.data.formats.rows import AnyRows, Array, Rows, chain_rows, fill_matrix, join_columns
from diffclone.data.layout import SMALLEST_SIDE
from diffclone.data.streamed import Streamed
from diffclone.errors import InvalidData, MissingPackage, install_command

__all__ = [
    "Array",
    "Episode",
    "FileContents",
    "check_action_kind",
    "format_shape",
    "import_optional",
    "join_episodes",
    "read_whole",
]

Episode: TypeAlias = tuple[Mapping[str, AnyRows], AnyRows]
"""Observations by key, and actions."""


@final
@dataclass(frozen=True)
class FileContents:
    """The arrays of a file, over the steps of all episodes, before observations are flattened."""

    format: str
    """The name of the format, as users see it."""
    obs: Mapping[str, AnyRows]
    """Observations by key, in the order of concatenation. The first axis is steps."""
    act: AnyRows | Mapping[str, AnyRows]
    """Actions, or their parts by key. The first axis is steps."""
    episode_ends: npt.NDArray[np.int64]
    """The number of steps up to and including the last step of each episode."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Metadata for the demonstrations."""
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """Shapes of observations that are in the file and are not read: images and texts."""
    subsets: Mapping[str, int] = field(default_factory=dict[str, int])
    """Names that `--filter-key` takes, and the number of episodes of each."""

    def to_demonstrations(self, source: Path | str, options: ReadOptions) -> Demonstrations:
        """Concatenate the observations. `meta["understood"]` lists what was read from the file."""
        actions = self.check(source, options)
        obs, stored, images = read_observations(source, self.obs)
        act = fill_matrix(source, "act", actions)
        return Demonstrations(obs, act, self.episode_ends, self.describe(actions, options, stored, images))

    def to_streamed(self, source: Path | str, options: ReadOptions) -> Streamed:
        """Return the same demonstrations, which are read in blocks."""
        actions = self.check(source, options)
        if images := [key for key, values in self.obs.items() if is_picture(values.shape)]:
            raise InvalidData(
                f"{source}: images ({', '.join(images)}) cannot be read in blocks; leave out --memory, or choose "
                "numbers with --obs-keys."
            )
        warn_about_small_images(source, self.obs)
        obs, act = join_columns(source, "obs", self.obs), join_columns(source, "act", actions)
        return Streamed(str(source), obs, act, self.episode_ends, self.describe(actions, options, self.obs, {}))

    def check(self, source: Path | str, options: ReadOptions) -> Mapping[str, AnyRows]:
        """Return the actions by key, or raise `InvalidData` if there are no observations or actions to learn from."""
        if not self.obs:
            there = ", ".join(f"{key} {format_shape(shape)}" for key, shape in self.left_out.items()) or "nothing"
            raise InvalidData(
                f"{source} has no low-dimensional observations; it has {there}. Images are read if --obs-keys names "
                f"them: bytes (uint8) with two sides of at least {SMALLEST_SIDE} pixels. Texts and videos are not read."
            )
        actions = self.act if isinstance(self.act, Mapping) else {"actions": self.act}
        for values in actions.values():
            check_action_kind(source, values.dtype, options)
        return actions

    def describe(
        self,
        actions: Mapping[str, AnyRows],
        options: ReadOptions,
        stored: Mapping[str, AnyRows],
        images: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the metadata of the demonstrations. `stored` are the observations in the order of their columns."""
        shapes = [list(values.shape[1:]) for values in actions.values()]
        understood = {
            "format": self.format,
            "observations": {key: list(values.shape[1:]) for key, values in stored.items()},
            "actions": shapes[0] if len(shapes) == 1 else [sum(math.prod(shape) for shape in shapes)],
            "left_out": {key: list(shape) for key, shape in self.left_out.items()},
            "episodes": len(self.episode_ends),
            "steps": len(next(iter(actions.values()))),
            **({"subsets": dict(self.subsets)} if self.subsets else {}),
        }
        parts = [[key, math.prod(values.shape[1:])] for key, values in stored.items()]
        meta = {"observation_keys": parts, **self.meta, **images, "understood": understood}
        if "state_size" not in images:  # of the images that an earlier conversion had
            meta.pop("state_size", None)
        if (
            options.obs_keys or images
        ):  # otherwise keys that an earlier conversion recorded stay: they name the original parts
            meta["observation_keys"] = parts
        return meta


def read_whole(
    open: Callable[[Path, ReadOptions], AbstractContextManager[FileContents]],
) -> Callable[[Path, ReadOptions], Demonstrations]:
    """Return a function that reads all that `open` finds."""

    def read(path: Path, options: ReadOptions) -> Demonstrations:
        with open(path, options) as contents:
            return contents.to_demonstrations(path, options)

    return read


def join_episodes(source: Path | str, episodes: Sequence[Episode]) -> tuple[dict[str, Rows], Rows, Array]:
    """Concatenate episodes to observations, actions and episode ends. All must have the same keys and shapes."""
    if not episodes:
        raise InvalidData(f"{source} has no episodes; at least one episode of one step is needed.")
    keys = list(episodes[0][0])
    shapes: dict[str, Any] = {}
    for number, (obs, act) in enumerate(episodes):
        if list(obs) != keys:
            raise InvalidData(
                f"{source}: episode {number} has observations {', '.join(obs) or 'nothing'}; the first episode has "
                f"{', '.join(keys) or 'nothing'}. All episodes must have the same."
            )
        for key, values in {**obs, "actions": act}.items():
            if values.ndim < 1 or len(values) != len(act):
                raise InvalidData(
                    f"{source}: episode {number} has {key} of shape {values.shape} for {len(act)} actions. "
                    "Row i of both must be the same step."
                )
            if shapes.setdefault(key, values.shape[1:]) != values.shape[1:]:
                raise InvalidData(
                    f"{source}: {key} has shape {format_shape(values.shape[1:])} per step in episode {number}, and "
                    f"{format_shape(shapes[key])} before. All episodes must have the same."
                )
    obs = {key: chain_rows([episode[0][key] for episode in episodes]) for key in keys}
    ends = np.cumsum([len(act) for _, act in episodes], dtype=np.int64)
    return obs, chain_rows([act for _, act in episodes]), ends


def check_action_kind(source: Path | str, dtype: np.dtype[Any], options: ReadOptions) -> None:
    """Ask about integer actions, which are probably discrete."""
    if dtype.kind in "iub" and options.action_kind is None:
        raise InvalidData(
            f"{source}: actions are integers ({dtype}); discrete actions are not supported. If these are numbers "
            "and not choices, add --action-kind continuous."
        )


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape as text, such as (480, 640, 3)."""
    return f"({', '.join(map(str, shape))})"


def import_optional(package: str) -> Any:
    """Import a package that is not installed with every copy of diffclone."""
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise MissingPackage(f"this format needs the package {name}. Try: {install_command('data')}.") from None
