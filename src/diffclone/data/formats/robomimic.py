"""robomimic's HDF5 files: `data/demo_i/{actions, obs/<key>}`, and lists of episode names in `mask`."""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Episode, FileContents, import_optional, join_episodes, read_whole
from diffclone.data.formats.format import Format
from diffclone.data.formats.hdf5 import (
    SUFFIXES,
    Reopened,
    get_dataset,
    get_group,
    get_item,
    get_text,
    is_group,
    is_stored,
    list_root,
    open_hdf5,
    read_rows,
)
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import observation_parts, order_keys, parse_meta
from diffclone.data.formats.names import expand_patterns
from diffclone.data.formats.options import ReadOptions
from diffclone.data.layout import is_image
from diffclone.errors import InvalidData
from diffclone.files import create_path

DEPTH = 4
"""Largest number of nested groups in `obs`."""
MOST_MASKS = 100
"""Masks that are listed."""


@contextmanager
def open_robomimic(path: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find the low-dimensional observations of all episodes, or of those that `mask/<filter_key>` lists.

    Observations are the keys of `obs`, sorted, and those that are chosen also anything else in an episode, such as
    `states`. Actions are `actions`, or what is chosen, such as `actions_abs` or `action_dict/abs_pos`.
    """
    budget = MemoryBudget.from_path(path)
    episodes: list[Episode] = []
    left_out: dict[str, Any] = {}
    with open_hdf5(path) as file:
        again = Reopened(path)
        if "data" not in file:
            raise InvalidData(_explain_missing_data(path, list(file)))
        data = get_group(file, "data", path)
        meta, mask = _read_meta(data, path), options.filter_key
        names = sorted(data, key=_episode_number) if mask is None else _read_mask(file, mask, path)
        first, *others = options.action_keys or ("actions",)
        for name in names:
            demo = get_group(data, name, path)
            obs, images = _choose_observations(demo, meta, options, path)
            left_out |= images
            acts = {key: _find_dataset(demo, key, path) for key in (first, *others)}
            columns = obs | {f"action {key}": acts[key] for key in others}
            rows = {key: read_rows(item, budget, again) for key, item in columns.items()}
            episodes.append((rows, read_rows(acts[first], budget, again)))
        obs, act, ends = join_episodes(path, episodes)
        actions = {first: act, **{key: obs.pop(f"action {key}") for key in others}}
        yield FileContents("robomimic HDF5", obs, actions, ends, meta, left_out, _count_masks(file))


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
        environment = str(demos.meta.get("task") or demos.meta.get("environment") or "")
        data.attrs["env_args"] = json.dumps({"env_name": environment, "type": 2, "env_kwargs": {}})
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
    if (path.parent / "metadata.json").is_file():
        return f"{path} is part of a Minari dataset; give its folder: {path.absolute().parent}"
    return (
        f"{path} contains {', '.join(names[:12]) or 'nothing'}; a robomimic file contains data, "
        "a D4RL file contains observations and actions. Other files: read the arrays of each episode with h5py, and "
        "give them to Demonstrations.from_episodes."
    )


def _read_meta(data: Any, path: Path) -> dict[str, Any]:
    if (ours := get_text(data, "diffclone")) is not None:
        return parse_meta(path, ours)
    env_args = get_text(data, "env_args")
    name = parse_meta(path, env_args).get("env_name") if env_args else None
    return {"source": path.name, "environment": name}


def _choose_observations(
    demo: Any, meta: Mapping[str, Any], options: ReadOptions, path: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the datasets that form the observation, and the shapes of those in `obs` that are left out."""
    stored = _list_datasets(get_group(demo, "obs", path), path) if "obs" in demo else {}
    if options.obs_keys:
        names = expand_patterns(path, [*stored, *_list_others(demo)], options.obs_keys, "--obs-keys")
        chosen = {name: stored[name] if name in stored else _find_dataset(demo, name, path) for name in names}
    elif "obs" not in demo:
        raise InvalidData(
            f"{path}: {demo.name} has no obs; it has {', '.join(demo) or 'nothing'}. robomimic's "
            "dataset_states_to_obs.py adds it; to learn from the states of the simulator: --obs-keys states."
        )
    else:
        low = [k for k, v in stored.items() if not is_image(v.shape, v.dtype) and v.dtype.kind in "fiub"]
        chosen = {name: stored[name] for name in order_keys(low, meta)}
    return chosen, {key: stored[key].shape[1:] for key in stored if key not in chosen}


def _list_datasets(group: Any, path: Path, prefix: str = "", depth: int = DEPTH) -> dict[str, Any]:
    """Return the datasets in a group and its subgroups by name, such as policy/joint_pos."""
    found: dict[str, Any] = {}
    for name in group:
        item = get_item(group, name, path)
        if not is_group(item):
            found[f"{prefix}{name}"] = get_dataset(group, name, path)
        elif depth > 1:
            found |= _list_datasets(item, path, f"{prefix}{name}/", depth - 1)
    return found


def _list_others(demo: Any) -> list[str]:
    """Return the names of what an episode has beside `obs`, also within its groups."""
    return [
        name if not is_group(demo[name]) else f"{name}/{key}"
        for name in demo
        if name != "obs" and is_stored(demo, name)
        for key in (demo[name] if is_group(demo[name]) else ("",))
    ]


def _find_dataset(demo: Any, name: str, path: Path) -> Any:
    """Return a dataset of an episode by name, such as action_dict/abs_pos."""
    group, *parts = demo, *name.split("/")
    for part in parts[:-1]:
        group = get_group(group, part, path)
    return get_dataset(group, parts[-1], path)


def _count_masks(file: Any) -> dict[str, int]:
    """Return the number of episodes that each mask lists. What is not a mask is ignored: nobody has asked for it."""
    if "mask" not in file or not is_stored(file, "mask") or not is_group(file["mask"]):
        return {}
    masks = file["mask"]
    sizes = {name: getattr(masks[name], "size", None) for name in list(masks)[:MOST_MASKS] if is_stored(masks, name)}
    return {name: int(size) for name, size in sizes.items() if size is not None}


def _read_mask(file: Any, mask: str, path: Path) -> list[str]:
    if "mask" not in file:
        raise InvalidData(f"{path} has no masks, so that the episodes of {mask!r} are unknown. Remove --filter-key.")
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
    read=read_whole(open_robomimic),
    open=open_robomimic,
    options=("obs_keys", "action_keys", "filter_key", "action_kind"),
    write=write_robomimic,
    packages=("h5py",),
    suffixes=SUFFIXES,
)
