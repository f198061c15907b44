"""LeRobot's dataset folders, versions 2 and 3: `meta/info.json`, and frames in `data/chunk-*/*.parquet`.

A file has one episode in version 2 (`episode_000000.parquet`) and many in version 3 (`file-000.parquet`).
"""

import os
import warnings
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.formats.contents import Array, FileContents, read_whole
from diffclone.data.formats.format import Format
from diffclone.data.formats.lerobot_frames import Frames, Order, read_tasks, sort_frames
from diffclone.data.formats.lerobot_writer import write_lerobot
from diffclone.data.formats.meta import read_meta
from diffclone.data.formats.names import LEROBOT_STATES, expand_patterns, list_names
from diffclone.data.formats.options import ReadOptions
from diffclone.errors import DiffcloneWarning, InvalidData
from diffclone.files import home_folder

DONE, TASK = "next.done", "task_index"


def find_lerobot(name: str) -> Path:
    """Return a folder given by its path, or by its repository name in LeRobot's cache folder."""
    if Path(name).is_dir() or ".." in Path(name).parts:
        return Path(name)
    home = os.environ.get("HF_LEROBOT_HOME") or home_folder("HF_LEROBOT_HOME") / ".cache" / "huggingface" / "lerobot"
    return Path(home) / name


@contextmanager
def open_lerobot(folder: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find columns of numbers, and of images that are chosen; `filter_key` is the text or the number of a task."""
    info, frames, found = _choose_columns(folder, options)
    indices = frames.read_indices([DONE, TASK])
    episode, frame, count = indices["episode_index"], indices["frame_index"], len(indices["frame_index"])
    order = sort_frames(episode, frame)
    subsets = _find_subsets(indices, read_tasks(folder))
    if options.filter_key is not None:
        order = _filter_frames(folder, order, indices, subsets, options.filter_key)
    sorted_episodes = episode[order]
    ends = np.append(np.flatnonzero(sorted_episodes[1:] != sorted_episodes[:-1]) + 1, [len(sorted_episodes)][:count])
    _warn_about_ends(folder, info, indices, order, ends, options)
    present = set(np.unique(indices[TASK][order]).tolist()) if subsets else set[int]()
    tasks = [name for name, numbers in subsets.items() if present.intersection(numbers)]
    ours = folder / "meta" / "diffclone.json"
    meta = read_meta(ours) if ours.is_file() else _make_meta(folder, info, tasks)
    contents = FileContents(
        "LeRobot",
        {key: frames.column(key, order, count) for key in found.obs},
        {key: frames.column(key, order, count) for key in found.act},
        ends,
        meta,
        found.left_out,
        _count_episodes(indices, subsets) if len(subsets) > 1 else {},
    )
    del indices, episode, frame, order, sorted_episodes, subsets  # together they may be as large as the observations
    yield contents


@contextmanager
def open_in_blocks(folder: Path, options: ReadOptions) -> Generator[FileContents, None, None]:
    """Find the same columns without a number per frame in memory. Frames must be stored in their order."""
    info, frames, found = _choose_columns(folder, options)
    if options.filter_key is not None:
        raise InvalidData(f"{folder}: --filter-key cannot be used with data that is read in blocks (--memory).")
    ends, ours = frames.read_ends(), folder / "meta" / "diffclone.json"
    _warn_about_missing(folder, info, ends)
    meta = read_meta(ours) if ours.is_file() else _make_meta(folder, info, list(read_tasks(folder).values()))
    count = int(ends[-1]) if len(ends) else 0
    obs, act = ({key: frames.column(key, slice(None), count) for key in keys} for keys in (found.obs, found.act))
    yield FileContents("LeRobot", obs, act, ends, meta, found.left_out)


@dataclass(frozen=True)
class Chosen:
    """The names of the columns of observations and actions, and the shapes of those that are left out."""

    obs: list[str]
    act: list[str]
    left_out: dict[str, list[int]]


def _choose_columns(folder: Path, options: ReadOptions) -> tuple[dict[str, Any], Frames, Chosen]:
    """Return the content of meta/info.json, the frames and the columns to read."""
    info_path = folder / "meta" / "info.json"
    if not info_path.is_file():
        raise InvalidData(f"{folder} is not a LeRobot dataset (no meta/info.json). Datasets are not downloaded.")
    info, frames = read_meta(info_path), Frames(folder)
    features = _get_features(info)
    images = [key for key, about in features.items() if about.get("dtype") in ("video", "image")]
    act, obs = _choose_actions(frames, options), _choose_observations(frames, images, options)
    others = [key for key in {**dict.fromkeys(images), **frames.types} if key in images or _is_observation(key)]
    return info, frames, Chosen(obs, act, {key: _get_shape(features.get(key)) for key in others if key not in obs})


def _choose_observations(frames: Frames, images: Sequence[str], options: ReadOptions) -> list[str]:
    """Return the columns of the observation.

    By default these are `observation.state` and `observation.environment_state`; if there is neither, all columns of
    numbers that begin with `observation.`, sorted; if there are none of these, `state` or `observations`.
    """
    numbers = [name for name in frames.numbers if name not in images]
    if options.obs_keys:
        named = [key for key in options.obs_keys if key in images]
        if video := next((key for key in named if key not in frames.types), None):
            raise InvalidData(
                f"{frames.folder}: {video} is a video, and videos are not decoded. Store it as images, LeRobot's "
                "use_videos=False."
            )
        return expand_patterns(frames.folder, [*numbers, *named], options.obs_keys, "--obs-keys")
    known = [name for name in LEROBOT_STATES if name in numbers]
    named = sorted(name for name in numbers if _is_observation(name))
    return known or named or [name for name in ("state", "observations") if name in numbers][:1]


def _choose_actions(frames: Frames, options: ReadOptions) -> list[str]:
    """Return the columns of the action: `action`, or `actions`, or all columns that begin with `action.`, sorted."""
    if options.action_keys:
        return expand_patterns(frames.folder, frames.numbers, options.action_keys, "--action-keys")
    for name in ("action", "actions"):
        if name in frames.types:
            return [name]
    if parts := sorted(name for name in frames.numbers if name.startswith("action.")):
        return parts
    raise InvalidData(f"{frames.files[0]} lacks action; it has {list_names(sorted(frames.types))}.")


def _find_subsets(indices: Mapping[str, Array], tasks: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the numbers of the tasks by their text or, if that is unknown, by the number. Texts may be equal."""
    subsets: dict[str, list[int]] = {}
    for number in np.unique(indices[TASK]).tolist() if TASK in indices else []:
        subsets.setdefault(tasks.get(number, str(number)), []).append(number)
    return subsets


def _count_episodes(indices: Mapping[str, Array], subsets: Mapping[str, list[int]]) -> dict[str, int]:
    """Return the number of episodes that have frames of each subset."""
    task, episode = indices[TASK], indices["episode_index"]
    new = np.append([True], (task[1:] != task[:-1]) | (episode[1:] != episode[:-1]))
    name_of = {number: name for name, numbers in subsets.items() for number in numbers}
    pairs = {(name_of.get(t), e) for t, e in zip(task[new].tolist(), episode[new].tolist(), strict=True)}
    counts = Counter(name for name, _ in pairs)
    return {name: counts[name] for name in subsets}


def _filter_frames(
    folder: Path, order: Order, indices: Mapping[str, Array], subsets: Mapping[str, list[int]], chosen: str
) -> Array:
    """Return the frames of the tasks with a text, or of the task with a number."""
    numbers = np.arange(len(indices["frame_index"]))[order]
    wanted = subsets.get(chosen) or ([int(chosen)] if chosen.isdecimal() and len(chosen) < 10 else [])
    kept = np.isin(indices[TASK][order], wanted) if TASK in indices else np.zeros(0, dtype=bool)
    if not kept.any():
        raise InvalidData(
            f"{folder} has no task {chosen!r}, which --filter-key names; it has {list_names(subsets) or 'no tasks'}."
        )
    return numbers[kept]


def _warn_about_ends(
    folder: Path, info: Mapping[str, Any], indices: Mapping[str, Array], order: Order, ends: Array, options: ReadOptions
) -> None:
    """Warn about episodes that seem to be missing or joined."""
    if options.filter_key is None:
        _warn_about_missing(folder, info, ends)
    if DONE in indices:
        done = indices[DONE][order].astype(bool)
        if early := int(done.sum() - done[ends - 1].sum()):
            problem = f"{DONE} is set in {early} frames before the last of an episode; episodes end by episode_index."
            warnings.warn(f"{folder}: {problem}", DiffcloneWarning, stacklevel=2)


def _warn_about_missing(folder: Path, info: Mapping[str, Any], ends: Array) -> None:
    total = info.get("total_episodes")
    if isinstance(total, int) and total > len(ends):
        problem = f"meta/info.json says {total} episodes, and the data has {len(ends)}; is the copy complete?"
        warnings.warn(f"{folder}: {problem}", DiffcloneWarning, stacklevel=2)


def _make_meta(folder: Path, info: Mapping[str, Any], tasks: list[str]) -> dict[str, Any]:
    fps = info.get("fps")
    known: dict[str, Any] = {"source": folder.name, "tasks": tasks} if tasks else {"source": folder.name}
    return known | ({"fps": fps} if isinstance(fps, int | float) else {})


def _get_features(info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    features = info.get("features")
    return {k: v for k, v in features.items() if isinstance(v, dict)} if isinstance(features, dict) else {}


def _get_shape(feature: Any) -> list[int]:
    shape = feature.get("shape") if isinstance(feature, dict) else None
    return [side for side in shape if isinstance(side, int)] if isinstance(shape, list) else []


def _is_observation(name: str) -> bool:
    return name == "observation" or name.startswith("observation.")


LEROBOT = Format(
    label="LeRobot dataset",
    recognise=lambda path: (path / "meta" / "info.json").is_file(),
    read=read_whole(open_lerobot),
    open=open_in_blocks,
    options=("obs_keys", "action_keys", "filter_key", "action_kind"),
    write=write_lerobot,
    packages=("pyarrow",),
    find=find_lerobot,
)
