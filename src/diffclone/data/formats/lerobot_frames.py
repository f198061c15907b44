"""The frames of a LeRobot dataset: columns of parquet files, read in blocks."""

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.data.formats.columns import BLOCK_ROWS, BUFFER, to_rows, unequal_rows
from diffclone.data.formats.contents import Array, import_optional
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import MAX_CHARACTERS, parse_meta
from diffclone.data.formats.rows import AnyRows, Rows, read_all, watch_file
from diffclone.errors import InvalidData

Order: TypeAlias = npt.NDArray[np.int64] | slice
"""Which frames, in which order: their numbers, or the slice of all."""
INDICES = ("episode_index", "frame_index")
BLOCK_IMAGES = 64
"""Images decoded at a time."""
MOST_PIXELS = 1 << 24
"""Pixels of the largest image that is decoded."""
MOST_TASKS = 10_000
"""Tasks whose texts are read."""


@final
class Frames:
    """The columns of all files of a dataset, as if they were one file."""

    def __init__(self, folder: Path):
        self.folder = folder
        # Files are found by listing the folder, not by the path templates in info.json, which may point outside it.
        self.files = sorted(path for path in (folder / "data").glob("*/*.parquet") if path.is_file())
        if not self.files:
            raise InvalidData(f"{folder} has no data/chunk-*/*.parquet, where LeRobot stores frames.")
        self.budget = MemoryBudget.from_path(folder / "data")
        self.types: dict[str, Any] = {}
        """The type of each column."""
        with _open(self.files[0]) as file:
            self.types = {field.name: field.type for field in file.schema_arrow}
            self.step = max(1, file.metadata.num_rows // max(1, file.num_row_groups))
            """Rows of a row group of the first file, on average."""

    @property
    def numbers(self) -> list[str]:
        """The names of columns of numbers, or of rows of numbers."""
        return [name for name, kind in self.types.items() if _is_number(kind)]

    def read_indices(self, more: Sequence[str]) -> dict[str, Array]:
        """Read the columns with one number per frame that order the frames, and those of `more` that are there."""
        wanted = [*INDICES, *(name for name in more if name in self.types)]
        found: dict[str, list[Array]] = {name: [] for name in wanted}
        for path in self.files:
            with _open(path) as file:
                # The sizes of single columns are not used: pyarrow aborts the process where those are damaged.
                self.budget.reserve("a column", (max(0, file.metadata.num_rows),), 1)
            for name, rows in self._read_file(path, wanted):
                if rows.shape[1:] != (1,) or (name in INDICES and rows.dtype.kind not in "iu"):
                    raise InvalidData(f"{path}: {name} must contain numbers; it contains {self.types[name]}.")
                self.budget.reserve(name, rows.shape, rows.itemsize)
                found[name].append(rows.reshape(-1))
        return {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in found.items()}

    def read_ends(self) -> npt.NDArray[np.int64]:
        """Return the ends of episodes without keeping a number per frame. Frames must be stored in their order."""
        ends: list[Array] = []
        last, steps = (np.zeros(0, np.int64), np.zeros(0, np.int64)), 0
        for path in self.files:
            batches = self._read_file(path, INDICES)
            for (_, episode), (_, frame) in zip(batches, batches, strict=True):
                if episode.shape[1:] != (1,) or episode.dtype.kind not in "iu" or frame.dtype.kind not in "iu":
                    raise InvalidData(f"{path}: {' and '.join(INDICES)} must contain integers, one per frame.")
                both = [np.append(before, rows) for before, rows in zip(last, (episode, frame), strict=True)]
                if not isinstance(sort_frames(*both), slice):
                    raise InvalidData(
                        f"{path}: frames are not stored in the order of episode_index and frame_index, so that they "
                        "cannot be read in blocks. Sort them, or leave out --memory."
                    )
                ends.append(np.flatnonzero(both[0][1:] != both[0][:-1]) + steps + 1 - len(last[0]))
                last, steps = (both[0][-1:], both[1][-1:]), steps + len(episode)
        return np.append(np.concatenate(ends), [steps][: steps > 0]).astype(np.int64) if ends else np.zeros(0, np.int64)

    def column(self, name: str, order: Order, count: int) -> AnyRows:
        """Return the frames `order` of a column; all files together have `count`."""
        first = next((rows for path in self.files for _, rows in self._read_file(path, [name])), None)
        if first is None:
            return np.zeros((0, 1), dtype=np.float32)
        shape, dtype = (count, *first.shape[1:]), first.dtype
        self.budget.reserve(name, shape, dtype.itemsize)
        rows = Rows(
            shape,
            dtype,
            lambda: self._read_column(name, first.shape[1:]),
            lambda start, stop: self._read_range(name, first.shape[1:], start, stop),
            self.step,
        )
        return rows if isinstance(order, slice) else read_all(rows)[order]

    def _read_column(self, name: str, shape: tuple[int, ...]) -> Iterator[Array]:
        for path in self.files:
            for _, rows in self._read_file(path, [name]):
                if rows.shape[1:] != shape:
                    raise unequal_rows(self.folder, name)
                yield rows

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """The number of frames up to the end of each file, when it was first asked for."""
        self.checks = [watch_file(path) for path in self.files]
        counts: list[int] = []
        for path in self.files:
            with _open(path) as file:
                counts.append(file.metadata.num_rows)
        return np.cumsum(counts)

    def _read_range(self, name: str, shape: tuple[int, ...], start: int, stop: int) -> Array:
        """Read the row groups that contain some frames."""
        first, last = np.searchsorted(self.ends, (start, stop - 1), side="right")
        found: list[Array] = []
        for number in range(first, last + 1):
            self.checks[number]()
            path, end = self.files[number], int(self.ends[number])
            with _open(path) as file:
                groups = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
                begin = end - int(groups[-1])
                low, high = max(start, begin) - begin, min(stop, end) - begin
                a, b = np.searchsorted(groups, (low, high - 1), side="right")
                table = file.read_row_groups(list(range(a, b + 1)), columns=[name], use_threads=False)
            rows = _to_frames(path, name, table.column(name).combine_chunks())
            if rows.shape[1:] != shape:
                raise unequal_rows(self.folder, name)
            before = int(groups[a - 1]) if a else 0
            found.append(rows[low - before : high - before])
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _read_file(self, path: Path, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        with _open(path) as file:
            there = set(file.schema_arrow.names)
            if missing := [name for name in names if name not in there]:
                raise InvalidData(f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(there)) or 'nothing'}.")
            rows = BLOCK_IMAGES if any(_is_encoded(self.types.get(name)) for name in names) else BLOCK_ROWS
            for batch in file.iter_batches(rows, columns=list(names), use_threads=False):
                for name in names:
                    yield name, _to_frames(path, name, batch.column(name))


def sort_frames(episode: Array, frame: Array) -> Order:
    """Return the frames sorted by episode, and by their number in it; a slice of all if they are sorted already."""
    later = episode[1:] > episode[:-1]
    later |= (episode[1:] == episode[:-1]) & (frame[1:] >= frame[:-1])
    return slice(None) if later.all() else np.lexsort((frame, episode))


def read_tasks(folder: Path) -> dict[int, str]:
    """Return the texts of tasks by index: meta/tasks.parquet of version 3, or meta/tasks.jsonl of version 2."""
    table, lines = folder / "meta" / "tasks.parquet", folder / "meta" / "tasks.jsonl"
    found: list[Mapping[str, Any]] = []
    if table.is_file():
        with _open(table) as file:
            batch = next(iter(file.iter_batches(MOST_TASKS, use_threads=False)), None)
        if batch is not None:
            batch.validate(full=True)
            found = batch.to_pylist()
    elif lines.is_file():
        with lines.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS)
        found = [parse_meta(lines, line) for line in text.splitlines()[:MOST_TASKS] if line.strip()]
    tasks: dict[int, str] = {}
    for entry in found:  # the text is in `task`, or in an index of pandas without a name
        number, texts = entry.get("task_index"), [value for value in entry.values() if isinstance(value, str)]
        if isinstance(number, int) and texts:
            tasks[number] = texts[0]
    return tasks


