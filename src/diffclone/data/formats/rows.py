"""Arrays in a file that are read in blocks of rows, so that reading needs hardly more memory than the result."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.data.matrices import BLOCK, ColumnRanges, check_finite, copy_rows
from diffclone.data.streamed import Blocks
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
    read: Callable[[int, int], Array] | None = None
    """Read the rows from one number up to another, also after the file was closed; None if that is not possible."""
    step: int = 1
    """Rows that are stored together: reading one of them takes as long as reading all."""

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
        # The first block decides on the type. A later one may have missing values, which other types show.
        if block.dtype.kind in "SU" or not np.can_cast(block.dtype, found.dtype, "same_kind"):
            found = found.astype(np.result_type(found, block), copy=False)
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

    return Rows((steps, *values.shape[1:]), values.dtype, blocks, values.read, values.step)


def chain_rows(parts: Sequence[AnyRows]) -> Rows:
    """Return arrays one after the other. All have the same shape per step."""
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    dtype = np.result_type(*{part.dtype for part in parts})
    ends = np.cumsum([len(part) for part in parts])
    rows = [part for part in parts if isinstance(part, Rows)]

    def read(start: int, stop: int) -> Array:
        first, last = np.searchsorted(ends, (start, stop - 1), side="right")
        found: list[Array] = []
        for part, end in zip(parts[first : last + 1], ends[first : last + 1], strict=True):
            begin = int(end) - len(part)
            found.append(read_range(part, max(0, start - begin), min(stop, int(end)) - begin))
        return found[0] if len(found) == 1 else np.concatenate(found)

    return Rows(
        shape,
        dtype,
        lambda: (block for part in parts for block in read_blocks(part)),
        read if all(part.read for part in rows) else None,
        max((part.step for part in rows), default=1),
    )


def read_range(values: AnyRows, start: int, stop: int) -> Array:
    """Return some rows of an array that is in memory or that can be read in any order."""
    if not isinstance(values, Rows):
        return values[start:stop]
    assert values.read is not None
    return values.read(start, stop)


def watch_file(path: Path) -> Callable[[], None]:
    """Return a function that raises `InvalidData` if the file is not as it is now."""

    def stamp() -> tuple[int, int]:
        try:
            about = path.stat()
        except OSError as error:
            raise InvalidData(f"{path} cannot be read any more: {error.strerror}. Restore the file.") from None
        return about.st_size, about.st_mtime_ns

    known = stamp()

    def check() -> None:
        if (now := stamp()) != known:
            what = f"had {known[0]:,} bytes and now has {now[0]:,}" if now[0] != known[0] else "was written again"
            raise InvalidData(f"{path} changed after training began: it {what}. Restore the file.")

    return check


def check_lengths(source: Path | str, name: str, columns: Mapping[str, AnyRows]) -> int:
    """Return the number of steps of all arrays, which must be equal."""
    steps = {len(values) if values.ndim else -1 for values in columns.values()}
    if len(steps) > 1:
        lengths = ", ".join(f"{key} {values.shape}" for key, values in columns.items())
        raise InvalidData(f"{source}: the arrays of {name} differ in length: {lengths}.")
    return steps.pop()


def fill_matrix(source: Path | str, name: str, columns: Mapping[str, AnyRows], *, as_floats: bool = False) -> Any:
    """Read arrays side by side into one matrix (steps, size), which is checked. Observations of bytes stay bytes."""
    rows, sizes, dtype = _measure(source, name, columns, as_floats=as_floats)
    if len(columns) == 1 and _is_matrix(only := next(iter(columns.values())), dtype):
        matrix: Any = only
    else:
        matrix, column, ranges = np.empty((rows, sum(sizes)), dtype), 0, ColumnRanges(sum(sizes))
        for values, size in zip(columns.values(), sizes, strict=True):
            start = 0
            for block in read_blocks(values):
                numbers = block.reshape(len(block), size)
                target = matrix[start : start + len(block), column : column + size]
                copy_rows(name, numbers, target, column)
                ranges.add(numbers, column)
                start += len(block)
            _check_length(values, start)
            column += size
        ranges.warn(f"{source}: {name}")
    check_finite(name, matrix)
    return matrix


def join_columns(source: Path | str, name: str, columns: Mapping[str, AnyRows]) -> Blocks:
    """Return arrays side by side as one matrix (steps, size) that is read in blocks, which are checked."""
    rows, sizes, dtype = _measure(source, name, columns)
    if fixed := [key for key, values in columns.items() if isinstance(values, Rows) and values.read is None]:
        raise InvalidData(f"{source}: {fixed[0]} cannot be read in blocks. Unpack or convert the file.")

    def read(start: int, stop: int) -> Any:
        matrix, column = np.empty((stop - start, sum(sizes)), dtype), 0
        for key, size in zip(columns, sizes, strict=True):
            numbers = read_range(columns[key], start, stop).reshape(-1, size)
            copy_rows(name, numbers, matrix[:, column : column + size], column)
            column += size
        check_finite(name, matrix)
        return matrix

    step = max(values.step if isinstance(values, Rows) else 1 for values in columns.values())
    return Blocks((rows, sum(sizes)), dtype, read, step)


def _measure(
    source: Path | str, name: str, columns: Mapping[str, AnyRows], *, as_floats: bool = False
) -> tuple[int, list[int], np.dtype[Any]]:
    """Return the number of rows of arrays, the size of a row of each, and the type of a matrix of all."""
    rows = check_lengths(source, name, columns)
    sizes = [_row_size(source, key, values) for key, values in columns.items()]
    # Images too small for convolutions (`pictures.py`) are plain numbers, and so is a column of single bytes.
    plain = as_floats or any(values.dtype != np.uint8 or values.ndim != 2 for values in columns.values())
    bytes_only = name == "obs" and not plain
    return rows, sizes, np.dtype(np.uint8 if bytes_only else np.float32)


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
        found = _find_text(values) if values.dtype == object else values.dtype
        raise InvalidData(f"{source}: {key} must contain numbers; it contains {found}.")
    if values.ndim == 0:
        raise InvalidData(f"{source}: {key} is a single number; one row per step was expected.")
    return int(np.prod(values.shape[1:], dtype=np.int64))


def _find_text(values: AnyRows) -> str:
    """Return the first entry of a column of objects that is not a number, and its row, for a message."""
    start = 0
    for block in read_blocks(values):
        for place, value in np.ndenumerate(block):
            try:
                float(value)
            except (ValueError, TypeError):
                return f"{str(value)[:40]!r} in row {start + place[0]}"
        start += len(block)
    return str(values.dtype)


def _check_length(values: AnyRows, found: int) -> None:
    if found != len(values):
        raise ValueError(f"{len(values)} rows are declared and {found} are stored")
