"""Our own format: arrays `obs`, `act`, `episode_ends`, and optionally `meta`, a JSON string."""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.found import Numbers, parse_meta
from diffclone.data.formats.limits import Budget
from diffclone.errors import InvalidData
from diffclone.files import write_atomically

KEYS = ("obs", "act", "episode_ends")


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays, and `meta`."""
    budget = Budget.of(path)
    with zipfile.ZipFile(path) as file:
        entries = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        require(path, entries, KEYS)
        arrays = {key: _read_array(file, entries[key], budget) for key in (*KEYS, "meta") if key in entries}
    meta = parse_meta(path, arrays["meta"]) if "meta" in arrays else {}
    return {key: arrays[key] for key in KEYS} | {"meta": meta}


def write_npz(demos: Demonstrations, path: Path) -> None:
    """Write a new file, whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        obs=demos.obs,
        act=demos.act,
        episode_ends=demos.episode_ends,
        meta=np.array(json.dumps(demos.meta)),
    )
    write_atomically(path, buffer.getvalue())


def require(path: Path, there: Mapping[Any, Any], keys: Iterable[str]) -> None:
    """Name what a file lacks."""
    if missing := [key for key in keys if key not in there]:
        raise InvalidData(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(map(str, there)) or 'nothing'}. "
            f"Expected: {', '.join(keys)}."
        )


def open_entry(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """An entry's bytes, unless its compression can take memory that its size does not tell."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename} is compressed by method {info.compress_type}; deflate was expected")
    return file.open(info)


def _read_array(file: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget) -> Numbers:
    """An array whose header, entry and budget agree on its size: numpy itself would believe the header."""
    with open_entry(file, info) as entry:
        version = npy.read_magic(entry)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(entry)
        budget.take(info.filename, shape, max(1, dtype.itemsize))
        length = info.file_size - entry.tell()
        if dtype.hasobject or length != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise ValueError(f"{info.filename} says {dtype}{list(shape)} and holds {length} bytes")
    with open_entry(file, info) as entry:
        return npy.read_array(entry, allow_pickle=False)