def _open(path: Path) -> Any:
    return import_optional("pyarrow.parquet").ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)


def _is_list(kind: Any) -> bool:
    types = import_optional("pyarrow").types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_number(kind: Any) -> bool:
    types = import_optional("pyarrow").types
    kind = getattr(kind, "storage_type", kind)  # an extension type, which the package `datasets` defines
    while _is_list(kind):
        kind = kind.value_type
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _is_encoded(kind: Any) -> bool:
    """Return whether a column contains files of images, PNG or JPEG, as the package `datasets` stores them."""
    types = import_optional("pyarrow").types
    kind = getattr(kind, "storage_type", kind)
    return kind is not None and types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def decode_images(path: Path, name: str, column: Any) -> Array:
    """Decode files of images to bytes (frames, height, width, channels). All must have the size of the first."""
    image = import_optional("PIL.Image")
    column.validate(full=True)
    decoded: list[Array] = []
    for content in column.field("bytes") if hasattr(column, "field") else ():
        if not content.is_valid:
            raise InvalidData(f"{path}: {name} names files of images outside the table, which are not read.")
        with image.open(io.BytesIO(content.as_py()), formats=("PNG", "JPEG")) as picture:
            if decoded and (picture.height, picture.width) != decoded[0].shape[:2]:
                raise InvalidData(
                    f"{path}: images of {name} differ in size: {picture.height} × {picture.width} and "
                    f"{decoded[0].shape[0]} × {decoded[0].shape[1]}."
                )
            if picture.height * picture.width > MOST_PIXELS:
                raise InvalidData(f"{path}: an image of {name} has {picture.height} × {picture.width} pixels.")
            decoded.append(np.asarray(picture.convert("RGB")))
    return np.stack(decoded) if decoded else np.zeros((0, 1, 1, 3), np.uint8)


def _to_frames(path: Path, name: str, column: Any) -> Array:
    """Convert a column to an array whose first axis is frames, and that has at least one more."""
    rows = decode_images(path, name, column) if _is_encoded(column.type) else to_rows(path, name, column)
    if rows.dtype.kind not in "fiub":
        raise InvalidData(f"{path}: {name} must contain numbers; it contains {column.type}.")
    return rows if rows.ndim > 1 else rows[:, None]
