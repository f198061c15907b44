"""Files of demonstrations. A reader turns a path into the arguments of `Demonstrations.from_arrays`."""

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diffclone.data.demonstrations import Demonstrations
from diffclone.errors import InvalidData
from diffclone.files import write_atomically


def read_npz(path: Path) -> dict[str, Any]:
    """Arrays `obs`, `act`, `episode_ends`, and optionally `meta`, a JSON string."""
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, zipfile.BadZipFile, zlib.error, EOFError) as fault:
        raise InvalidData(f"{path} is not a readable .npz file ({fault}).") from None
    _require(path, arrays, ("obs", "act", "episode_ends"))
    try:
        meta = json.loads(str(arrays["meta"])) if "meta" in arrays else {}
    except json.JSONDecodeError as fault:
        raise InvalidData(f"{path}: meta is not JSON ({fault}).") from None
    if not isinstance(meta, dict):
        raise InvalidData(f"{path}: meta must be a JSON object; it is {json.dumps(meta)[:40]}.")
    return {key: arrays[key] for key in ("obs", "act", "episode_ends")} | {"meta": meta}


def read_pt(path: Path) -> dict[str, Any]:
    """The layout of the original release: a flat dict of tensors `obs`, `actions`, `done`."""
    try:
        arrays = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:  # what a damaged pickle raises is anything
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise InvalidData(f"{path} is not a readable .pt file of tensors ({reason[:120]}).") from None
    if not isinstance(arrays, dict):
        raise InvalidData(f"{path} holds a {type(arrays).__name__}; a dict of tensors was expected.")
    _require(path, arrays, ("obs", "actions", "done"))
    obs, act, done = (torch.as_tensor(arrays[key]).detach().double().numpy() for key in ("obs", "actions", "done"))
    return {"obs": obs, "act": act, "done": done, "meta": {"source": path.name}}


READERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {".npz": read_npz, ".pt": read_pt}


def write_npz(demos: Demonstrations, path: Path) -> None:
    """Write a new file, whole or not at all."""
    if path.suffix != ".npz":
        raise InvalidData(f"demonstrations are saved as .npz; {path} ends in {path.suffix or 'nothing'}.")
    if path.exists():
        raise InvalidData(f"{path} exists already and is not overwritten. Choose another name or remove it.")
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        obs=demos.obs,
        act=demos.act,
        episode_ends=demos.episode_ends,
        meta=np.array(json.dumps(demos.meta)),
    )
    write_atomically(path, buffer.getvalue())


def _require(path: Path, arrays: Mapping[Any, Any], keys: tuple[str, ...]) -> None:
    if missing := [key for key in keys if key not in arrays]:
        raise InvalidData(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(map(str, arrays)) or 'nothing'}. "
            f"Expected: {', '.join(keys)}."
        )
