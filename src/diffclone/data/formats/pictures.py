"""Observations with images: arrays of bytes with a height and a width, read beside arrays of numbers."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.formats.rows import AnyRows, check_lengths, fill_matrix, read_blocks
from diffclone.data.layout import SMALLEST_SIDE, find_channels, is_image, order_channels
from diffclone.errors import DiffcloneWarning, InvalidData


def read_observations(
    source: Path | str, columns: Mapping[str, AnyRows]
) -> tuple[Any, dict[str, AnyRows], dict[str, Any]]:
    """Return the matrix of observations, the arrays in the order of its columns, and metadata of images.

    Without images these are the arrays side by side. Images come first, their channels stacked; numbers beside them are
    stored as bytes (`data/layout.py`).
    """
    pictures = {key: values for key, values in columns.items() if is_picture(values.shape)}
    warn_about_small_images(source, columns)
    if not pictures:
        return fill_matrix(source, "obs", columns), dict(columns), {}
    numbers = {key: values for key, values in columns.items() if key not in pictures}
    steps = check_lengths(source, "obs", columns)
    image = _stack_sides(source, pictures)
    state = fill_matrix(source, "obs", numbers, as_floats=True) if numbers else np.zeros((steps, 0), np.float32)
    pixels = math.prod(image)
    matrix, column = np.empty((steps, pixels + 4 * state.shape[1]), np.uint8), 0
    for key, values in pictures.items():
        start, size = 0, math.prod(values.shape[1:])
        for block in read_blocks(values):
            rows = order_channels(key, block, values.ndim - 1).reshape(len(block), size)
            matrix[start : start + len(block), column : column + size] = rows
            start += len(block)
        column += size
    matrix[:, pixels:] = state.astype("<f4", copy=False).view(np.uint8)
    size = {"state_size": state.shape[1]} if numbers else {}
    # Observations for a policy may be a batch or not, which the shape of a grey image alone does not tell.
    flat = [key for key, values in pictures.items() if values.ndim == 3]
    about = {"image": list(image), **size, **({"images_without_channels": flat} if flat else {})}
    return matrix, {**pictures, **numbers}, about


def from_parts(parts: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the matrix of observations that a dict of arrays has, and its metadata."""
    columns: dict[str, AnyRows] = {}
    for key, values in parts.items():
        try:
            columns[key] = np.asarray(values)
        except ValueError:
            raise InvalidData(f"obs: rows of {key} differ in length or shape.") from None
    if not columns:
        raise InvalidData("obs is an empty dict; at least one array is needed.")
    matrix, stored, images = read_observations("obs", columns)
    if any(matrix is values for values in columns.values()):  # demonstrations freeze it, and the array is the caller's
        matrix = matrix.copy()
    return matrix, {"observation_keys": [[k, math.prod(v.shape[1:])] for k, v in stored.items()], **images}


def is_picture(shape: tuple[int, ...]) -> bool:
    """Return whether an array of this shape (steps first) is used as images: two sides of at least 36 pixels."""
    return len(shape) in (3, 4) and sorted(shape[1:])[-2] >= SMALLEST_SIDE


def warn_about_small_images(source: Path | str, columns: Mapping[str, AnyRows]) -> None:
    """Warn about arrays that look like images and are read as plain numbers, because their sides are too small."""
    for key, values in columns.items():
        if is_image(values.shape, values.dtype) and not is_picture(values.shape):
            shape = values.shape[1:]
            warnings.warn(
                f"{source}: {key} looks like images of {' × '.join(map(str, shape))}, and images need two sides of at "
                f"least {SMALLEST_SIDE} pixels. It is read as {math.prod(shape)} plain numbers per step; enlarge the "
                "images to train convolutions on them.",
                DiffcloneWarning,
                stacklevel=2,
            )


def _stack_sides(source: Path | str, pictures: Mapping[str, AnyRows]) -> tuple[int, int, int]:
    """Return the channels of all images together, and their height and width, which must be equal."""
    channels, sides = 0, dict[str, tuple[int, int]]()
    for key, values in pictures.items():
        shape = values.shape[1:]
        if values.dtype != np.uint8:
            raise InvalidData(
                f"{source}: {key} has {' × '.join(map(str, shape))} values per step, like an image, and the type "
                f"{values.dtype}; images must be bytes, 0 … 255 (uint8). Convert it, or leave it out (--obs-keys)."
            )
        axis = find_channels(f"{source}: {key}", shape)
        channels += 1 if axis < 0 else shape[axis]
        height, width = (side for k, side in enumerate(shape) if k != axis)
        sides[key] = (height, width)
    if len(set(sides.values())) > 1:
        sizes = ", ".join(f"{key} {height} × {width}" for key, (height, width) in sides.items())
        raise InvalidData(
            f"{source}: images differ in size: {sizes}. Resize them, or choose one of them with --obs-keys."
        )
    height, width = next(iter(sides.values()))
    return channels, height, width
