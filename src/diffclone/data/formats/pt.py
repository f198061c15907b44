"""The format of the original release: a dict of tensors `obs`, `actions`, `done`."""

import zipfile
from pathlib import Path
from typing import Any

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Array
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.zips import has_entry
from diffclone.errors import InvalidData

KEYS = ("obs", "actions", "done")


def read_pt(path: Path) -> Demonstrations:
    """Read the tensors. No code in the file is executed."""
    import torch

    budget = MemoryBudget.from_path(path)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            for info in file.infolist():
                budget.reserve(info.filename, (info.file_size,), 1)
    arrays = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(arrays, dict):
        raise InvalidData(f"{path} contains a {type(arrays).__name__}; a dict of tensors was expected.")
    if missing := [key for key in KEYS if key not in arrays]:
        has = ", ".join(map(str, arrays)) or "nothing"
        raise InvalidData(f"{path} lacks {', '.join(missing)}; it has {has}. Expected: {', '.join(KEYS)}.")
    obs, act, done = (_to_array(key, torch.as_tensor(arrays[key]), MemoryBudget.from_path(path)) for key in KEYS)
    return Demonstrations.from_arrays(obs, act, done=done, meta={"source": path.name})


def _to_array(key: str, tensor: Any, budget: MemoryBudget) -> Array:
    """Convert to double precision. The size is checked first, because a view of few bytes can have any shape."""
    if tensor.is_complex():
        raise InvalidData(f"{budget.source}: {key} must contain numbers; it contains {tensor.dtype}.")
    budget.reserve(key, tuple(tensor.shape), 8)
    return tensor.detach().double().numpy()


PT = Format(
    label=".pt file of tensors",
    recognise=lambda path: has_entry(path, "/data.pkl"),
    read=read_pt,
    suffixes=(".pt",),
)
