"""Demonstrations episode by episode: lists of arrays in Python, and folders of npz files."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Episode, FileContents, format_shape, join_episodes, read_whole
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.names import (
    ACTIONS,
    ENDS,
    EPISODES,
    FLAGS,
    LENGTHS,
    OBSERVATIONS,
    STARTS,
    TIME_LIMITS,
    check_names,
    choose_keys,
    find_ends,
    list_names,
    sort_naturally,
)
from diffclone.data.formats.npz import NpzArrays
from diffclone.data.formats.options import ReadOptions, keywords_in_errors
from diffclone.data.formats.rows import AnyRows, Arrays, drop_last
from diffclone.errors import InvalidData

SOURCE = "the list of episodes"


@keywords_in_errors()
def demonstrations_from_episodes(episodes: Any, meta: Mapping[str, Any], options: ReadOptions) -> Demonstrations:
    """Read pairs (observations, actions), or dicts of arrays. Observations may be dicts as well."""
    if not isinstance(episodes, Iterable):
        raise InvalidData(
            "a list of episodes is needed, each a pair (obs, act) or a dict of arrays; it is an object of type "
            f"{type(episodes).__name__}."
        )
    found = [_read_item(number, item, options) for number, item in enumerate(cast(Iterable[Any], episodes))]
    contents = FileContents("list of episodes", *join_episodes(SOURCE, found), meta)
    return options.apply_bounds(contents.to_demonstrations(SOURCE, options))


@contextmanager
def open_npz_folder(folder: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find the arrays of all npz files, ordered by number. A file is one episode, unless it says otherwise."""
    budget = MemoryBudget.from_path(folder)
    parts: list[Episode] = []
    ends: list[Any] = []
    steps = 0
    for name in sort_naturally(path.name for path in _list_files(folder)):
        path = folder / name
        arrays = NpzArrays(path, budget)
        check_names(path, arrays, options)
        obs, act = _choose(path, arrays, options)
        if act.ndim > 2:
            raise InvalidData(
                f"{path}: actions have the shape {format_shape(act.shape)}; (steps, size) was expected, since each "
                "file of a folder has the steps of one or several episodes one after the other."
            )
        parts.append((obs, act))
        several = {ENDS, STARTS, *LENGTHS, *FLAGS, *TIME_LIMITS, *EPISODES} & set(arrays) or options.episode_key
        inner = find_ends(path, arrays, len(act), options) if several else np.array([len(act)])
        ends.append(steps + inner)
        steps += len(act)
    obs, act, _ = join_episodes(folder, parts)
    yield FileContents("folder of npz files", obs, act, np.concatenate(ends), {"source": folder.name})


def _read_item(number: int, item: Any, options: ReadOptions) -> Episode:
    where = f"{SOURCE}: episode {number}"
    if isinstance(item, tuple | list) and len(item) == 2:
        item = {"obs": item[0], "act": item[1]}
    if not isinstance(item, Mapping):
        raise InvalidData(f"{where} is a {type(item).__name__}; a pair (obs, act) or a dict of arrays was expected.")
    arrays = _flatten(where, item)
    check_names(where, arrays, options)
    return _choose(where, arrays, options)


def _choose(source: Path | str, arrays: Arrays, options: ReadOptions) -> Episode:
    """Return the observations and the actions of an episode. An observation after the last action is left out."""
    obs: dict[str, AnyRows] = {
        key: arrays[key] for key in choose_keys(source, arrays, OBSERVATIONS, options, "obs_keys")
    }
    keys = choose_keys(source, arrays, ACTIONS, options, "action_keys")
    if len(keys) > 1:
        raise InvalidData(f"{source}: several arrays of actions, {list_names(keys)}; join them into one first.")
    act: AnyRows = arrays[keys[0]]
    if not act.ndim or not len(act):
        raise InvalidData(f"{source} has no steps: {keys[0]} has the shape {act.shape}.")
    if all(values.ndim and len(values) == len(act) + 1 for values in obs.values()):
        obs = {key: drop_last(values) for key, values in obs.items()}
    return obs, act


def _flatten(where: str, item: Mapping[str, Any], prefix: str = "") -> dict[str, AnyRows]:
    """Return the arrays of a dict by name, those of inner dicts as `obs/state`."""
    arrays: dict[str, AnyRows] = {}
    for key, value in item.items():
        if isinstance(value, Mapping):
            arrays |= _flatten(where, value, f"{prefix}{key}/")
            continue
        try:
            arrays[f"{prefix}{key}"] = np.asarray(value)
        except ValueError:
            raise InvalidData(f"{where}: rows of {prefix}{key} differ in length or shape.") from None
    return arrays


def _list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.glob("*.npz") if path.is_file() and not path.name.startswith(".")]


NPZ_FOLDER = Format(
    label="folder of .npz files",
    recognise=lambda path: bool(_list_files(path)),
    read=read_whole(open_npz_folder),
    open=open_npz_folder,
    options=("obs_keys", "action_keys", "episode_key", "action_kind"),
    files=(".npz",),
)
