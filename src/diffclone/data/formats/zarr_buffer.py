"""Diffusion Policy's replay buffer: zarr arrays `data/state` (or `data/obs`), `data/action`, `meta/episode_ends`.

A folder or a zip of one, zarr version 2 or 3. Chunks are read here and not by zarr, which would run any codec that a
file names, one of pickles among them, and would believe what chunks say of their size.
"""

import bz2
import itertools
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.data.formats.found import Found, Numbers, need, parse_meta
from diffclone.data.formats.limits import Budget
from diffclone.data.formats.npz import open_entry
from diffclone.errors import InvalidData

CHUNKS = 1 << 20
"""Chunks that an array may have."""


@final
class Files:
    """The files of a folder, or of a zip, by their names in the buffer."""

    def __init__(self, path: Path):
        self.path = path
        self.budget = Budget.of(path)
        self.zip = None if path.is_dir() else zipfile.ZipFile(path)
        if self.zip is None:
            every = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
        else:
            every = set(self.zip.namelist())
        # The zips that Diffusion Policy publishes hold the buffer in a folder of their own.
        ends = [n for n in every if n.endswith(("meta/episode_ends/.zarray", "meta/episode_ends/zarr.json"))]
        if not ends:
            raise InvalidData(f"{path} holds no replay buffer: there is no array meta/episode_ends.")
        self.prefix = min(ends, key=len).rpartition("meta/episode_ends/")[0]
        self.names = {name.removeprefix(self.prefix) for name in every if name.startswith(self.prefix)}

    def close(self) -> None:
        """Of use to a zip only."""
        if self.zip is not None:
            self.zip.close()

    def read(self, name: str) -> bytes:
        """A file's bytes, within the budget."""
        if self.zip is None:
            path = self.path / self.prefix / name
            self.budget.take(name, (path.stat().st_size,), 1)
            return path.read_bytes()
        info = self.zip.getinfo(self.prefix + name)
        self.budget.take(name, (info.file_size,), 1)
        with open_entry(self.zip, info) as entry:
            return entry.read()


def read_zarr(path: Path) -> dict[str, Any]:
    """The state; other keys, pictures among them, are left out."""
    with closing(Files(path)) as files:
        return _read(files).arguments(path)


def _read(files: Files) -> Found:
    path = files.path
    described = (name.split("/") for name in files.names if name.endswith(("/.zarray", "/zarr.json")))
    keys = sorted({parts[1] for parts in described if len(parts) == 3 and parts[0] == "data"})
    seen = next((key for key in ("state", "obs") if key in keys), None)
    if seen is None or "action" not in keys:
        raise InvalidData(f"{path} has data/{', data/'.join(keys)}; expected data/state or data/obs, and data/action.")
    obs, act, ends = (_array(files, name) for name in (f"data/{seen}", "data/action", "meta/episode_ends"))
    if ends.dtype.kind not in "iu":
        raise InvalidData(f"{path}: meta/episode_ends must be whole numbers; it is {ends.dtype}.")
    others = [key for key in keys if key not in (seen, "action")]
    left_out = {key: tuple(map(int, _about(files, f"data/{key}")["shape"][1:])) for key in others}
    meta = {"source": path.name}
    return Found("zarr replay buffer", {seen: obs}, act, ends.astype(np.int64), meta, left_out)


def _about(files: Files, name: str) -> dict[str, Any]:
    """An array's description, in either version's JSON."""
    version = ".zarray" if f"{name}/.zarray" in files.names else "zarr.json"
    return parse_meta(files.path, files.read(f"{name}/{version}").decode())


