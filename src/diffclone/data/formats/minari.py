"""Minari's folders: `data/metadata.json` beside `main_data.hdf5`. An episode has one observation more than actions.

They are read by h5py alone: Minari itself makes the environment that a file names, which may be any code.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.found import (
    Episode,
    Found,
    Numbers,
    in_order,
    is_picture,
    join_episodes,
    need,
    parse_meta,
    read_meta,
)
from diffclone.data.formats.hdf5 import child, dataset, is_group, numbers, opened, subgroup
from diffclone.data.formats.limits import Budget
from diffclone.errors import InvalidData

ID = re.compile(r"[-\w]+(/[-\w]+)*-v\d+")
DEPTH = 4
"""Levels of Dict and Tuple observations that are followed."""


def find_minari(name: str) -> Path:
    """A folder, by its id in the local store ($MINARI_DATASETS_PATH or ~/.minari/datasets) or by its path."""
    known = ID.fullmatch(name) is not None
    if Path(name).is_dir() and not (known and (store() / name).is_dir()):
        return Path(name)
    if not known:
        raise InvalidData(f"minari:{name} is neither a folder nor a Minari id (NAMESPACE/NAME-v0).")
    return store() / name


def store() -> Path:
    """Where Minari keeps datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def read_minari(folder: Path) -> dict[str, Any]:
    """Dict and Tuple observations are laid side by side in the order of their keys."""
    data = folder / "data" if (folder / "data").is_dir() else folder
    if not (data / "metadata.json").is_file():
        raise InvalidData(
            f"{folder} holds no Minari dataset (no {data.name}/metadata.json). Nothing is downloaded unasked; "
            "to fetch one from Minari's server: minari download ID."
        )
    budget = Budget.of(data)
    about = read_meta(data / "metadata.json")
    if (kind := about.get("data_format", "hdf5")) != "hdf5":
        raise InvalidData(
            f"{folder} stores its data as {str(kind)[:20]}; only hdf5 is read. "
            'Make it again by Minari with data_format="hdf5".'
        )
    bounds = _action_bounds(folder, _space(folder, about, "action_space"))
    pictures = _pictures(_space(folder, about, "observation_space"))
    ours = about.get("diffclone")
    known = {"source": str(about.get("dataset_id", folder.name))} | ({"action_bounds": bounds} if bounds else {})
    meta = ours if isinstance(ours, dict) else known
    episodes: list[Episode] = []
    left_out: dict[str, Any] = {}
    path = data / "main_data.hdf5"
    with opened(path) as file:
        for number in sorted(int(name[8:]) for name in file if re.fullmatch(r"episode_\d{1,9}", name)):
            group = subgroup(file, f"episode_{number}", path)
            act = numbers(dataset(group, "actions", path), budget)
            obs: dict[str, Numbers] = {}
            for key, item in _leaves(group, "observations", path, DEPTH).items():
                shape = pictures.get(key, item.shape[1:])
                if key in pictures or item.dtype.kind not in "fiub" or is_picture(item.shape, item.dtype):
                    left_out[key] = shape
                else:
                    obs[key] = _without_last(path, number, key, numbers(item, budget), len(act))
            episodes.append(({key: obs[key] for key in in_order(obs, meta)}, act))
    return Found("Minari", *join_episodes(folder, episodes), meta, left_out).arguments(folder)


def write_minari(demos: Demonstrations, folder: Path, name: str) -> None:
    """By Minari itself. What is seen after an episode's last action is not known: its last observation is repeated."""
    minari, spaces = need("minari", folder), need("gymnasium", folder).spaces
    storage = need("minari.dataset.minari_storage", folder).MinariStorage
    episode = need("minari.data_collector", folder).EpisodeBuffer
    if not ID.fullmatch(name):
        raise InvalidData(f"{name} is no Minari id; expected NAMESPACE/NAME-v0, the namespace optional.")
    whole = demos.obs.dtype == np.uint8
    obs_low, obs_high = (0, 255) if whole else (-np.inf, np.inf)
    size = demos.act.shape[1]
    low, high = demos.action_bounds or (np.float32(-np.inf), np.float32(np.inf))
    data = folder.absolute() / "data"  # Minari loses its way from a relative one
    data.mkdir(parents=True)
    written = storage.new(
        data,
        observation_space=spaces.Box(obs_low, obs_high, (demos.obs.shape[1],), demos.obs.dtype.type),
        action_space=spaces.Box(np.broadcast_to(low, size), np.broadcast_to(high, size), dtype=np.float32),
        data_format="hdf5",
        jpeg_encoding=False,
    )
    written.update_metadata(
        {
            "dataset_id": name,
            "minari_version": minari.__version__,
            "description": "Demonstrations without rewards. The last observation of each episode is repeated.",
            "diffclone": dict(demos.meta),
        }
    )
    written.update_episodes(
        episode(
            observations=np.concatenate([obs, obs[-1:]]),
            actions=act,
            rewards=np.zeros(len(act), dtype=np.float32),
            terminations=np.zeros(len(act), dtype=bool),
            truncations=np.arange(len(act)) == len(act) - 1,
        )
        for obs, act in demos.episodes()
    )


def _space(folder: Path, about: Mapping[str, Any], name: str) -> Any:
    space = about.get(name)
    return parse_meta(folder, space) if isinstance(space, str) else space


def _action_bounds(folder: Path, space: Any) -> list[list[float]] | None:
    """Of a Box with finite sides."""
    if not isinstance(space, dict):
        return None
    if space.get("type") != "Box":
        raise InvalidData(
            f"{folder}: actions are {str(space.get('type'))[:20]}; only a Box of continuous actions is supported, "
            "discrete actions are not."
        )
    low, high = (np.asarray(space.get(side), dtype=np.float64) for side in ("low", "high"))
    finite = low.ndim == high.ndim == 1 and bool(np.isfinite(low).all() and np.isfinite(high).all())
    return [low.tolist(), high.tolist()] if finite else None


def _pictures(space: Any, key: str = "observations", depth: int = DEPTH) -> dict[str, Any]:
    """Shapes of those spaces that are pictures, since Minari may have stored them as the bytes of JPEG files."""
    if not isinstance(space, dict) or depth < 0:
        return {}
    inner = space.get("subspaces")
    if isinstance(inner, list):
        inner = {f"_index_{number}": part for number, part in enumerate(inner)}
    if isinstance(inner, dict):
        return {k: v for name, part in inner.items() for k, v in _pictures(part, f"{key}/{name}", depth - 1).items()}
    shape = space.get("shape")
    return {key: shape} if space.get("dtype") == "uint8" and isinstance(shape, list) and len(shape) > 1 else {}


def _leaves(group: Any, name: str, path: Path, depth: int) -> dict[str, Any]:
    """Datasets by their path below the episode."""
    item = child(group, name, path)
    if not is_group(item, path):
        return {name: dataset(group, name, path)}
    if depth == 0:
        raise InvalidData(f"{path}: observations lie more than {DEPTH} levels deep; flatten them.")
    return {f"{name}/{k}": leaf for inner in item for k, leaf in _leaves(item, inner, path, depth - 1).items()}


def _without_last(path: Path, number: int, key: str, rows: Numbers, actions: int) -> Numbers:
    if rows.ndim < 1 or len(rows) != actions + 1:
        raise InvalidData(
            f"{path}: episode {number} has {key} of shape {rows.shape} for {actions} actions. "
            "Minari has one observation more than actions."
        )
    return rows[:-1]
