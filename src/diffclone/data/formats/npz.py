"""The package's own format: arrays `obs`, `act`, `episode_ends`, and optionally `meta`, a JSON string.

The bundled files have `obs_planes` and `act_planes` instead: the first bytes of all numbers, then their second bytes,
and so on, (bytes per number, size, steps). The same numbers are then up to a fifth smaller after compression.
"""

import io
import json
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Array
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import parse_meta
from diffclone.data.formats.zips import has_entry, open_entry
from diffclone.errors import InvalidData
from diffclone.files import refuse_existing, write_atomically

KEYS = ("obs", "act", "episode_ends")
PLANES = "_planes"


def read_npz(path: Path) -> Demonstrations:
    """Read the arrays and the metadata."""
    budget = MemoryBudget.from_path(path)
    with zipfile.ZipFile(path) as file:
        entries = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        split = [key for key in KEYS if f"{key}{PLANES}" in entries and key not in entries]
        require_keys(path, [*entries, *split], KEYS)
        arrays = {key: _read_array(file, entries[key], budget) for key in (*KEYS, "meta") if key in entries}
        for key in split:
            arrays[key] = join_planes(_read_array(file, entries[f"{key}{PLANES}"], budget))
    meta = parse_meta(path, arrays["meta"]) if "meta" in arrays else {}
    return Demonstrations.from_arrays(**{key: arrays[key] for key in KEYS}, meta=meta)


def write_npz(demos: Demonstrations, name: str) -> None:
    """Write a new compressed file."""
    refuse_existing(Path(name))
    buffer = io.BytesIO()
    meta = np.array(json.dumps(demos.meta))
    np.savez_compressed(buffer, obs=demos.obs, act=demos.act, episode_ends=demos.episode_ends, meta=meta)
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


def require_keys(path: Path, there: Collection[Any], keys: Iterable[str]) -> None:
    """Raise `InvalidData` with the names of the arrays that a file lacks."""
    if missing := [key for key in keys if key not in there]:
        raise InvalidData(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(map(str, there)) or 'nothing'}. "
            f"Expected: {', '.join(keys)}."
        )


def _read_array(file: zipfile.ZipFile, info: zipfile.ZipInfo, budget: MemoryBudget) -> Array:
    """Read an array after checking its header against the entry's size, because numpy allocates what a header says."""
    with open_entry(file, info) as entry:
        version = npy.read_magic(entry)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(entry)
        budget.reserve(info.filename, shape, max(1, dtype.itemsize))
        length = info.file_size - entry.tell()
        if dtype.hasobject or length != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise ValueError(f"{info.filename} declares {dtype}{list(shape)} and contains {length} bytes")
    with open_entry(file, info) as entry:
        return npy.read_array(entry, allow_pickle=False)


NPZ = Format(
    label=".npz file",
    recognise=lambda path: has_entry(path, ".npy"),
    read=read_npz,
    write=write_npz,
    suffixes=(".npz",),
)
