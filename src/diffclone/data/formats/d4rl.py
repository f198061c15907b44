"""D4RL's HDF5: flat `observations`, `actions`, `terminals`, `timeouts`."""

from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.formats.found import Found, is_picture
from diffclone.data.formats.hdf5 import dataset, numbers, opened
from diffclone.data.formats.limits import Budget
from diffclone.errors import InvalidData


def read_d4rl(path: Path) -> dict[str, Any]:
    """An episode ends at a terminal or at a timeout; what follows the last is one that was cut off, and is kept."""
    budget = Budget.of(path)
    with opened(path) as file:
        flags = [key for key in ("terminals", "timeouts") if key in file]
        if not flags:
            raise InvalidData(f"{path} lacks terminals and timeouts, so that no episode has an end. One is needed.")
        seen, act = dataset(file, "observations", path), numbers(dataset(file, "actions", path), budget)
        picture = is_picture(seen.shape, seen.dtype)
        obs = {} if picture else {"observations": numbers(seen, budget)}
        left_out = {"observations": seen.shape[1:]} if picture else {}
        done = np.zeros(len(act), dtype=bool)
        for key in flags:
            flag = numbers(dataset(file, key, path), budget).reshape(-1)
            if len(flag) != len(act):
                raise InvalidData(f"{path}: {key} and actions differ in length: {len(flag)} != {len(act)}.")
            done |= flag.astype(bool)
    done[-1:] = True
    meta = {"source": path.name}
    return Found("D4RL HDF5", obs, act, np.flatnonzero(done) + 1, meta, left_out).arguments(path)
