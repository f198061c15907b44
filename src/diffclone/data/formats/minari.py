"""Minari's dataset folders: `data/metadata.json` and `data/main_data.hdf5`.

An episode has one observation more than actions. Datasets are read with h5py and not with Minari, which creates the
environment that a file names and so may run any code.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Array, Episode, FileContents, import_optional, is_image, join_episodes
from diffclone.data.formats.format import Format
from diffclone.data.formats.hdf5 import get_dataset, get_group, get_item, is_group, open_hdf5, read_numbers
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import order_keys, parse_meta, read_meta
from diffclone.data.formats.options import ReadOptions
from diffclone.errors import InvalidData
from diffclone.files import create_path, home_folder

ID = re.compile(r"[-\w]+(/[-\w]+)*-v\d+")
DEPTH = 4
"""Largest number of nested Dict and Tuple spaces in observations."""


def find_minari(name: str) -> Path:
    """Return a folder given by its id in Minari's local store, or by its path."""
    known = ID.fullmatch(name) is not None
    if Path(name).is_dir() and not (known and (minari_store() / name).is_dir()):
        return Path(name)
    if not known:
        raise InvalidData(f"minari:{name} is neither a folder nor a Minari id (NAMESPACE/NAME-v0).")
    return minari_store() / name


def minari_store() -> Path:
    """Return the folder in which Minari stores datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or home_folder("MINARI_DATASETS_PATH") / ".minari" / "datasets")


def read_minari(folder: Path, options: ReadOptions) -> Demonstrations:
    """Read a dataset. Dict and Tuple observations are concatenated in the order of their keys."""
    data = folder / "data" if (folder / "data").is_dir() else folder
    if not (data / "metadata.json").is_file():
        raise InvalidData(
            f"{folder} is not a Minari dataset (no {data.name}/metadata.json). Datasets are not downloaded; "
            "to download one from Minari's server: minari download ID."
        )
    budget = MemoryBudget.from_path(data)
    about = read_meta(data / "metadata.json")
    if (kind := about.get("data_format", "hdf5")) != "hdf5":
        raise InvalidData(
            f"{folder} stores its data as {str(kind)[:20]}; only hdf5 is read. "
            'Create it again in Minari with data_format="hdf5".'
        )
    bounds = _get_action_bounds(folder, _get_space(folder, about, "action_space"))
    images = _list_images(_get_space(folder, about, "observation_space"))
    ours = about.get("diffclone")
    known = {"source": str(about.get("dataset_id", folder.name))} | ({"action_bounds": bounds} if bounds else {})
    meta = ours if isinstance(ours, dict) else known
    episodes: list[Episode] = []
    left_out: dict[str, Any] = {}
    path = data / "main_data.hdf5"
    with open_hdf5(path) as file:
        for number in sorted(int(name[8:]) for name in file if re.fullmatch(r"episode_\d{1,9}", name)):
            group = get_group(file, f"episode_{number}", path)
            act = read_numbers(get_dataset(group, "actions", path), budget)
            obs: dict[str, Array] = {}
            for key, item in _list_datasets(group, "observations", path, DEPTH).items():
                if key in images or item.dtype.kind not in "fiub" or is_image(item.shape, item.dtype):
                    left_out[key] = images.get(key, item.shape[1:])
                else:
                    obs[key] = _drop_last(path, number, key, read_numbers(item, budget), len(act))
            episodes.append(({key: obs[key] for key in order_keys(obs, meta)}, act))
    joined = join_episodes(folder, episodes)
    return FileContents("Minari", *joined, meta, left_out).to_demonstrations(folder, options)


def write_minari(demos: Demonstrations, name: str) -> None:
    """Write a new dataset to a folder, or to Minari's local store if `name` is an id.

    Demonstrations have no observation after the last action of an episode, so the last observation is repeated.
    """
    path = place_minari(name)
    dataset_id = name if ID.fullmatch(name) else path.name if ID.fullmatch(path.name) else f"{path.name}-v0"
    if not ID.fullmatch(dataset_id):
        raise InvalidData(f"{dataset_id} is not a Minari id; expected NAMESPACE/NAME-v0 or NAME-v0.")
    with create_path(path) as folder:
        _write_folder(demos, folder, dataset_id)


def place_minari(name: str) -> Path:
    """Return the folder that `write_minari` makes."""
    return minari_store() / name if ID.fullmatch(name) else Path(name)


def _write_folder(demos: Demonstrations, folder: Path, dataset_id: str) -> None:
    minari, spaces = import_optional("minari"), import_optional("gymnasium").spaces
    storage = import_optional("minari.dataset.minari_storage").MinariStorage
    episode = import_optional("minari.data_collector").EpisodeBuffer
    obs_low, obs_high = (0, 255) if demos.obs.dtype == np.uint8 else (-np.inf, np.inf)
    unbounded = np.full(demos.act.shape[1], np.inf, dtype=np.float32)
    data = folder.absolute() / "data"  # Minari fails with a relative path
    data.mkdir(parents=True)
    written = storage.new(
        data,
        observation_space=spaces.Box(obs_low, obs_high, (demos.obs.shape[1],), demos.obs.dtype.type),
        action_space=spaces.Box(*(demos.action_bounds or (-unbounded, unbounded)), dtype=np.float32),
        data_format="hdf5",
        jpeg_encoding=False,
    )
    written.update_metadata(
        {
            "dataset_id": dataset_id,
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


def _get_space(folder: Path, about: Mapping[str, Any], name: str) -> Any:
    space = about.get(name)
    return parse_meta(folder, space) if isinstance(space, str) else space


def _get_action_bounds(folder: Path, space: Any) -> list[list[float]] | None:
    """Return the bounds of a Box if they are finite."""
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


def _list_images(space: Any, key: str = "observations", depth: int = DEPTH) -> dict[str, Any]:
    """Return the shapes of image spaces. Minari may store images as the bytes of JPEG files, which look otherwise."""
    if not isinstance(space, dict) or depth < 0:
        return {}
    inner = space.get("subspaces")
    if isinstance(inner, list):
        inner = {f"_index_{number}": part for number, part in enumerate(inner)}
    if isinstance(inner, dict):
        return {k: v for name, part in inner.items() for k, v in _list_images(part, f"{key}/{name}", depth - 1).items()}
    shape = space.get("shape")
    return {key: shape} if space.get("dtype") == "uint8" and isinstance(shape, list) and len(shape) > 1 else {}


def _list_datasets(group: Any, name: str, path: Path, depth: int) -> dict[str, Any]:
    """Return datasets by their path within the episode."""
    item = get_item(group, name, path)
    if not is_group(item):
        return {name: get_dataset(group, name, path)}
    if depth == 0:
        raise InvalidData(f"{path}: observations are nested more than {DEPTH} levels deep; flatten them.")
    return {f"{name}/{k}": leaf for inner in item for k, leaf in _list_datasets(item, inner, path, depth - 1).items()}


def _drop_last(path: Path, number: int, key: str, rows: Array, actions: int) -> Array:
    if rows.ndim < 1 or len(rows) != actions + 1:
        raise InvalidData(
            f"{path}: episode {number} has {key} of shape {rows.shape} for {actions} actions. "
            "A Minari episode has one observation more than actions."
        )
    return rows[:-1]


MINARI = Format(
    label="Minari dataset",
    recognise=lambda path: any((path / name).is_file() for name in ("metadata.json", "data/metadata.json")),
    read=read_minari,
    options=("action_kind",),
    write=write_minari,
    place=place_minari,
    find=find_minari,
)
