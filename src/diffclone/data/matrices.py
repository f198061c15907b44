"""Conversion of arrays to the matrices (steps, size) of demonstrations, without more memory than the result; checks."""

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.data.layout import SMALLEST_SIDE, is_image
from diffclone.errors import DiffcloneWarning, InvalidData
from diffclone.shapes import Seen

BLOCK = 1_000_000
"""Numbers that are processed at once."""
LEVELS = 32
"""Different values that 32-bit numbers must have in the range of a column. With fewer, most of what varies is lost."""
ROUNDING = 1e-5
"""A column that varies by less counts as constant, apart from rounding errors."""


def to_matrix(name: str, values: npt.ArrayLike) -> Seen:
    """Return a copy of anything array-like as (steps, size): bytes stay bytes, other numbers become float32."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidData(f"{name} must be (steps, size); its rows differ in length.") from None
    check_shape(name, array.shape, array.dtype)
    if array.dtype == np.uint8:
        return np.array(array, order="C")
    matrix, ranges = np.empty(array.shape, np.float32), ColumnRanges(array.shape[1])
    for rows in row_blocks(array):
        copy_rows(name, array[rows], matrix[rows])
        ranges.add(array[rows])
    check_finite(name, matrix)
    ranges.warn(name)
    return matrix


def copy_rows(name: str, values: npt.NDArray[Any], target: Seen, first: int = 0) -> None:
    """Copy rows into a matrix of 32-bit numbers or bytes, or raise `InvalidData` for values that are too large.

    `first` is the column of the whole matrix in which the rows begin.
    """
    try:
        with np.errstate(over="raise"):
            target[...] = values
    except FloatingPointError:
        wide = np.isfinite(values) & (np.abs(values) > np.finfo(np.float32).max)
        row, column = np.argwhere(wide)[0]
        raise InvalidData(
            f"{name} has values that 32-bit numbers cannot hold, such as {values[row, column]:.3g} in column "
            f"{first + int(column)}; the largest is 3.4e+38. Use another unit, or leave that column out."
        ) from None


@final
class ColumnRanges:
    """The lowest and the highest value of each column, before the values become 32-bit numbers."""

    def __init__(self, size: int):
        self.low, self.high = np.full(size, np.inf), np.full(size, -np.inf)

    def add(self, values: npt.NDArray[Any], first: int = 0) -> None:
        """Add rows of the columns from `first` on. Types that 32-bit numbers represent exactly need no check."""
        if len(values) and not np.can_cast(values.dtype, np.float32):
            columns = slice(first, first + values.shape[1])
            self.low[columns] = np.minimum(self.low[columns], values.min(0))
            self.high[columns] = np.maximum(self.high[columns], values.max(0))

    def warn(self, name: str) -> None:
        """Warn about columns in which most of what varies is lost, such as the seconds of a time stamp."""
        known = np.flatnonzero(np.isfinite(self.low) & np.isfinite(self.high))
        low, high = self.low[known], self.high[known]
        width, step = high - low, np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32))
        lost = known[(width > ROUNDING) & (width < LEVELS * step)]
        if lost.size:
            k, columns = int(lost[0]), f"column{'s' * (lost.size > 1)} {list_some(lost)}"
            warnings.warn(
                f"{name}: training uses 32-bit numbers, which lose most of what varies in {columns}: column {k} has "
                f"values from {self.low[k]:.12g} to {self.high[k]:.12g}, where such numbers are "
                f"{float(step[known == k][0]):.2g} apart. Subtract a constant first.",
                DiffcloneWarning,
                stacklevel=3,
            )


def check_shape(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `InvalidData` if an array is not a matrix of numbers."""
    if dtype.kind not in "fiub":
        raise InvalidData(f"{name} must contain numbers; it contains {dtype}.")
    if name == "act" and len(shape) == 1:
        raise InvalidData(
            f"act must be (steps, action size); its shape is {shape}. "
            "Use act[:, None] for one continuous action per step; discrete actions are not supported."
        )
    if len(shape) != 2:
        hint = ""
        if name == "obs" and is_image(shape, dtype):
            hint = (
                " Images are a named part of the observation: bytes (uint8) with two sides of at least "
                f"{SMALLEST_SIDE} pixels, {{'image': images}} in Python, and in a file an array obs/image, which "
                "--obs-keys obs/image chooses."
            )
        raise InvalidData(f"{name} must be (steps, size); its shape is {shape}.{hint}")


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


def to_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without NumPy's arrays and numbers, which JSON does not have."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        raise InvalidData(f"meta must be what JSON can store; it contains {str(value)[:60]}, a {type(value).__name__}.")

    try:
        json.dumps(meta)
    except TypeError:
        return json.loads(json.dumps(meta, default=convert))
    return dict(meta)


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
