"""robomimic's HDF5 files: `data/demo_i/{actions, obs/<key>}`, and lists of episode names in `mask`."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Episode, FileContents, import_optional, is_image, join_episodes
from diffclone.data.formats.format import Format
from diffclone.data.formats.hdf5 import (
    SUFFIXES,
    get_dataset,
    get_group,
    get_text,
    list_root,
    open_hdf5,
    read_numbers,
)
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import observation_parts, order_keys, parse_meta
from diffclone.data.formats.options import ReadOptions
from diffclone.errors import InvalidData
from diffclone.files import create_path


def read_robomimic(path: Path, options: ReadOptions) -> Demonstrations:
    """Read the low-dimensional observations of all episodes, or of those that `mask/<filter_key>` lists."""
    mask = options.filter_key
    budget = MemoryBudget.from_path(path)
    episodes: list[Episode] = []
    left_out: dict[str, Any] = {}
    with open_hdf5(path) as file:
        if "data" not in file:
            raise InvalidData(_explain_missing_data(path, list(file)))
        data = get_group(file, "data", path)
        meta = _read_meta(data, path)
        names = sorted(data, key=_episode_number) if mask is None else _read_mask(file, mask, path)
        for name in names:
            demo = get_group(data, name, path)
            if "obs" not in demo:
                raise InvalidData(
                    f"{path}: {demo.name} has no obs; it has {', '.join(demo) or 'nothing'}. "
                    "robomimic's dataset_states_to_obs.py adds it."
                )
            group = get_group(demo, "obs", path)
            stored = {key: get_dataset(group, key, path) for key in group}
            others = [k for k, v in stored.items() if is_image(v.shape, v.dtype) or v.dtype.kind not in "fiub"]
            left_out |= {key: stored[key].shape[1:] for key in others}
            obs = {key: read_numbers(stored[key], budget) for key in order_keys(stored.keys() - set(others), meta)}
            episodes.append((obs, read_numbers(get_dataset(demo, "actions", path), budget)))
    joined = join_episodes(path, episodes)
    return FileContents("robomimic HDF5", *joined, meta, left_out).to_demonstrations(path, options)


def write_robomimic(demos: Demonstrations, name: str) -> None:
    """Write one group per episode, with the original observation keys if they are recorded."""
    parts = observation_parts(demos.meta)
    valid_names = all(re.fullmatch(r"[-\w]+", key) for key, _ in parts)
    if not valid_names or sum(size for _, size in parts) != demos.obs.shape[1]:
        parts = [("state", demos.obs.shape[1])]
    edges = np.cumsum([size for _, size in parts])[:-1]
    with create_path(Path(name)) as path, import_optional("h5py").File(path, "w") as file:
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


def _explain_missing_data(path: Path, names: list[str]) -> str:
    if "episode_0" in names:
        return f"{path} is part of a Minari dataset; give its folder, {path.parent}."
    return (
        f"{path} contains {', '.join(names[:12]) or 'nothing'}; a robomimic file contains data, "
        "a D4RL file contains observations and actions."
    )


def _read_meta(data: Any, path: Path) -> dict[str, Any]:
    if (ours := get_text(data, "diffclone")) is not None:
        return parse_meta(path, ours)
    env_args = get_text(data, "env_args")
    name = parse_meta(path, env_args).get("env_name") if env_args else None
    return {"source": path.name, "environment": name}


def _read_mask(file: Any, mask: str, path: Path) -> list[str]:
    names = get_dataset(get_group(file, "mask", path), mask, path)
    if names.dtype.kind not in "SO" or names.ndim != 1 or names.size > 1_000_000:
        raise InvalidData(f"{path}: {names.name} must be a list of names; it is {names.dtype} of {names.shape}.")
    return [bytes(name).decode() for name in names[()]]


def _episode_number(name: str) -> tuple[int, str]:
    """Return a sort key by which demo_10 comes after demo_9."""
    digits = name.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() and len(digits) < 19 else -1), name


ROBOMIMIC = Format(
    label="robomimic HDF5 file",
    recognise=lambda path: "data" in list_root(path),
    read=read_robomimic,
    options=("filter_key", "action_kind"),
    write=write_robomimic,
    suffixes=SUFFIXES,
)
