"""The package's own format: arrays `obs`, `act`, `episode_ends`, and optionally `meta`, a JSON string.

Arrays of other people are read too (`names.py`): the names of D4RL, Gymnasium and robomimic, and arrays of the shape
(episodes, steps, size) (`arrays.py`).

The bundled files have `obs_planes` and `act_planes` instead: the first bytes of all numbers, then their second bytes,
and so on, (bytes per number, size, steps). The same numbers are then up to a fifth smaller after compression.
"""

import io
import json
import struct
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.arrays import demonstrations_from_arrays
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import parse_meta
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.pickles import pickle_error
from diffclone.data.formats.rows import AnyRows, Array, Rows, read_all, watch_file
from diffclone.data.formats.zips import has_entry, open_entry
from diffclone.data.matrices import BLOCK
from diffclone.files import refuse_existing, write_atomically

PLANES = "_planes"
LOCAL_HEADER = 30
"""Bytes of the header before an entry of a zip, without its name and extra field, whose lengths are at its end."""
MOST_OPEN = 8
"""Compressed arrays that are open at the same time."""


@final
class NpzArrays(Mapping[str, Any]):
    """The arrays of a file by name. Headers are read when an array is used, and its numbers in blocks."""

    def __init__(self, path: Path, budget: MemoryBudget | None = None):
        self.path, self.budget = path, budget or MemoryBudget.from_path(path)
        with zipfile.ZipFile(path) as file:
            self.entries = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        self.known: dict[str, AnyRows] = {}
        self.check = watch_file(path)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.removesuffix(PLANES) for name in self.entries))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> AnyRows:
        if name not in self.known:
            if name in self.entries:
                self.known[name] = self._open(self.entries[name])
            else:
                self.known[name] = join_planes(read_all(self._open(self.entries[f"{name}{PLANES}"])))
        return self.known[name]

    def _open(self, info: zipfile.ZipInfo) -> AnyRows:
        """Read the header and check it against the entry's size, because an array is allocated as a header says."""
        with zipfile.ZipFile(self.path) as file, open_entry(file, info) as entry:
            version = npy.read_magic(entry)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = header(entry)
            self.budget.reserve(info.filename, shape, max(1, dtype.itemsize))
            begin = entry.tell()
            length = info.file_size - begin
            if dtype.hasobject:
                raise pickle_error(f"{self.path}: {info.filename} has Python objects, stored as a pickle")
            if length != int(np.prod(shape, dtype=object)) * dtype.itemsize:
                raise ValueError(f"{info.filename} declares {dtype}{list(shape)} and contains {length} bytes")
        if fortran or not shape or not length:  # rows are not consecutive, or there are none
            with zipfile.ZipFile(self.path) as file, open_entry(file, info) as entry:
                return npy.read_array(entry, allow_pickle=False)
        reader = EntryReader(self.path, info, begin, shape, dtype, self.check)
        step = 1 if info.compress_type == zipfile.ZIP_STORED else shape[0]
        return Rows(shape, dtype, lambda: self._blocks(info, begin, shape, dtype), reader.read, step)

    def _blocks(
        self, info: zipfile.ZipInfo, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Iterator[Array]:
        row = (info.file_size - begin) // shape[0]
        rows = max(1, 4 * BLOCK // max(1, row))
        with zipfile.ZipFile(self.path) as file, open_entry(file, info) as entry:
            entry.read(begin)
            for start in range(0, shape[0], rows):
                count = min(rows, shape[0] - start)
                content = entry.read(count * row)
                if len(content) < count * row:
                    raise ValueError(f"{info.filename} ends after {len(content)} of {count * row} bytes")
                yield np.frombuffer(content, dtype).reshape(count, *shape[1:])
            entry.read(1)  # the checksum is compared at the end


@final
class EntryReader:
    """Reads some rows of an array. Those of a compressed array are found by reading all before them."""

    opened: ClassVar[deque["EntryReader"]] = deque()
    """Readers of compressed arrays that keep their file open, to continue where they stopped."""

    def __init__(
        self,
        path: Path,
        info: zipfile.ZipInfo,
        begin: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        check: Callable[[], None],
    ):
        self.path, self.info, self.begin, self.shape, self.dtype, self.check = path, info, begin, shape, dtype, check
        self.row = (info.file_size - begin) // shape[0]
        self.offset: int | None = None
        """The place of the array in the file, once it is known."""
        self.entry: Any = None
        self.next = 0
        """The row after the one that was read last."""

    def read(self, start: int, stop: int) -> Array:
        """Return the rows from `start` up to `stop`."""
        self.check()
        read = self._read_stored if self.info.compress_type == zipfile.ZIP_STORED else self._read_compressed
        try:
            content = read(start, stop)
        except OSError:
            self.check()  # the file may have been removed since the check above
            raise
        if len(content) < (stop - start) * self.row:
            self.check()
            raise ValueError(f"{self.info.filename} ends before row {stop}")
        return np.frombuffer(content, self.dtype).reshape(stop - start, *self.shape[1:])

    def _read_stored(self, start: int, stop: int) -> bytes:
        with self.path.open("rb") as file:
            if self.offset is None:
                file.seek(self.info.header_offset)
                header = file.read(LOCAL_HEADER)
                self.offset = self.info.header_offset + LOCAL_HEADER + sum(struct.unpack("<HH", header[-4:]))
            file.seek(self.offset + self.begin + start * self.row)
            return file.read((stop - start) * self.row)

    def _read_compressed(self, start: int, stop: int) -> bytes:
        if self.entry is None or start < self.next:
            if self.entry is None:
                self.opened.append(self)
            while len(self.opened) > MOST_OPEN:
                self.opened.popleft().entry = None
            self.entry, self.next = open_entry(zipfile.ZipFile(self.path), self.info), 0
            self.entry.read(self.begin)
        while self.next < start:
            skipped = min(start - self.next, max(1, 4 * BLOCK // max(1, self.row)))
            self.entry.read(skipped * self.row)
            self.next += skipped
        self.next = stop
        return self.entry.read((stop - start) * self.row)


def read_npz(path: Path, options: ReadOptions) -> Demonstrations:
    """Read the arrays and the metadata."""
    arrays = NpzArrays(path)
    meta = parse_meta(path, read_all(arrays["meta"])) if "meta" in arrays else {}
    return demonstrations_from_arrays(path, "npz", arrays, meta, options)


def write_npz(demos: Demonstrations, name: str) -> None:
    """Write a new compressed file. `understood` is about the file that was read, and not about this one."""
    refuse_existing(Path(name))
    buffer = io.BytesIO()
    meta = json.dumps({key: value for key, value in demos.meta.items() if key != "understood"})
    np.savez_compressed(buffer, obs=demos.obs, act=demos.act, episode_ends=demos.episode_ends, meta=np.array(meta))
    write_atomically(Path(name), buffer.getvalue())


def split_planes(values: Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of floating-point numbers (steps, size) as (bytes per number, size, steps)."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return np.ascontiguousarray(little.view(np.uint8).reshape(*values.shape, -1).transpose(2, 1, 0))


def join_planes(planes: Array) -> Array:
    """Return the numbers (steps, size) that `split_planes` was given."""
    if planes.dtype != np.uint8 or planes.ndim != 3 or len(planes) not in (2, 4):
        raise ValueError(f"planes are {planes.dtype}{list(planes.shape)}; uint8 (2 or 4, size, steps) was expected")
    return np.ascontiguousarray(planes.transpose(2, 1, 0)).view(f"<f{len(planes)}")[..., 0]


NPZ = Format(
    label=".npz file",
    recognise=lambda path: has_entry(path, ".npy"),
    read=read_npz,
    options=("obs_keys", "action_keys", "episode_key", "action_kind"),
    write=write_npz,
    suffixes=(".npz",),
)
