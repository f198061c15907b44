"""HDF5 files of flat arrays, such as D4RL's `observations`, `actions`, `terminals`, `timeouts`."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.arrays import contents_from_arrays, demonstrations_from_arrays
from diffclone.data.formats.contents import FileContents
from diffclone.data.formats.format import Format
from diffclone.data.formats.hdf5 import (
    SUFFIXES,
    Reopened,
    get_dataset,
    get_group,
    is_group,
    is_stored,
    list_root,
    open_hdf5,
    read_rows,
)
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.names import ACTIONS, OBSERVATIONS
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.rows import Rows

MOST_NAMES = 1000
"""Arrays in groups that are listed."""


@final
class Datasets(Mapping[str, Any]):
    """The datasets of an open file by name, also those in groups, such as infos/qpos."""

    def __init__(self, path: Path, file: Any):
        self.path, self.file, self.budget = path, file, MemoryBudget.from_path(path)
        self.again = Reopened(path)
        self.names: list[str] = []
        self.known: dict[str, Rows] = {}
        for name in file:
            group = file[name] if is_stored(file, name) and is_group(file[name]) else None
            self.names += [name] if group is None else [f"{name}/{key}" for key in list(group)[:MOST_NAMES]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> Rows:
        if name not in self.names:
            raise KeyError(name)
        if name not in self.known:
            group, slash, key = name.partition("/")
            parent = get_group(self.file, group, self.path) if slash else self.file
            self.known[name] = read_rows(get_dataset(parent, key or name, self.path), self.budget, self.again)
        return self.known[name]


def read_d4rl(path: Path, options: ReadOptions) -> Demonstrations:
    """Read a file. An episode ends at a terminal, at a timeout, or at the end of the file."""
    with open_hdf5(path) as file:
        return demonstrations_from_arrays(path, "D4RL HDF5", Datasets(path, file), {}, options)


@contextmanager
def open_d4rl(path: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find the arrays of a file."""
    with open_hdf5(path) as file:
        yield contents_from_arrays(path, "D4RL HDF5", Datasets(path, file), {}, options)


def _has_names(path: Path) -> bool:
    names = set(list_root(path))
    return all(names & {name for group in groups for name in group} for groups in (OBSERVATIONS, ACTIONS))


D4RL = Format(
    label="D4RL HDF5 file",
    recognise=_has_names,
    read=read_d4rl,
    open=open_d4rl,
    options=("obs_keys", "action_keys", "episode_key", "action_kind"),
    suffixes=SUFFIXES,
)
