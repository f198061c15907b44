"""Observations that are an image and numbers: how demonstrations store them, and how policies receive them.

    stored   [pixels, one byte each] [numbers, four bytes each: float32, little-endian]          bytes (uint8)
    s        [pixels, 0 … 255]       [numbers]                                                   float32

Demonstrations and the training device hold the first form; a batch, an environment, a policy and a server use the
second. `meta["image"]` and `meta["state_size"]` of the demonstrations have the layout.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidData

SMALLEST_SIDE = 36
"""Smallest side of an image, in pixels: three convolutions then leave at least one."""

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@final
@dataclass(frozen=True)
class Layout:
    """The sizes of both parts of an observation."""

    image: tuple[int, int, int]
    """Channels, height and width. The images of several cameras are stacked as channels."""
    numbers: int
    """How many numbers follow the pixels."""

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> "Layout | None":
        """Return the layout that metadata describe; None if observations are numbers alone or images alone."""
        if not meta.get("state_size"):
            return None
        image, numbers = meta.get("image"), meta["state_size"]
        sides = list[Any](image) if isinstance(image, list | tuple) else []
        if len(sides) != 3 or not all(type(size) is int and size > 0 for size in (*sides, numbers)):
            raise InvalidData(
                "image in meta must be [channels, height, width], and state_size how many numbers follow it; "
                f"they are {str(image)[:60]} and {str(numbers)[:60]}. Correct or remove them."
            )
        return cls((sides[0], sides[1], sides[2]), numbers)

    @property
    def pixels(self) -> int:
        """Pixels of an observation."""
        return math.prod(self.image)

    @property
    def size(self) -> int:
        """Pixels and numbers of an observation."""
        return self.pixels + self.numbers

    @property
    def stored_size(self) -> int:
        """Bytes of a stored observation."""
        return self.pixels + 4 * self.numbers

    def check(self, found: int) -> None:
        """Refuse demonstrations whose rows have another number of bytes."""
        if found != self.stored_size:
            raise InvalidData(
                f"{self} are {self.stored_size} bytes, but a row of obs has {found}. Correct image and state_size in "
                "meta."
            )

    def pack(self, pixels: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> Bytes:
        """Return stored rows (…, stored size) of pixels (…, pixels) and numbers (…, numbers)."""
        as_bytes = np.ascontiguousarray(numbers, "<f4").view(np.uint8)
        return np.concatenate([pixels.astype(np.uint8, copy=False), as_bytes], -1)

    def numbers_of(self, stored: npt.NDArray[Any]) -> Floats:
        """Return the numbers of stored rows."""
        return np.ascontiguousarray(stored[..., self.pixels :]).view("<f4").astype(np.float32, copy=False)

    def unpack(self, stored: npt.NDArray[Any]) -> Floats:
        """Return stored rows as pixels and numbers (…, size)."""
        return np.concatenate([stored[..., : self.pixels].astype(np.float32), self.numbers_of(stored)], -1)

    def __str__(self) -> str:
        return f"image {' × '.join(map(str, self.image))} and {self.numbers} numbers"


def is_image(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Return whether an array of this shape (steps first) looks like images: 3 axes per step, or 2 axes of bytes."""
    return len(shape) >= 4 or (len(shape) == 3 and dtype == np.uint8)


def find_channels(name: str, shape: Sequence[int]) -> int:
    """Return the axis of the channels of an image: 0 or 2, the shortest one; −1 for a grey image (height, width)."""
    if len(shape) == 2:
        return -1
    axis = int(np.argmin(shape))
    if len(shape) != 3 or axis == 1:
        raise InvalidData(
            f"{name} has the shape ({', '.join(map(str, shape))}); an image is (channels, height, width) or "
            "(height, width, channels), with fewer channels than pixels on a side."
        )
    return axis


def order_channels(name: str, images: npt.NDArray[Any], axes: int) -> npt.NDArray[Any]:
    """Return images (…, channels, height, width) whatever the order of their last `axes` axes is."""
    axis = find_channels(name, images.shape[images.ndim - axes :])
    return np.moveaxis(images, -1, -3) if axis == 2 else images


