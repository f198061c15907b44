"""Minari's dataset folders: `data/metadata.json`, and `data/main_data.hdf5` or a folder per episode.

An episode has one observation more than actions. Datasets are read with h5py or pyarrow and not with Minari,
which creates the environment that a file names and so may run any code.
"""

import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Episode, FileContents, import_optional, join_episodes, read_whole
from diffclone.data.formats.format import Format
from diffclone.data.formats.hdf5 import Reopened, get_dataset, get_group, get_item, is_group, open_hdf5, read_rows
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import order_keys, parse_meta, read_meta
from diffclone.data.formats.minari_arrow import KINDS, list_arrow_episodes
from diffclone.data.formats.names import expand_patterns
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.rows import AnyRows, Rows, drop_last
from diffclone.data.layout import is_image
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


@contextmanager
def open_minari(folder: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find the arrays of a dataset. Dict and Tuple observations are concatenated in the order of their keys."""
    data = folder / "data" if (folder / "data").is_dir() else folder
    if not (data / "metadata.json").is_file():
        raise InvalidData(
            f"{folder} is not a Minari dataset (no {data.name}/metadata.json). Datasets are not downloaded; "
            "to download one from Minari's server: minari download ID."
        )
    budget = MemoryBudget.from_path(data)
    about = read_meta(data / "metadata.json")
    kind = about.get("data_format", "hdf5")
    if kind not in ("hdf5", *KINDS):
        raise InvalidData(
            f"{folder} stores its data as {str(kind)[:20]}; hdf5, {' and '.join(KINDS)} are read. "
            'Create it again in Minari with data_format="hdf5".'
        )
    bounds = _get_action_bounds(folder, _get_space(folder, about, "action_space"))
    images = _list_images(_get_space(folder, about, "observation_space"), "_index_{}" if kind == "hdf5" else "{}")
    ours = about.get("diffclone")
    known = {"source": str(about.get("dataset_id", folder.name))} | ({"action_bounds": bounds} if bounds else {})
    meta = ours if isinstance(ours, dict) else known
    with ExitStack() as stack:
        if kind == "hdf5":
            file = stack.enter_context(open_hdf5(data / "main_data.hdf5"))
            found = _list_hdf5_episodes(data / "main_data.hdf5", file, budget, images, options.obs_keys)
        else:
            found = list_arrow_episodes(data, str(kind), budget, DEPTH)
        episodes: list[Episode] = []
        left_out: dict[str, Any] = {}
        for number, arrays in enumerate(found):
            act = drop_last(arrays.pop("actions")) if kind != "hdf5" else arrays.pop("actions")
            left_out |= {key: images.get(key, []) for key, values in arrays.items() if key in images or values is None}
            keys = order_keys(arrays.keys() - left_out.keys(), meta)
            keys = _choose_keys(folder, keys, options)
            obs = {key: _drop_last(folder, number, key, arrays[key], len(act)) for key in keys}
            episodes.append((obs, act))
        yield FileContents("Minari", *join_episodes(folder, episodes), meta, left_out)


def _list_hdf5_episodes(
    path: Path, file: Any, budget: MemoryBudget, images: dict[str, Any], named: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Return the arrays of each episode by name. Datasets of texts are None, and so are images that are not named."""
    again = Reopened(path)
    for number in sorted(int(name[8:]) for name in file if re.fullmatch(r"episode_\d{1,9}", name)):
        group = get_group(file, f"episode_{number}", path)
        arrays: dict[str, Any] = {"actions": read_rows(get_dataset(group, "actions", path), budget, again)}
        for key, item in _list_datasets(group, "observations", path, DEPTH).items():
            if is_image(item.shape, item.dtype) and key.removeprefix("observations/") in named:
                images.pop(key, None)
            elif item.dtype.kind not in "fiub" or is_image(item.shape, item.dtype):
                images.setdefault(key, item.shape[1:])
            arrays[key] = None if key in images else read_rows(item, budget, again)
        yield arrays


def _choose_keys(folder: Path, keys: list[str], options: ReadOptions) -> list[str]:
    """Return the observation keys that the options name, with or without `observations/`."""
    if not options.obs_keys:
        return keys
    short = {key.removeprefix("observations/"): key for key in keys}
    wanted = tuple(key.removeprefix("observations/") for key in options.obs_keys)
    return [short[key] for key in expand_patterns(folder, list(short), wanted, "--obs-keys")]


def write_minari(demos: Demonstrations, name: str) -> None:
    """Write a new dataset to a folder, or to Minari's local store if `name` is an id.

    Demonstrations have no observation after the last action of an episode, so the last observation is repeated.
    """
    with create_path(place_minari(name)) as folder:
        _write_folder(demos, folder, _make_id(name))


def place_minari(name: str) -> Path:
    """Return the folder that `write_minari` makes."""
    return minari_store() / name if _make_id(name) == name else Path(name)


def _make_id(name: str) -> str:
    """Return an id as it is; for a folder, its name as an id."""
    last = Path(name).name
    dataset_id = name if ID.fullmatch(name) else last if ID.fullmatch(last) else f"{last}-v0"
    if not ID.fullmatch(dataset_id):
        raise InvalidData(f"{dataset_id} is not a Minari id; expected NAMESPACE/NAME-v0 or NAME-v0.")
    return dataset_id


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


def _list_images(space: Any, index: str, key: str = "observations", depth: int = DEPTH) -> dict[str, Any]:
    """Return the shapes of image spaces. Minari may store images as the bytes of JPEG files, which look otherwise.

    `index` is how a storage names the parts of a Tuple.
    """
    if not isinstance(space, dict) or depth < 0:
        return {}
    inner = space.get("subspaces")
    if isinstance(inner, list):
        inner = {index.format(number): part for number, part in enumerate(inner)}
    if isinstance(inner, dict):
        parts = (_list_images(part, index, f"{key}/{name}", depth - 1) for name, part in inner.items())
        return {name: shape for found in parts for name, shape in found.items()}
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


def _drop_last(folder: Path, number: int, key: str, rows: Rows, actions: int) -> AnyRows:
    if len(rows) != actions + 1:
        raise InvalidData(
            f"{folder}: episode {number} has {key} of shape {rows.shape} for {actions} actions. "
            "A Minari episode has one observation more than actions."
        )
    return drop_last(rows)


MINARI = Format(
    label="Minari dataset",
    recognise=lambda path: any((path / name).is_file() for name in ("metadata.json", "data/metadata.json")),
    read=read_whole(open_minari),
    open=open_minari,
    options=("obs_keys", "action_kind"),
    write=write_minari,
    packages=("minari", "gymnasium", "h5py"),
    place=place_minari,
    find=find_minari,
)
