"""What observations, actions and ends of episodes are called in files of other people, and how they are chosen."""

import fnmatch
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diffclone.data.formats.options import ReadOptions, to_flag
from diffclone.data.formats.rows import AnyRows, Array, Arrays, read_all
from diffclone.errors import DiffcloneWarning, InvalidData

OBSERVATIONS = (("obs", "observation", "observations"), ("state", "states"))
"""Names of observations. Those of the second group are used only if none of the first is there: they are often the
state of a simulator."""
LEROBOT_STATES = ("observation.state", "observation.environment_state")
"""The observations of LeRobot's own policies. If one of them is there, other columns are read only on request."""
ACTIONS = (("act", "acts", "action", "actions"),)
ENDS = "episode_ends"
LENGTHS = ("lengths", "episode_lengths", "traj_lengths")
MASKS = ("mask", "masks", "valid")
"""Arrays (episodes, steps) that mark the steps that are not padding."""
FLAGS = ("done", "dones", "terminal", "terminals", "terminated", "terminations")
TIME_LIMITS = ("timeouts", "truncated", "truncations")
STARTS = "episode_starts"
EPISODES = ("episode", "episode_index", "episode_id", "episode_ids", "episodes", "traj_id", "trajectory")
LONG = 1000
"""Steps above which one episode that is most of a file is suspicious."""

Ends = npt.NDArray[np.int64]


def choose_keys(
    source: Path | str, there: Iterable[str], groups: Sequence[Sequence[str]], options: ReadOptions, option: str
) -> list[str]:
    """Return the names that an option selects, or else the one that a group contains, or names below it (obs/state)."""
    there, flag = list(there), to_flag(option)
    if wanted := getattr(options, option):
        return expand_patterns(source, there, wanted, flag)
    for group in groups:
        found = [name for name in there if name in group]
        if len(found) > 1:
            raise InvalidData(f"{source} has {' and '.join(found)}; choose with {flag} NAME.")
        if found := found or sort_naturally(name for name in there if name.partition("/")[0] in group):
            return found
    raise InvalidData(f"{source} has {list_names(there)}; choose with {flag} NAME …")


def check_names(source: Path | str, there: Collection[str], options: ReadOptions) -> None:
    """Raise `InvalidData` if a file of arrays lacks observations or actions. `find_ends` looks for the episodes."""
    tops = {name.partition("/")[0] for name in there}
    lacks = {
        "obs": not options.obs_keys and not tops & {name for group in OBSERVATIONS for name in group},
        "act": not options.action_keys and not tops & {name for group in ACTIONS for name in group},
    }
    if any(lacks.values()):
        raise InvalidData(
            f"{source} lacks {' and '.join(name for name, missing in lacks.items() if missing)}; it has "
            f"{list_names(there)}. Expected: obs and act, or observations and actions; or choose with --obs-keys and "
            "--action-keys."
        )


def expand_patterns(source: Path | str, there: Sequence[str], wanted: Sequence[str], flag: str) -> list[str]:
    """Return the names that are wanted, where `obs_*` stands for all that match, ordered by their numbers."""
    found: list[str] = []
    for pattern in wanted:
        matching = [pattern] if pattern in there else sort_naturally(fnmatch.filter(there, pattern))
        if not matching:
            raise InvalidData(f"{source} has no {pattern}, which {flag} names; it has {list_names(there)}.")
        found += [name for name in matching if name not in found]
    return found


def find_ends(source: Path | str, arrays: Arrays, steps: int, options: ReadOptions) -> Ends:
    """Return the ends of episodes, from the first of the known kinds of arrays that is there.

    Flags of termination alone do not show time limits: the next kind of array, if there is one, may have more ends.
    """
    if options.episode_key is not None:
        (key,) = expand_patterns(source, list(arrays), [options.episode_key], "--episode-key")[:1]
        return ends_of_runs(source, key, read_all(arrays[key]), steps)
    if ENDS in arrays:
        ends = read_all(arrays[ENDS])
        if ends.ndim != 1 or (ends.size and ends.dtype.kind not in "iu"):
            raise InvalidData(f"episode_ends must be a list of integers; it is {ends.dtype} of shape {ends.shape}.")
        return ends.astype(np.int64)
    for name in (name for name in LENGTHS if name in arrays):
        lengths = read_all(arrays[name]).reshape(-1)
        if lengths.dtype.kind not in "iu":
            raise InvalidData(f"{source}: {name} must contain integers; it contains {lengths.dtype}.")
        if lengths.sum() != steps:
            raise InvalidData(f"{source}: {name} adds up to {lengths.sum():g}; there are {steps} steps.")
        return np.cumsum(lengths, dtype=np.int64)
    flags = [name for name in (*FLAGS, *TIME_LIMITS) if name in arrays]
    if flags:
        done = np.zeros(steps, dtype=bool)
        for name in flags:
            done |= _read_flags(source, name, arrays[name], steps)
        others = [] if set(flags) & set(TIME_LIMITS) else [name for name in (STARTS, *EPISODES) if name in arrays]
        for name in others[:1]:
            done[_find_changes(source, name, arrays[name], steps) - 1] = True
        return ends_of_flags(source, done, [*flags, *others[:1]])
    for name in (name for name in (STARTS, *EPISODES) if name in arrays):
        return _find_changes(source, name, arrays[name], steps)
    raise InvalidData(
        f"{source} has {list_names(arrays)}, so that the ends of episodes are unknown. Add {ENDS}, the number of steps "
        f"up to the end of each episode ([{steps}] for a single one), or {FLAGS[3]} and {TIME_LIMITS[0]}, or choose an "
        "array with the number of each step's episode: --episode-key NAME."
    )


