"""Arrays in a file that are read in blocks of rows, so that reading needs hardly more memory than the result."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.data.matrices import BLOCK, check_finite
from diffclone.errors import InvalidData

Array: TypeAlias = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """An array that is not in memory. Its first axis is steps."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterable[Array]]
    """Read the array: consecutive rows, in their order."""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter(self.blocks())


AnyRows: TypeAlias = Array | Rows
Arrays: TypeAlias = Mapping[str, Any]
"""Arrays of a file by name, each `AnyRows`. An array may be opened only when it is looked up."""


def read_blocks(values: AnyRows) -> Iterable[Array]:
    """Return the blocks of an array; one that is in memory is one block."""
    return values if isinstance(values, Rows) else (values,)


def read_all(values: AnyRows) -> Array:
    """Return an array as it is stored."""
    if not isinstance(values, Rows):
        return values
    found, start = np.empty(values.shape, values.dtype), 0
    for block in values:
        found[start : start + len(block)] = block
        start += len(block)
    _check_length(values, start)
    return found


def slice_rows(values: Any, shape: Sequence[int], step: int = 1) -> Rows:
    """Return the rows of anything that can be sliced. A block has a multiple of `step` rows, such as a chunk's."""
    rows = max(1, BLOCK * max(1, shape[0]) // max(1, int(np.prod(shape, dtype=object))))
    rows = max(rows // step, 1) * step

    def blocks() -> Iterator[Array]:
        for start in range(0, shape[0], rows):
            yield np.asarray(values[start : min(start + rows, shape[0])])

    return Rows(tuple(shape), np.dtype(values.dtype), blocks)


def drop_last(values: AnyRows) -> AnyRows:
    """Return all rows but the last."""
    if not isinstance(values, Rows):
        return values[:-1]
    steps = len(values) - 1

    def blocks() -> Iterator[Array]:
        start = 0
        for block in values:
            yield block[: steps - start]
            start += len(block)

    return Rows((steps, *values.shape[1:]), values.dtype, blocks)


def chain_rows(parts: Sequence[AnyRows]) -> Rows:
    """Return arrays one after the other. All have the same shape per step."""
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    dtype = np.result_type(*{part.dtype for part in parts})
    return Rows(shape, dtype, lambda: (block for part in parts for block in read_blocks(part)))


def check_lengths(source: Path | str, name: str, columns: Mapping[str, AnyRows]) -> int:
    """Return the number of steps of all arrays, which must be equal."""
    steps = {len(values) if values.ndim else -1 for values in columns.values()}
    if len(steps) > 1:
        lengths = ", ".join(f"{key} {values.shape}" for key, values in columns.items())
        raise InvalidData(f"{source}: the arrays of {name} differ in length: {lengths}.")
    return steps.pop()


def fill_matrix(source: Path | str, name: str, columns: Mapping[str, AnyRows], *, as_floats: bool = False) -> Any:
    """Read arrays side by side into one matrix (steps, size), which is checked. Observations of bytes stay bytes."""
    steps = check_lengths(source, name, columns)
    sizes = [_row_size(source, key, values) for key, values in columns.items()]
    bytes_only = name == "obs" and not as_floats and all(values.dtype == np.uint8 for values in columns.values())
    dtype = np.dtype(np.uint8 if bytes_only else np.float32)
    if len(columns) == 1 and _is_matrix(only := next(iter(columns.values())), dtype):
        matrix: Any = only
    else:
        matrix, column = np.empty((steps, sum(sizes)), dtype), 0
        with np.errstate(over="ignore"):
            for values, size in zip(columns.values(), sizes, strict=True):
                start = 0
                for block in read_blocks(values):
                    matrix[start : start + len(block), column : column + size] = block.reshape(len(block), size)
                    start += len(block)
                _check_length(values, start)
                column += size
    check_finite(name, matrix)
    return matrix


def _is_matrix(values: AnyRows, dtype: np.dtype[Any]) -> bool:
    """Return whether an array can be used as it is. It must not be a view of memory that somebody else changes."""
    return (
        isinstance(values, np.ndarray)
        and values.ndim == 2
        and values.dtype == dtype
        and bool(values.flags.c_contiguous and values.flags.owndata)
    )


def _row_size(source: Path | str, key: str, values: AnyRows) -> int:
    if values.dtype.kind not in "fiub":
        raise InvalidData(f"{source}: {key} must contain numbers; it contains {values.dtype}.")
    if values.ndim == 0:
        raise InvalidData(f"{source}: {key} is a single number; one row per step was expected.")
    return int(np.prod(values.shape[1:], dtype=np.int64))


def _check_length(values: AnyRows, found: int) -> None:
    if found != len(values):
        raise ValueError(f"{len(values)} rows are declared and {found} are stored")
