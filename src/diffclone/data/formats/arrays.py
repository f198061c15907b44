"""Demonstrations from arrays with names: of all steps one after the other, or of the shape (episodes, steps, size)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import FileContents, check_action_kind, format_shape
from diffclone.data.formats.names import (
    ACTIONS,
    ENDS,
    FLAGS,
    LENGTHS,
    MASKS,
    OBSERVATIONS,
    TIME_LIMITS,
    check_names,
    choose_keys,
    find_ends,
    to_flags,
)
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.rows import AnyRows, Array, Arrays, Rows, fill_matrix, read_all, read_blocks
from diffclone.data.layout import is_image
from diffclone.data.matrices import check_shape
from diffclone.errors import InvalidData


def demonstrations_from_arrays(
    source: Path, label: str, arrays: Arrays, meta: Mapping[str, Any], options: ReadOptions
) -> Demonstrations:
    """Choose observations, actions and ends of episodes by their names, and read them."""
    obs, act = _choose(source, arrays, options)
    # Images may be called obs as well. They are read only on request, as those of all files.
    own = [*obs, *act] == ["obs", "act"] and not is_image(obs["obs"].shape, obs["obs"].dtype)
    if own and ENDS in arrays and options.episode_key is None:
        return _read_own(source, arrays, meta, options)
    if all(values.ndim == 3 for values in act.values()):
        numbers, images = _split_images(obs, 2, options)
        return _read_episodes(source, label, numbers, act, arrays, meta or {"source": source.name}, images, options)
    return contents_from_arrays(source, label, arrays, meta, options).to_demonstrations(source, options)


def contents_from_arrays(
    source: Path, label: str, arrays: Arrays, meta: Mapping[str, Any], options: ReadOptions
) -> FileContents:
    """Choose observations, actions and ends of episodes by their names. Arrays have the steps of all episodes."""
    obs, act = _choose(source, arrays, options)
    if all(values.ndim == 3 for values in act.values()):
        raise InvalidData(
            f"{source} has arrays of the shape (episodes, steps, size), which cannot be read in blocks; save them as "
            "(steps, size), or leave out --memory."
        )
    numbers, images = _split_images(obs, 1, options)
    steps = len(next(iter(act.values()))) if all(values.ndim for values in act.values()) else 0
    ends = find_ends(source, arrays, steps, options)
    return FileContents(label, numbers, act, ends, meta or {"source": source.name}, images)


def _choose(source: Path, arrays: Arrays, options: ReadOptions) -> tuple[dict[str, AnyRows], dict[str, AnyRows]]:
    """Return the arrays of observations and of actions by name."""
    check_names(source, arrays, options)
    # In a file of diffclone, `observations` or `actions` beside its own arrays make no choice necessary.
    groups = ((("obs",),), (("act",),)) if {"obs", "act", ENDS} <= set(arrays) else (OBSERVATIONS, ACTIONS)
    obs = {key: arrays[key] for key in choose_keys(source, arrays, groups[0], options, "obs_keys")}
    act = {key: arrays[key] for key in choose_keys(source, arrays, groups[1], options, "action_keys")}
    return obs, act


def _split_images(
    obs: Mapping[str, AnyRows], axes: int, options: ReadOptions
) -> tuple[dict[str, AnyRows], Mapping[str, Sequence[int]]]:
    """Return observations without images, and the shapes of images. The first `axes` axes are steps."""
    images = {
        key: values.shape[axes:]
        for key, values in obs.items()
        if not options.obs_keys and is_image(values.shape[axes - 1 :], values.dtype)
    }
    return {key: values for key, values in obs.items() if key not in images}, images


def _read_own(source: Path, arrays: Arrays, meta: Mapping[str, Any], options: ReadOptions) -> Demonstrations:
    """Read a file of diffclone: its metadata stays as it is."""
    for name in ("obs", "act"):
        check_shape(name, arrays[name].shape, arrays[name].dtype)
    check_action_kind(source, arrays["act"].dtype, options)
    obs, act = (fill_matrix(source, name, {name: arrays[name]}) for name in ("obs", "act"))
    return Demonstrations(obs, act, find_ends(source, arrays, len(act), options), dict(meta))


def _read_episodes(
    source: Path,
    label: str,
    obs: Mapping[str, AnyRows],
    act: Mapping[str, AnyRows],
    arrays: Arrays,
    meta: Mapping[str, Any],
    images: Mapping[str, Sequence[int]],
    options: ReadOptions,
) -> Demonstrations:
    """Read arrays of the shape (episodes, steps, size), where shorter episodes are padded."""
    episodes, steps = next(iter(act.values())).shape[:2]
    for key, values in {**obs, **act}.items():
        # One observation more than actions: the last one belongs to no step.
        if values.ndim < 3 or values.shape[:2] not in [(episodes, steps), (episodes, steps + (key in obs))]:
            raise InvalidData(
                f"{source}: {key} has the shape {format_shape(values.shape)} where actions have "
                f"{format_shape((episodes, steps))} episodes and steps. Both must be (episodes, steps, size)."
            )
    if options.episode_key is not None:
        raise InvalidData(f"{source} has arrays of the shape (episodes, steps, size): remove --episode-key.")
    lengths, known = _find_lengths(source, arrays, episodes, steps)
    contents = FileContents(
        label,
        {key: _drop_padding(values, lengths) for key, values in obs.items()},
        {key: _drop_padding(values, lengths) for key, values in act.items()},
        np.cumsum(lengths, dtype=np.int64),
        meta,
        images,
    )
    demos = contents.to_demonstrations(source, options)
    last = demos.episode_ends - 1
    padded = int((~known & ~demos.obs[last].any(1) & ~demos.act[last].any(1)).sum())
    if padded:
        raise InvalidData(
            f"{source}: {padded} of {episodes} episodes end in steps that are all zeros, which are probably padding. "
            f"Add an array {LENGTHS[0]} with the number of steps of each episode."
        )
    return demos


def _find_lengths(
    source: Path, arrays: Arrays, episodes: int, steps: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the lengths of episodes from lengths, a mask, or flags, and whether the length of each is known.

    An episode without a flag may have ended at a time limit, and be padded, if there are no flags of time limits.
    """
    names = [name for name in (*LENGTHS, *MASKS, *FLAGS, *TIME_LIMITS) if name in arrays]
    known: Array = np.full(episodes, bool(names))
    if not names:
        return np.full(episodes, steps), known
    if names[0] in LENGTHS:
        lengths = read_all(arrays[names[0]]).reshape(-1)
    else:
        flags = [name for name in names if name not in MASKS]
        used = flags if names[0] not in MASKS else names[:1]
        marks = np.zeros((episodes, steps), dtype=bool)
        for name in used:
            values = read_all(arrays[name])
            if values.shape[:2] != (episodes, steps) or values.size != marks.size:
                raise InvalidData(
                    f"{source}: {name} has the shape {format_shape(values.shape)}; expected "
                    f"{format_shape((episodes, steps))} as for the actions."
                )
            marks |= to_flags(source, name, values.reshape(marks.shape))
        if names[0] in MASKS:
            lengths = marks.sum(1)
            if (marks != (np.arange(steps) < lengths[:, None])).any():
                raise InvalidData(f"{source}: {names[0]} has gaps; the steps of an episode must come first.")
        else:
            lengths = np.where(marks.any(1), marks.argmax(1) + 1, steps)
            if not {*flags} & {*TIME_LIMITS}:
                known = np.asarray(marks.any(1))
    if (
        lengths.dtype.kind not in "iu"
        or lengths.shape != (episodes,)
        or not ((lengths >= 1) & (lengths <= steps)).all()
    ):
        raise InvalidData(
            f"{source}: {names[0]} must give each of the {episodes} episodes 1 to {steps} steps; it gives "
            f"{lengths.dtype} {format_shape(lengths.shape)} from {lengths.min():g} to {lengths.max():g}."
        )
    return lengths.astype(np.int64), known


def _drop_padding(values: AnyRows, lengths: npt.NDArray[np.int64]) -> Rows:
    """Return (episodes, steps, …) as rows of steps, without padding."""

    def blocks() -> Iterator[Array]:
        start = 0
        for block in read_blocks(values):
            yield block[np.arange(block.shape[1]) < lengths[start : start + len(block), None]]
            start += len(block)

    return Rows((int(lengths.sum()), *values.shape[2:]), values.dtype, blocks)
