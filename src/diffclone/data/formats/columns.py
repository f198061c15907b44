"""Tables with one row per step: which columns are observations, actions and episodes, and how they are read.

A column has one number per row, or a list of numbers that is as long in all rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import FileContents
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.names import (
    ACTIONS,
    EPISODES,
    FLAGS,
    LEROBOT_STATES,
    OBSERVATIONS,
    TIME_LIMITS,
    expand_patterns,
    find_ends,
    list_names,
    sort_naturally,
)
from diffclone.data.formats.options import ReadOptions, to_flag
from diffclone.data.formats.rows import Array, Arrays, Rows
from diffclone.errors import InvalidData

OPTIONS = ("obs_keys", "action_keys", "episode_key", "action_kind")
BLOCK_ROWS = 8192
"""Rows read at a time, so that a wrong number of rows in a file's header is noticed early."""
BUFFER = 1 << 20
"""Bytes of a parquet file read at a time. Without a buffer pyarrow reads the whole of a column into memory."""
SHORT = {"obs_keys": "s", "action_keys": "a"}
"""Letters that name numbered columns: s0, s1, a0."""


@final
class ArrowColumns(Mapping[str, Any]):
    """The columns of Arrow tables by name. They are read one at a time, in batches, and checked."""

    def __init__(
        self,
        source: Path | str,
        names: Sequence[str],
        rows: int,
        batches: Callable[[str], Iterable[Any]],
        budget: MemoryBudget,
    ):
        self.source, self.names, self.rows, self.batches, self.budget = source, names, rows, batches, budget
        self.known: dict[str, Rows] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> Rows:
        if name not in self.names:
            raise KeyError(name)
        if name not in self.known:
            first = next((to_rows(self.source, name, batch) for batch in self.batches(name)), np.zeros(0))
            shape, dtype = (self.rows, *first.shape[1:]), first.dtype
            self.budget.reserve(name, shape, dtype.itemsize)
            self.known[name] = Rows(shape, dtype, lambda: self._read(name, shape))
        return self.known[name]

    def _read(self, name: str, shape: tuple[int, ...]) -> Iterator[Array]:
        found = 0
        for batch in self.batches(name):
            rows = to_rows(self.source, name, batch)
            found += len(rows)
            if rows.shape[1:] != shape[1:] or found > shape[0]:
                raise unequal_rows(self.source, name)
            yield rows


def to_rows(source: Path | str, name: str, column: Any) -> Array:
    """Convert a column of a batch to an array: one number (or text) per row, or one array of numbers per row."""
    column.validate(full=True)
    values = getattr(column, "storage", column)  # an extension type, which the package `datasets` defines
    shape = [len(values)]
    while hasattr(values.type, "value_type") and hasattr(values, "flatten"):
        sizes = np.asarray(values.value_lengths())
        if values.null_count or (sizes != sizes[:1]).any():
            raise unequal_rows(source, name)
        shape.append(int(sizes[0]) if len(sizes) else 1)
        values = values.flatten()
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def unequal_rows(source: Path | str, name: str) -> InvalidData:
    """Return the error of a column whose lists differ in length."""
    return InvalidData(f"{source}: rows of {name} differ in length or are missing; all must have the same length.")


def demonstrations_from_columns(
    source: Path | str, label: str, columns: Arrays, meta: Mapping[str, Any], options: ReadOptions
) -> Demonstrations:
    """Choose the columns of observations, actions and episodes by options or by their names, and read them."""
    obs = choose_columns(source, columns, OBSERVATIONS, options, "obs_keys")
    act = choose_columns(source, columns, ACTIONS, options, "action_keys")
    names = list(columns)  # a column that is looked up in `columns` itself is opened
    of_episodes = [name for name in EPISODES if name in names]
    if options.episode_key is None and len(of_episodes) > 1:
        raise InvalidData(f"{source} has {' and '.join(of_episodes)}; choose with --episode-key NAME.")
    chosen = of_episodes or [name for name in (*FLAGS, *TIME_LIMITS) if name in names]
    if options.episode_key is None and not chosen:
        raise InvalidData(
            f"{source} has the columns {list_names(names)}, so that the ends of episodes are unknown. Choose the "
            "column with the number of each row's episode: --episode-key NAME."
        )
    steps = len(columns[act[0]])
    if not steps:
        raise InvalidData(f"{source} has names of columns and no rows; one row per step is needed.")
    arrays = columns if options.episode_key is not None else {name: columns[name] for name in chosen}
    ends = find_ends(source, arrays, steps, options)
    return FileContents(
        label, {name: columns[name] for name in obs}, {name: columns[name] for name in act}, ends, meta
    ).to_demonstrations(source, options)


def choose_columns(
    source: Path | str, columns: Arrays, groups: Sequence[Sequence[str]], options: ReadOptions, option: str
) -> list[str]:
    """Return the columns that an option names, or those with a known name, such as obs, or obs_0, obs_1, …"""
    names, flag = list(columns), to_flag(option)
    if wanted := getattr(options, option):
        return expand_patterns(source, names, wanted, flag)
    if option == "obs_keys" and (found := [name for name in LEROBOT_STATES if name in names]):
        return found
    for group in (*groups, (SHORT[option],)):
        exact = [name for name in names if name in group and name != SHORT[option]]
        numbered = {
            prefix: sort_naturally(n for n in names if re.fullmatch(rf"{re.escape(prefix)}[_.\[]?\d+\]?", n))
            for prefix in group
        }
        candidates = [[name] for name in exact] + [found for found in numbered.values() if found]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            ways = " and ".join(f"{c[0]}…" if len(c) > 1 else c[0] for c in candidates)
            raise InvalidData(f"{source} has the columns {ways}; choose with {flag} NAME …")
    raise InvalidData(
        f"{source} has the columns {list_names(names)}; choose with {flag} NAME …, where 'x_*' stands for all that "
        "match."
    )