@final
class _Layout:
    """How an array's numbers lie in chunks."""

    def __init__(self, files: Files, name: str):
        self.name, about = name, _about(files, name)
        codecs: list[Any]
        if about["zarr_format"] == 2:
            shape, chunks, kind = about["shape"], about["chunks"], about["dtype"]
            self.separator, self.first = about.get("dimension_separator") or ".", ""
            codecs = [*(about.get("filters") or []), *([about["compressor"]] if about.get("compressor") else [])]
            self.codecs = [str(codec["id"]) for codec in codecs]
            self.turned = about.get("order") == "F"
        else:
            shape, chunks = about["shape"], about["chunk_grid"]["configuration"]["chunk_shape"]
            kind, key = str(about["data_type"]), about["chunk_key_encoding"]
            default = key["name"] == "default"
            self.separator = key.get("configuration", {}).get("separator", "/" if default else ".")
            self.first = f"c{self.separator}" if default else ""
            codecs = [c for c in about["codecs"] if c["name"] != "bytes"]
            self.codecs = [str(codec["name"]) for codec in codecs]
            big = any((c.get("configuration") or {}).get("endian") == "big" for c in about["codecs"])
            kind, self.turned = np.dtype(kind).newbyteorder(">" if big else "<").str, False
        self.dtype = np.dtype(kind) if isinstance(kind, str) else np.dtype(object)
        self.shape, self.chunks = tuple(map(int, shape)), tuple(map(int, chunks))
        self.fill = about.get("fill_value") or 0
        self.check(files)

    def check(self, files: Files) -> None:
        """Refuse what is not plain numbers in plain chunks."""
        where = f"{files.path}: {self.name}"
        if self.dtype.kind not in "fiub":
            raise InvalidData(f"{where} must hold numbers; it holds {self.dtype}.")
        if len(self.codecs) > 1 or (self.codecs and self.codecs[0] not in CODECS):
            raise InvalidData(f"{where} is packed by {', '.join(self.codecs)[:60]}; read are {', '.join(CODECS)}.")
        if len(self.shape) != len(self.chunks) or min(self.shape, default=0) < 0 or min(self.chunks, default=1) < 1:
            raise InvalidData(f"{where} has shape {self.shape} in chunks of {self.chunks}, which do not fit.")


def _array(files: Files, name: str) -> Numbers:
    layout = _Layout(files, name)
    counts = [-(-side // chunk) for side, chunk in zip(layout.shape, layout.chunks, strict=True)]
    if math.prod(counts) > CHUNKS:
        raise InvalidData(f"{files.path}: {name} claims {math.prod(counts)} chunks; {CHUNKS} are read at most.")
    files.budget.take(name, layout.shape, layout.dtype.itemsize)
    files.budget.take(f"a chunk of {name}", layout.chunks, layout.dtype.itemsize)
    values = np.full(layout.shape, layout.fill, dtype=layout.dtype)
    for place in itertools.product(*map(range, counts)):
        chunk = f"{name}/{layout.first}{layout.separator.join(map(str, place))}"
        if chunk in files.names:  # a chunk that is not there is all fill
            corner = [slice(p * c, (p + 1) * c) for p, c in zip(place, layout.chunks, strict=True)]
            target = values[tuple(corner)]
            target[...] = _chunk(files, layout, chunk)[tuple(slice(side) for side in target.shape)]
    return values


def _chunk(files: Files, layout: _Layout, name: str) -> Numbers:
    size = math.prod(layout.chunks) * layout.dtype.itemsize
    raw = files.read(name)
    for codec in layout.codecs:
        raw = CODECS[codec](raw, size, files.path)
    if len(raw) != size:
        raise InvalidData(f"{files.path}: {name} holds {len(raw)} bytes; {size} were expected.")
    return np.frombuffer(raw, dtype=layout.dtype).reshape(layout.chunks, order="F" if layout.turned else "C")


def _inflate(raw: bytes, size: int, path: Path) -> bytes:
    return zlib.decompressobj(wbits=47).decompress(raw, size + 1)


def _unbzip(raw: bytes, size: int, path: Path) -> bytes:
    return bz2.BZ2Decompressor().decompress(raw, size + 1)


def _by_numcodecs(name: str) -> Callable[[bytes, int, Path], bytes]:
    def decode(raw: bytes, size: int, path: Path) -> bytes:
        codec = getattr(need("numcodecs", path), name)()
        # Into given memory first, which refuses what is too long; then freely, which tells what is too short.
        codec.decode(raw, out=np.empty(size, dtype=np.uint8))
        return bytes(codec.decode(raw))

    return decode


CODECS: Mapping[str, Callable[[bytes, int, Path], bytes]] = {
    "blosc": _by_numcodecs("Blosc"),
    "zstd": _by_numcodecs("Zstd"),
    "lz4": _by_numcodecs("LZ4"),
    "gzip": _inflate,
    "zlib": _inflate,
    "bz2": _unbzip,
}
