"""Observations of Gymnasium environments as one row of numbers.

An array is flattened row by row. The parts of a Dict are concatenated: those that are named, in that order; or else all
parts in the order of the space. Gymnasium sorts the keys of a plain dict by name. Discrete parts become one-hot rows.
Images become what demonstrations store: before all numbers, and channels before height and width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, flatdim, flatten, flatten_space

from diffclone.data.formats.pictures import is_picture
from diffclone.data.layout import Layout, find_part, flat_parts, order_channels
from diffclone.errors import InvalidData, InvalidSettings

GOAL = ("observation", "desired_goal")
"""What is recorded of a goal environment. Its third part, `achieved_goal`, is usually contained in `observation`."""


@final
class Flattener:
    """Turns the observations of one space into rows of the same size and type."""

    def __init__(self, space: gym.Space[Any], keys: Sequence[str] | None = None, *, with_images: bool = True):
        """Choose the parts of a Dict; None: all of them. Without `with_images` images are flattened like numbers."""
        self.space = space
        if isinstance(space, Dict):
            self.keys: tuple[str, ...] | None = tuple(space.spaces) if keys is None else tuple(keys)
            spaces = _all_parts(space.spaces)
            if unknown := [key for key in self.keys if key not in spaces]:
                raise InvalidSettings(
                    f"observations have no part {unknown[0]!r}; they have {', '.join(map(str, space.spaces))}."
                )
            if not self.keys or len(set(self.keys)) < len(self.keys):
                raise InvalidSettings(f"name each part of the observations once; given: {', '.join(self.keys)}.")
            if with_images and keys is None:  # images come first, as demonstrations store them
                self.keys = tuple(sorted(self.keys, key=lambda key: not _is_picture(spaces[key])))
            self._parts = [spaces[key] for key in self.keys]
        else:
            if keys:
                raise InvalidSettings(
                    f"observations in {space} have no named parts, so that {', '.join(keys)} cannot be chosen."
                )
            self.keys, self._parts = None, [space]
        if any(not isinstance(flatten_space(part), Box) for part in self._parts):
            raise InvalidSettings(f"observations in {space} have no fixed size; a policy needs one.")
        self.sizes = [flatdim(part) for part in self._parts]
        """The number of values in each part."""
        self.size = sum(self.sizes)
        """The number of values in a row."""
        pictures = [part for part in self._parts if with_images and _is_picture(part)]
        self.image = self._stack(pictures) if pictures else None
        """Channels, height and width of all images together; None if there are none."""
        numbers = self.size - sum(map(flatdim, pictures))
        self.layout = None if self.image is None or not numbers else Layout(self.image, numbers)
        """How demonstrations store rows with images and numbers; None for other rows."""
        self.dtype = np.dtype(np.float32 if self.image is None or numbers else np.uint8)
        """The type in which demonstrations store rows of images alone (bytes) or of numbers alone."""

    def __call__(self, obs: Any) -> npt.NDArray[Any]:
        """Return an observation as a new row, in the types of the space."""
        values = [obs] if self.keys is None else [self._look_up(obs, key) for key in self.keys]
        rows = [self._flatten(part, value) for part, value in zip(self._parts, values, strict=True)]
        if [row.size for row in rows] != self.sizes:
            raise InvalidData(
                f"an observation has {sum(row.size for row in rows)} values; the environment's space declares "
                f"{self.size}."
            )
        return np.concatenate(rows)

    def store(self, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a row as demonstrations store it."""
        if self.layout is None:
            return row.astype(self.dtype)
        return self.layout.pack(row[: self.layout.pixels], row[self.layout.pixels :])

    @staticmethod
    def _look_up(obs: Any, key: str) -> Any:
        """Return a part of an observation; agent/pos is a part of the part agent."""
        return obs[key] if key in obs else flat_parts(obs)[key]

    def _flatten(self, part: gym.Space[Any], value: Any) -> npt.NDArray[Any]:
        if self.image is not None and _is_picture(part):
            value = order_channels("an image", np.asarray(value), len(part.shape or ()))
            return np.ravel(value)
        return np.ravel(np.asarray(flatten(part, value)))

    def _stack(self, pictures: list[gym.Space[Any]]) -> tuple[int, int, int]:
        """Return the sizes of the images of a row, which must come first and have equal sides."""
        blank = [np.empty(part.shape or (), np.uint8) for part in pictures]
        shapes = [order_channels("an image", image, image.ndim).shape for image in blank]
        sides = {shape[-2:] for shape in shapes}
        if len(sides) > 1 or self._parts[: len(pictures)] != pictures:
            raise InvalidSettings(
                f"images must come before numbers and have equal sides; the parts are {', '.join(self.keys or ())}, "
                f"the images {', '.join(str(part.shape) for part in pictures)}. Choose parts, images first."
            )
        height, width = sides.pop()
        return sum(map(flatdim, pictures)) // (height * width), height, width

    @property
    def observation_keys(self) -> list[list[Any]]:
        """Name and size of each part, as demonstrations store them; nothing if parts have no names."""
        return [] if self.keys is None else [list(part) for part in zip(self.keys, self.sizes, strict=True)]

    @property
    def images_without_channels(self) -> list[str]:
        """Names of the images (height, width), as demonstrations store them."""
        parts = zip(self.keys or (), self._parts, strict=False)
        return [key for key, part in parts if _is_picture(part) and len(part.shape or ()) == 2]


def recorded_keys(space: gym.Space[Any], keys: Sequence[str] | None = None) -> tuple[list[str] | None, list[str]]:
    """Return the parts of a Dict that are recorded by default, and those left out.

    Of a goal environment these are `observation` and `desired_goal`, of others all parts that are not images, unless
    all are images.
    """
    if not isinstance(space, Dict):
        return (None if keys is None else list(keys)), []
    names = list(space.spaces)
    if keys is None and set(names) == {*GOAL, "achieved_goal"}:
        keys = GOAL
    chosen = [name for name in names if not _is_image(space.spaces[name])] or names if keys is None else list(keys)
    parts = names if set(chosen) <= set(names) else list(flat_parts(space.spaces))
    return chosen, [name for name in parts if name not in chosen]


def keys_in(space: gym.Space[Any], meta: Mapping[str, Any]) -> list[str] | None:
    """Return the parts of a Dict that demonstrations with this metadata have; None if they name others.

    A recorded name such as observations/image stands for image, and observations/agent/pos for pos of the Dict agent,
    which is returned as agent/pos.
    """
    recorded = meta.get("observation_keys")
    if not isinstance(space, Dict) or not isinstance(recorded, list) or not recorded:
        return None
    names = [entry[0] for entry in recorded if isinstance(entry, list | tuple) and entry]
    try:
        parts = _all_parts(space.spaces)
        return [find_part(name, parts, names) for name in names] if len(names) == len(recorded) else None
    except InvalidData:
        return None


def _all_parts(spaces: Mapping[str, gym.Space[Any]]) -> dict[str, gym.Space[Any]]:
    """Return the parts of a Dict by name, and those of inner Dicts as agent/pos."""
    return {**flat_parts(spaces), **spaces}


def _is_picture(space: gym.Space[Any]) -> bool:
    """Return whether a part is used as an image, as in files: bytes with two sides of at least 36 pixels."""
    return _is_image(space) and is_picture((1, *(space.shape or ())))


def _is_image(space: gym.Space[Any]) -> bool:
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) > 1
