"""The layout of the original release: a flat dict of tensors `obs`, `actions`, `done`."""

import zipfile
from pathlib import Path
from typing import Any

import torch

from diffclone.data.formats.found import Numbers
from diffclone.data.formats.limits import Budget
from diffclone.data.formats.npz import require
from diffclone.errors import InvalidData

KEYS = ("obs", "actions", "done")


def read_pt(path: Path) -> dict[str, Any]:
    """Tensors only: nothing in the file is executed."""
    budget = Budget.of(path)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            for info in file.infolist():
                budget.take(info.filename, (info.file_size,), 1)
    arrays = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(arrays, dict):
        raise InvalidData(f"{path} holds a {type(arrays).__name__}; a dict of tensors was expected.")
    require(path, arrays, KEYS)
    obs, act, done = (_numbers(key, arrays[key], Budget.of(path)) for key in KEYS)
    return {"obs": obs, "act": act, "done": done, "meta": {"source": path.name}}


def _numbers(key: str, values: Any, budget: Budget) -> Numbers:
    """The values in double precision. A view of few bytes can claim any shape, so this is asked first."""
    tensor = torch.as_tensor(values).detach()
    if tensor.is_complex():
        raise InvalidData(f"{budget.source}: {key} must hold numbers; it holds {tensor.dtype}.")
    budget.take(key, tuple(tensor.shape), 8)
    return tensor.double().numpy()