def flatten_observation(obs: Mapping[str, Any], meta: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return a dict of parts, of one observation or of a batch, as rows (…, size) that a policy receives.

    The parts are those that the demonstrations name (`meta["observation_keys"]`); a name such as obs/image may be given
    as image, and dicts may be nested. Parts that the demonstrations do not have are ignored.

    A grey image (1, height, width) may also be a batch of one. Beside other parts their lengths decide. Alone it is one
    observation, unless `meta["images_without_channels"]` says that the demonstrations have it as (height, width).
    """
    recorded: list[tuple[str, int]] = [(key, size) for key, size in meta.get("observation_keys", [])]
    if not recorded:
        raise InvalidData("the demonstrations of this policy have no named parts; give an array instead of a dict.")
    pixels, place = math.prod(meta.get("image") or (0,)), 0
    parts, leading = list[npt.NDArray[Any]](), list[list[tuple[int, ...]]]()
    given, keys, flat = flat_parts(obs), [key for key, _ in recorded], meta.get("images_without_channels")
    for key, size in recorded:
        name = find_part(key, given, keys)
        values = to_array(given[name])
        picture = place < pixels
        if picture and values.dtype != np.uint8:
            raise InvalidData(f"{name} is {values.dtype}; images must be bytes, 0 … 255 (uint8).")
        if values.dtype.kind not in "fiub":
            raise InvalidData(f"{name} must contain numbers; it contains {values.dtype}.")
        parts.append(values)
        channels = not (isinstance(flat, list) and key in flat)
        leading.append(_find_leading(name, values, size, picture=picture, channels=channels))
        place += size
    # A part may fit as one observation and as a batch of one. Images come first, and the others must agree with them.
    common = next((axes for axes in leading[0] if all(axes in others for others in leading)), None)
    if common is None:
        shapes = ", ".join(f"{key} {part.shape}" for (key, _), part in zip(recorded, parts, strict=True))
        raise InvalidData(f"the parts of the observation differ in length: {shapes}.")
    rows, place = list[npt.NDArray[Any]](), 0
    for (key, size), values in zip(recorded, parts, strict=True):
        axes = values.ndim - len(common)
        ordered = order_channels(key, values, axes) if place < pixels and axes > 1 else values
        rows.append(ordered.reshape(*common, size).astype(np.float32))
        place += size
    return np.concatenate(rows, -1)


def flat_parts(obs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one: {"left": {"pos": 1}} becomes {"left/pos": 1}."""
    parts: dict[str, Any] = {}
    for name, value in obs.items():
        parts |= flat_parts(value, f"{prefix}{name}/") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return parts


def find_part(key: str, obs: Mapping[str, Any], keys: Sequence[str] = ()) -> str:
    """Return the name under which an observation without inner mappings has a recorded part.

    This is the recorded name, or the longest end of it that the observation has: observation.images.front may be
    images/front or front. An end is refused if it fits another of the recorded `keys` as well or better.
    """
    if key in obs:
        return key
    given, ends = {name.replace(".", "/"): name for name in map(str, obs)}, _ends_of(key)
    if (end := next((end for end in ends if end in given), None)) is None:
        raise InvalidData(f"the observation lacks {key}; it has {', '.join(given.values())[:200] or 'nothing'}.")
    as_long = ends.index(end) + 1
    if (rival := next((k for k in keys if k != key and end in _ends_of(k)[:as_long]), None)) is not None:
        raise InvalidData(
            f"the observation has {given[end]}, and the policy needs {key} and {rival}; name both in full."
        )
    return given[end]


@lru_cache(1024)  # a policy asks for the same names at each step
def _ends_of(key: str) -> tuple[str, ...]:
    """Return a name and what remains of it without its first, its first two, … parts."""
    parts = key.replace(".", "/").split("/")
    return tuple("/".join(parts[k:]) for k in range(len(parts)))


def to_rows(obs: Any, meta: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return rows that a policy receives, from an array, a dict of parts, or rows as demonstrations store them."""
    if isinstance(obs, Mapping):
        return flatten_observation(obs, meta)
    rows, layout = native(obs), Layout.from_meta(meta)
    if layout is not None and rows.dtype == np.uint8 and rows.shape[-1:] == (layout.stored_size,):
        return layout.unpack(rows)
    return rows


def native(values: Any) -> npt.NDArray[Any]:
    """Return numbers as an array that torch accepts: contiguous, in the byte order of this machine."""
    array = to_array(values)
    if array.dtype.kind not in "fiub":
        found = array.dtype if array.ndim else f"of type {type(values).__name__}"
        raise InvalidData(f"an array of numbers is needed, or a dict of the policy's parts; the values are {found}.")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


def to_array(values: Any) -> npt.NDArray[Any]:
    """Return anything array-like as an array. A tensor may be on any device and part of a graph of gradients."""
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except ValueError:
        raise InvalidData("an array is needed; rows of these values differ in length.") from None


def _find_leading(
    name: str, values: npt.NDArray[Any], size: int, *, picture: bool, channels: bool
) -> list[tuple[int, ...]]:
    """Return the possible axes of a batch: those before the last axes, which together have this size; likeliest first.

    One number may have an axis of its own, as in demonstrations, or none. `channels` is whether demonstrations have
    images with an axis of channels: the axis of 1 before a grey image then belongs to the image.
    """
    shape = values.shape
    order = ((1, 3, 2) if channels else (1, 2, 3)) if picture else range(1, len(shape) + 1)
    axes = [n for n in (*order, 0) if n <= len(shape) and math.prod(shape[len(shape) - n :]) == size]
    if not axes:
        discrete = values.dtype.kind in "iub" and not picture
        raise InvalidData(
            f"{name} has the shape {shape}; its last axes must have {size} numbers together."
            + f" A choice among {size} is given one-hot: 1 at the choice, 0 elsewhere." * discrete
        )
    return [shape[: len(shape) - n] for n in axes]
