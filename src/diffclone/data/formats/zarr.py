"""Diffusion Policy's replay buffers: zarr arrays `data/state` (or `data/obs`), `data/action` and `meta/episode_ends`.

A buffer is a folder or a zip archive, in zarr version 2 or 3. The package zarr runs any codec that a file names, even
pickle, and decompresses chunks to any size. Therefore only the files of the three arrays are given to it, in memory,
after these checks: the codec is in `CODECS`, and each chunk decompresses to no more than the declared size.
"""

import math
import re
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.data.formats.contents import FileContents, import_optional, read_whole
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import parse_meta
from diffclone.data.formats.names import expand_patterns
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.rows import Array, Rows, read_all, watch_file
from diffclone.data.formats.zips import has_entry, open_entry
from diffclone.data.matrices import BLOCK
from diffclone.errors import InvalidData

CODECS = ("blosc", "gzip", "lz4", "zstd")
"""Codecs that numcodecs decompresses into memory of a given size, and fails if the data does not fit."""
METADATA = (".zarray", "zarr.json")
"""Files that describe an array, in zarr version 2 and 3."""
MAX_MISSING = 1 << 14
"""Chunks that an array may declare without storing them. zarr fills those with a constant, slowly."""


@final
class BufferFiles:
    """The files of a replay buffer in a folder or a zip archive, by their names in the buffer."""

    def __init__(self, path: Path):
        self.path = path
        self.budget = MemoryBudget.from_path(path)
        self.watched: dict[str, Callable[[], None]] = {}
        """Functions that check whether a file has changed."""
        self.zip = None if path.is_dir() else zipfile.ZipFile(path)
        if self.zip is None:
            every = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
        else:
            every = set(self.zip.namelist())
        # The archives that Diffusion Policy publishes contain the buffer in a folder of its own.
        ends = [name for name in every if name.endswith(tuple(f"meta/episode_ends/{file}" for file in METADATA))]
        if not ends:
            raise InvalidData(f"{path} is not a replay buffer: it has no array meta/episode_ends.")
        self.prefix = min(ends, key=len).rpartition("meta/episode_ends/")[0]
        self.names = {name.removeprefix(self.prefix) for name in every if name.startswith(self.prefix)}

    def close(self) -> None:
        """Close the archive."""
        if self.zip is not None:
            self.zip.close()

    def read(self, name: str, *, again: bool = False) -> bytes:
        """Read a file within the memory budget; `again` if its memory was reserved and is free by now."""
        if self.zip is not None:
            info = self.zip.getinfo(self.prefix + name)
            self.budget.reserve(name, (info.file_size,), 1)
            with open_entry(self.zip, info) as entry:
                return entry.read()
        path = self.path / self.prefix / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise InvalidData(f"{self.path}: {name} is a link out of the folder, which is not followed; copy the file.")
        if again:
            self.watched.setdefault(name, watch_file(path))()
        else:
            self.budget.reserve(name, (path.stat().st_size,), 1)
        return path.read_bytes()

    def find_metadata(self, array: str) -> str:
        """Return the name of the file that describes an array."""
        return next(f"{array}/{file}" for file in METADATA if f"{array}/{file}" in self.names)


