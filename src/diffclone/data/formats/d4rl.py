"""D4RL's HDF5 files: flat arrays `observations`, `actions`, `terminals`, `timeouts`."""

from pathlib import Path

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import FileContents, is_image
from diffclone.data.formats.format import Format
from diffclone.data.formats.hdf5 import SUFFIXES, get_dataset, list_root, open_hdf5, read_numbers
from diffclone.data.formats.memory import MemoryBudget
from diffclone.errors import InvalidData


def read_d4rl(path: Path) -> Demonstrations:
    """Read a file. An episode ends at a terminal, at a timeout, or at the end of the file."""
    budget = MemoryBudget.from_path(path)
    with open_hdf5(path) as file:
        flags = [key for key in ("terminals", "timeouts") if key in file]
        if not flags:
            raise InvalidData(f"{path} has neither terminals nor timeouts, so that the ends of episodes are unknown.")
        stored, act = get_dataset(file, "observations", path), read_numbers(get_dataset(file, "actions", path), budget)
        image = is_image(stored.shape, stored.dtype)
        obs = {} if image else {"observations": read_numbers(stored, budget)}
        left_out = {"observations": stored.shape[1:]} if image else {}
        done = np.zeros(len(act), dtype=bool)
        for key in flags:
            flag = read_numbers(get_dataset(file, key, path), budget).reshape(-1)
            if len(flag) != len(act):
                raise InvalidData(f"{path}: {key} and actions differ in length: {len(flag)} != {len(act)}.")
            done |= flag.astype(bool)
    done[-1:] = True
    ends, meta = np.flatnonzero(done) + 1, {"source": path.name}
    return FileContents("D4RL HDF5", obs, act, ends, meta, left_out).to_demonstrations(path)


D4RL = Format(
    label="D4RL HDF5 file",
    recognise=lambda path: {"observations", "actions"} <= set(list_root(path)),
    read=read_d4rl,
    suffixes=SUFFIXES,
)
