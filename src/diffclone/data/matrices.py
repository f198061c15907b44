"""Conversion of arrays to the matrices (steps, size) of demonstrations, without more memory than the result; checks."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidData
from diffclone.shapes import Seen

BLOCK = 1_000_000
"""Numbers that are processed at once."""


def to_matrix(name: str, values: npt.ArrayLike) -> Seen:
    """Return a copy of anything array-like as (steps, size): bytes stay bytes, other numbers become float32."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidData(f"{name} must be (steps, size); its rows differ in length.") from None
    check_shape(name, array.shape, array.dtype)
    with np.errstate(over="ignore"):
        array = np.array(array, dtype=np.uint8 if array.dtype == np.uint8 else np.float32, order="C")
    check_finite(name, array)
    return array


def check_shape(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `InvalidData` if an array is not a matrix of numbers."""
    if dtype.kind not in "fiu":
        raise InvalidData(f"{name} must contain numbers; it contains {dtype}.")
    if name == "act" and len(shape) == 1:
        raise InvalidData(
            f"act must be (steps, action size); its shape is {shape}. "
            "Use act[:, None] for one continuous action per step; discrete actions are not supported."
        )
    if len(shape) != 2:
        raise InvalidData(f"{name} must be (steps, size); its shape is {shape}.")


def check_finite(name: str, array: Seen) -> None:
    """Raise `InvalidData` if a matrix contains NaN or infinite values."""
    if array.dtype == np.uint8 or all(np.isfinite(array[rows]).all() for rows in row_blocks(array)):
        return
    count, first = 0, (0, 0)
    for rows in row_blocks(array):
        wrong = ~np.isfinite(array[rows])
        if not count and wrong.any():
            row, column = np.argwhere(wrong)[0]
            first = (rows.start + int(row), int(column))
        count += int(wrong.sum())
    raise InvalidData(
        f"{name} contains {count} NaN or infinite value{'s' * (count > 1)}, first in row {first[0]}, column "
        f"{first[1]}. Remove or correct those steps."
    )


def row_blocks(array: npt.NDArray[np.generic]) -> Iterator[slice]:
    """Return slices that cover the rows of an array, of about `BLOCK` numbers each."""
    rows = max(1, BLOCK * max(1, len(array)) // max(1, array.size))
    return (slice(start, min(start + rows, len(array))) for start in range(0, len(array), rows))


def check_action_bounds(bounds: Any, size: int) -> None:
    """Raise `InvalidData` if action bounds are not [low, high] with `size` numbers each."""
    if bounds is None:
        return
    expected = f"action_bounds must be [low, high] with one number per action dimension ({size}) in each"
    try:
        low, high = (np.asarray(bound, dtype=np.float32) for bound in bounds)
    except (ValueError, TypeError):
        raise InvalidData(f"{expected}; they are {str(bounds)[:80]}.") from None
    if low.shape != (size,) or high.shape != (size,):
        raise InvalidData(f"{expected}; low has shape {low.shape} and high has shape {high.shape}.")
    if not (low <= high).all():  # NaN is not ≤ anything
        k = int(np.flatnonzero(~(low <= high))[0])
        raise InvalidData(
            f"{expected}, and no low above its high; in dimension {k} low is {low[k]:g} and high is {high[k]:g}."
        )


def hash_arrays(*arrays: npt.NDArray[Any]) -> str:
    """Return a short hash of the shapes, types and values of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def list_some(values: Sequence[int] | npt.NDArray[np.int64]) -> str:
    """Return numbers as text for a message; of many, the first and the last ones."""
    shown = [str(value) for value in values]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:3], "…", *shown[-2:]])