@contextmanager
def open_zarr(path: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find state, actions and episode ends. Other arrays, such as images, are left out."""
    with closing(BufferFiles(path)) as files:
        described = (name.split("/") for name in files.names if name.endswith(METADATA))
        keys = sorted({parts[1] for parts in described if len(parts) == 3 and parts[0] == "data"})
        state = [key for key in ("state", "obs") if key in keys][:1]
        obs = expand_patterns(path, keys, options.obs_keys or state, "--obs-keys")
        act = expand_patterns(path, keys, options.action_keys or [k for k in keys if k == "action"], "--action-keys")
        if not obs or not act:
            raise InvalidData(
                f"{path} has data/{', data/'.join(keys)}; expected data/state or data/obs, and data/action; or choose "
                "with --obs-keys and --action-keys."
            )
        ends = read_all(_open_array(files, "meta/episode_ends"))
        if ends.dtype.kind not in "iu":
            raise InvalidData(f"{path}: meta/episode_ends must be integers; it is {ends.dtype}.")
        shapes = {key: parse_meta(path, files.read(files.find_metadata(f"data/{key}")).decode()) for key in keys}
        left_out = {key: [*map(int, shapes[key]["shape"][1:])] for key in keys if key not in (*obs, *act)}
        yield FileContents(
            "zarr replay buffer",
            {key: _open_array(files, f"data/{key}") for key in obs},
            {key: _open_array(files, f"data/{key}") for key in act},
            ends.astype(np.int64),
            {"source": path.name},
            left_out,
        )


def _open_array(files: BufferFiles, name: str) -> Rows:
    """Return an array whose chunks are checked and decompressed when it is read, some at a time."""
    zarr = import_optional("zarr")
    to_buffer = import_optional("zarr.buffer.cpu").Buffer.from_bytes
    metadata = files.find_metadata(name)
    content = files.read(metadata)
    about = parse_meta(files.path, content.decode())
    codec = _check_codec(files, name, about)
    store = {metadata.removeprefix(f"{name}/"): to_buffer(content)}
    array = zarr.open_array(zarr.storage.MemoryStore(store), mode="r", zarr_format=about["zarr_format"])
    chunks = [n for n in files.names if n.startswith(f"{name}/") and not n.endswith((*METADATA, ".zattrs"))]
    _check_size(files, name, array, len(chunks))
    if not array.shape:
        raise InvalidData(f"{files.path}: {name} is a single number; one row per step was expected.")
    step = array.chunks[0]
    rows = max(1, BLOCK // max(1, math.prod(array.chunks))) * step

    places: dict[int, list[str]] = {}
    for chunk in chunks:
        places.setdefault(_row_of(chunk.removeprefix(f"{name}/")), []).append(chunk)

    def read(start: int, stop: int, *, again: bool = True) -> Array:
        loaded = [chunk for place in range(start // step, -(-stop // step)) for chunk in places.get(place, ())]
        for chunk in loaded:
            content = files.read(chunk, again=again)
            if codec is not None:
                _check_chunk(files, chunk, codec, content, math.prod(array.chunks) * array.dtype.itemsize)
            store[chunk.removeprefix(f"{name}/")] = to_buffer(content)
        found = np.asarray(array[start:stop])
        for chunk in loaded:
            del store[chunk.removeprefix(f"{name}/")]
        return found

    def blocks() -> Iterator[Array]:
        for start in range(0, array.shape[0], rows):
            yield read(start, min(start + rows, array.shape[0]), again=False)

    return Rows(array.shape, array.dtype, blocks, read if files.zip is None else None, step)


def _row_of(chunk: str) -> int:
    """Return the index of a chunk along the first axis, from a name such as 3.0 or c/3/0."""
    found = re.match(r"(?:c[./])?(\d{1,15})(?:[./]|$)", chunk)
    return int(found[1]) if found else -1


def _check_codec(files: BufferFiles, name: str, about: dict[str, Any]) -> str | None:
    """Return the name of the array's codec, or raise `InvalidData` if it is not allowed."""
    if about["zarr_format"] == 2:
        codecs = [codec["id"] for codec in (*(about.get("filters") or ()), about.get("compressor")) if codec]
    else:
        codecs = [codec["name"] for codec in about["codecs"] if codec["name"] != "bytes"]
    if len(codecs) > 1 or not set(codecs) <= set(CODECS):
        raise InvalidData(
            f"{files.path}: {name} is compressed by {', '.join(map(str, codecs))[:60]}; "
            f"one of {', '.join(CODECS)} was expected."
        )
    return codecs[0] if codecs else None


def _check_size(files: BufferFiles, name: str, array: Any, stored: int) -> None:
    where = f"{files.path}: {name}"
    if array.dtype.kind not in "fiub":
        raise InvalidData(f"{where} must contain numbers; it contains {array.dtype}.")
    declared = math.prod(-(-side // chunk) for side, chunk in zip(array.shape, array.chunks, strict=True))
    if declared - stored > MAX_MISSING:
        raise InvalidData(f"{where} declares {declared} chunks and stores {stored}; {MAX_MISSING} may be missing.")
    files.budget.reserve(name, array.shape, array.dtype.itemsize)
    files.budget.reserve(f"a chunk of {name}", array.chunks, array.dtype.itemsize)


def _check_chunk(files: BufferFiles, name: str, codec: str, content: bytes, size: int) -> None:
    """Decompress a chunk into memory of its declared size, which fails if the chunk is larger."""
    numcodecs = import_optional("numcodecs")
    try:
        numcodecs.get_codec({"id": codec}).decode(content, out=np.empty(size, dtype=np.uint8))
    except Exception as error:
        raise InvalidData(f"{files.path}: {name} does not decompress to {size} bytes ({str(error)[:80]}).") from None


ZARR = Format(
    label="zarr replay buffer",
    recognise=lambda path: (path / "meta" / "episode_ends").is_dir() or has_entry(path, *METADATA),
    read=read_whole(open_zarr),
    open=open_zarr,
    options=("obs_keys", "action_keys", "action_kind"),
    suffixes=(".zarr", ".zarr.zip"),
)
