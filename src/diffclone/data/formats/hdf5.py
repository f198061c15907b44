"""HDF5 files, read without following links to other files."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, final

from diffclone.data.formats.contents import import_optional
from diffclone.data.formats.hdf5_heap import SIGNATURE, check_heaps
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.rows import Array, Rows, slice_rows, watch_file
from diffclone.errors import InvalidData

SUFFIXES = (".hdf5", ".h5")


@contextmanager
def open_hdf5(path: Path) -> Generator[Any, None, None]:
    """Open a file and yield its root group."""
    if not path.is_file():
        raise InvalidData(f"no such file: {path}.")
    check_heaps(path)
    # A cache of chunks per dataset would take a megabyte for each; whole chunks are read, and only once.
    with import_optional("h5py").File(path, "r", rdcc_nbytes=0) as file:
        yield file


def list_root(path: Path) -> list[str]:
    """Return the names in the root group, or none if the file is not HDF5."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            return []
    with open_hdf5(path) as root:
        return list(root)


def get_item(group: Any, name: str, path: Path) -> Any:
    """Return a group or dataset that is stored in this file. Links and external storage are refused."""
    full_name = f"{group.name.rstrip('/')}/{name}"
    if "/" in name or name not in group:  # a path could pass through a link
        raise InvalidData(f"{path} lacks {full_name}; the group contains {', '.join(list(group)[:12]) or 'nothing'}.")
    if not is_stored(group, name):
        raise InvalidData(f"{path}: {full_name} is a link. Links are not followed; copy the data into the file.")
    item = group[name]
    if isinstance(item, import_optional("h5py").Dataset) and (item.external or item.is_virtual):
        raise InvalidData(f"{path}: {full_name} is stored in other files, which are not read; copy it into this one.")
    return item


def is_stored(group: Any, name: str) -> bool:
    """Return whether a name is not a link to another place."""
    return isinstance(group.get(name, getlink=True), import_optional("h5py").HardLink)


def get_group(group: Any, name: str, path: Path) -> Any:
    """Return a subgroup."""
    item = get_item(group, name, path)
    if not is_group(item):
        raise InvalidData(f"{path}: {item.name} is a dataset; a group was expected.")
    return item


def is_group(item: Any) -> bool:
    """Return whether an item is a group; otherwise it is a dataset."""
    return isinstance(item, import_optional("h5py").Group)


def get_dataset(group: Any, name: str, path: Path) -> Any:
    """Return a dataset without reading its values."""
    item = get_item(group, name, path)
    if is_group(item) or not hasattr(item, "dtype") or item.shape is None:
        raise InvalidData(f"{path}: {item.name} is not an array; a dataset was expected.")
    return item


def read_rows(item: Any, budget: MemoryBudget, again: "Reopened") -> Rows:
    """Return a dataset of numbers that is read in blocks. `again` is the file, for reading after it was closed."""
    if item.dtype.kind not in "fiub":
        raise InvalidData(f"{budget.source}: {item.name} must contain numbers; it contains {item.dtype}.")
    budget.reserve(item.name, max(item.shape, item.chunks or (), key=math.prod), item.dtype.itemsize)
    if not item.shape:
        raise InvalidData(f"{budget.source}: {item.name} is a single number; one row per step was expected.")
    file, name, shape, step = item.file, item.name, item.shape, item.chunks[0] if item.chunks else 1
    # Datasets are opened again, because thousands of open ones take much memory.
    return Rows(shape, item.dtype, lambda: slice_rows(file[name], shape, step), partial(again.read, name), step)


@final
class Reopened:
    """A file that is opened again when something is read from it after `open_hdf5` has closed it."""

    def __init__(self, path: Path):
        self.path, self.check = path, watch_file(path)
        self.file: Any = None

    def read(self, name: str, start: int, stop: int) -> Array:
        """Return some rows of a dataset."""
        self.check()
        if self.file is None:
            self.file = import_optional("h5py").File(self.path, "r", rdcc_nbytes=0)
        return self.file[name][start:stop]


def get_text(item: Any, name: str) -> str | None:
    """Return an attribute if it is text."""
    value = item.attrs.get(name) if name in item.attrs else None
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None