def ends_of_flags(source: Path | str, done: npt.NDArray[np.bool_], names: Sequence[str]) -> Ends:
    """Return the ends of episodes that flags mark. Steps after the last flag are an episode that was cut off."""
    done[-1:] = True
    ends = np.flatnonzero(done) + 1
    longest = int(np.diff(ends, prepend=0).max(initial=0))
    if longest > LONG and longest > len(done) / 2:
        missing = "" if set(names) & set(TIME_LIMITS) else f" and no {TIME_LIMITS[0]}"
        warnings.warn(
            f"{source} has {', '.join(names)}{missing}: one episode of {longest} steps is suspicious where there are "
            f"{len(done)} steps. If episodes ended at a time limit, add {TIME_LIMITS[0]} or use --episode-key NAME.",
            DiffcloneWarning,
            stacklevel=2,
        )
    return ends


def ends_of_runs(source: Path | str, name: str, numbers: Array, steps: int) -> Ends:
    """Return the ends of episodes where each step has the number (or the name) of its episode."""
    numbers = numbers.reshape(-1)
    if len(numbers) != steps:
        raise InvalidData(f"{source}: {name} and actions differ in length: {len(numbers)} != {steps}.")
    if (missing := np.flatnonzero(_is_missing(numbers))).size:
        raise InvalidData(
            f"{source}: {name} has no value at {missing.size} of {steps} steps, the first in row {missing[0]}. "
            "Give every step the number of its episode."
        )
    ends = np.flatnonzero(np.append(numbers[1:] != numbers[:-1], values=True)) + 1 if steps else np.zeros(0, np.int64)
    firsts = numbers[np.concatenate([[0], ends[:-1]])] if steps else numbers
    if len(np.unique(firsts)) < len(firsts):
        values, counts = np.unique(firsts, return_counts=True)
        value = values[counts > 1][0]
        number = int(value) if numbers.dtype.kind == "f" and float(value).is_integer() else value
        raise InvalidData(
            f"{source}: the steps with {name} {number} are not together. Sort the rows by {name} first, and keep the "
            "order of steps."
        )
    return ends


def _is_missing(values: Array) -> npt.NDArray[np.bool_]:
    """Return where a table has no value: NaN, or None or nothing among texts."""
    if values.dtype.kind in "OU":
        return np.array([value is None or value == "" or value != value for value in values], dtype=np.bool_)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=np.bool_)


def to_flags(source: Path | str, name: str, values: Array) -> npt.NDArray[np.bool_]:
    """Return numbers as flags. Texts such as "no" are refused, since each of them would count as true."""
    if values.dtype == object and all(isinstance(value, bool | np.bool_) for value in values.reshape(-1)):
        values = values.astype(bool)
    if values.dtype.kind not in "biuf" or (values.dtype.kind == "f" and np.isnan(values).any()):
        what = "NaN" if values.dtype.kind == "f" else str(values.dtype)
        raise InvalidData(f"{source}: {name} must contain true and false, or 0 and 1; it contains {what}.")
    return values.astype(bool)


def sort_naturally(names: Iterable[str]) -> list[str]:
    """Return names in their order, where obs_10 comes after obs_9."""
    return sorted(names, key=lambda name: [int(s) if s.isdecimal() else s for s in re.split(r"(\d{1,18})", name)])


def list_names(names: Iterable[str], most: int = 24) -> str:
    """Return names for a message."""
    names = list(names)
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])]) or "nothing"


def _find_changes(source: Path | str, name: str, values: AnyRows, steps: int) -> Ends:
    """Return the ends of episodes from flags of their starts, or from the number of each step's episode."""
    if name == STARTS:
        return ends_of_flags(source, np.roll(_read_flags(source, name, values, steps), -1), [name])
    return ends_of_runs(source, name, read_all(values), steps)


def _read_flags(source: Path | str, name: str, values: AnyRows, steps: int) -> npt.NDArray[np.bool_]:
    flags = read_all(values).reshape(-1)
    if len(flags) != steps:
        raise InvalidData(f"{source}: {name} and actions differ in length: {len(flags)} != {steps}.")
    return to_flags(source, name, flags)
