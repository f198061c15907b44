"""robomimic's HDF5: `data/demo_i/{actions, obs/<key>}`, and lists of episodes by name in `mask`."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.found import (
    Episode,
    Found,
    in_order,
    is_picture,
    join_episodes,
    need,
    parse_meta,
    split_sizes,
)
from diffclone.data.formats.hdf5 import dataset, numbers, opened, subgroup, text
from diffclone.data.formats.limits import Budget
from diffclone.errors import InvalidData


def read_robomimic(path: Path, chosen: str | None = None) -> dict[str, Any]:
    """Low-dimensional keys of `obs`, side by side, of all episodes or of those that `mask/<chosen>` lists."""
    budget = Budget.of(path)
    episodes: list[Episode] = []
    left_out: dict[str, Any] = {}
    with opened(path) as file:
        data = subgroup(file, "data", path)
        meta = _meta(data, path)
        names = sorted(data, key=_number) if chosen is None else _chosen(file, chosen, path)
        for name in names:
            demo = subgroup(data, name, path)
            if "obs" not in demo:
                raise InvalidData(
                    f"{path}: {demo.name} has no obs; it has {', '.join(demo) or 'nothing'}. "
                    "robomimic's dataset_states_to_obs.py adds it."
                )
            group = subgroup(demo, "obs", path)
            found = {key: dataset(group, key, path) for key in group}
            others = [k for k, v in found.items() if is_picture(v.shape, v.dtype) or v.dtype.kind not in "fiub"]
            left_out |= {key: found[key].shape[1:] for key in others}
            keys = in_order(found.keys() - set(others), meta)
            obs = {key: numbers(found[key], budget) for key in keys}
            episodes.append((obs, numbers(dataset(demo, "actions", path), budget)))
    return Found("robomimic HDF5", *join_episodes(path, episodes), meta, left_out).arguments(path)


def write_robomimic(demos: Demonstrations, path: Path) -> None:
    """One group an episode; observations under the keys they were flattened from, if that is recorded."""
    parts = split_sizes(demos.meta)
    if sum(size for _, size in parts) != demos.obs.shape[1] or not all(
        re.fullmatch(r"[-\w]+", key) for key, _ in parts
    ):
        parts = [("state", demos.obs.shape[1])]
    edges = np.cumsum([size for _, size in parts])[:-1]
    with need("h5py", path).File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = demos.num_steps
        data.attrs["env_args"] = json.dumps({"env_name": demos.meta.get("task") or "", "type": 2, "env_kwargs": {}})
        data.attrs["diffclone"] = json.dumps(demos.meta)
        for number, (obs, act) in enumerate(demos.episodes()):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = len(act)
            demo["actions"] = act
            demo["rewards"] = np.zeros(len(act), dtype=np.float32)
            demo["dones"] = np.arange(len(act)) == len(act) - 1
            for (key, _), values in zip(parts, np.split(obs, edges, axis=1), strict=True):
                demo[f"obs/{key}"] = values


def _meta(data: Any, path: Path) -> dict[str, Any]:
    if (ours := text(data, "diffclone")) is not None:
        return parse_meta(path, ours)
    about = text(data, "env_args")
    name = parse_meta(path, about).get("env_name") if about else None
    return {"source": path.name, "environment": name}


def _chosen(file: Any, chosen: str, path: Path) -> list[str]:
    masks = subgroup(file, "mask", path)
    names = dataset(masks, chosen, path)
    if names.dtype.kind not in "SO" or names.ndim != 1 or names.size > 1_000_000:
        raise InvalidData(f"{path}: {names.name} must be a list of names; it is {names.dtype} of {names.shape}.")
    return [bytes(name).decode() for name in names[()]]


def _number(name: str) -> tuple[int, str]:
    """demo_10 comes after demo_9."""
    digits = name.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() and len(digits) < 19 else -1), name
