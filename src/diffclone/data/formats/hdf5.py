"""HDF5 files, read without following anything out of them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diffclone.data.formats.found import Numbers, need
from diffclone.data.formats.limits import Budget
from diffclone.errors import InvalidData


@contextmanager
def opened(path: Path) -> Generator[Any, None, None]:
    """The file's root group."""
    if not path.is_file():
        raise InvalidData(f"no such file: {path}.")
    with need("h5py", path).File(path, "r") as file:
        yield file


def child(group: Any, name: str, path: Path) -> Any:
    """A group or dataset that lies in this file; links and outside storage are refused."""
    h5py = need("h5py", path)
    found = f"{group.name.rstrip('/')}/{name}"
    if name not in group:
        there = ", ".join(list(group)[:12]) or "nothing"
        raise InvalidData(f"{path} lacks {found}; beside it are {there}.")
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise InvalidData(f"{path}: {found} is a link. Links are not followed; copy the data into the file.")
    item = group[name]
    if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
        raise InvalidData(f"{path}: {found} lies in other files, which are not read; copy it into this one.")
    return item


def subgroup(group: Any, name: str, path: Path) -> Any:
    """A group."""
    item = child(group, name, path)
    if not is_group(item, path):
        raise InvalidData(f"{path}: {item.name} is a dataset; a group was expected.")
    return item


def is_group(item: Any, path: Path) -> bool:
    """Else it is a dataset."""
    return isinstance(item, need("h5py", path).Group)


def dataset(group: Any, name: str, path: Path) -> Any:
    """A dataset, not yet read."""
    item = child(group, name, path)
    if is_group(item, path) or not hasattr(item, "dtype") or item.shape is None:
        raise InvalidData(f"{path}: {item.name} is not an array; a dataset was expected.")
    return item


def numbers(item: Any, budget: Budget) -> Numbers:
    """Read a dataset of numbers, if its size is believable; a chunk may claim more than the whole."""
    if item.dtype.kind not in "fiub":
        raise InvalidData(f"{budget.source}: {item.name} must hold numbers; it holds {item.dtype}.")
    budget.take(item.name, max(item.shape, item.chunks or (), key=_volume), item.dtype.itemsize)
    return item[()]


def text(item: Any, name: str) -> str | None:
    """An attribute, if it is a text."""
    value = item.attrs.get(name) if name in item.attrs else None
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None


def _volume(shape: tuple[int, ...]) -> int:
    volume = 1
    for side in shape:
        volume *= side
    return volume
