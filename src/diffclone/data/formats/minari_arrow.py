"""Minari's datasets stored as Arrow or parquet: a folder per episode, in which observations are nested columns.

All columns have as many rows as there are observations, so the last row of actions is padding.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.formats.columns import to_rows
from diffclone.data.formats.contents import import_optional
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.rows import Array, Rows, watch_file
from diffclone.errors import InvalidData

KINDS = ("arrow", "parquet")
OBSERVATIONS, ACTIONS = "observations", "actions"


def list_arrow_episodes(data: Path, kind: str, budget: MemoryBudget, depth: int) -> Iterator[dict[str, Any]]:
    """Return the arrays of each episode by name. A column that has no numbers, such as JPEG files, is None."""
    folders = {int(path.name): path for path in data.iterdir() if path.is_dir() and path.name.isdecimal()}
    for number in sorted(folders):
        files = sorted(path for path in folders[number].glob(f"*.{kind}") if path.is_file())
        if not files:
            raise InvalidData(f"{folders[number]} has no *.{kind} file, where Minari stores an episode.")
        arrays: dict[str, Any] = {}
        for name, column in _read_leaves(files[0], depth).items():
            arrays[name] = _open_column(files, name, column, budget, depth)
        yield arrays


def _open_column(files: list[Path], name: str, first: Any, budget: MemoryBudget, depth: int) -> Rows | None:
    types = import_optional("pyarrow").types
    values = first.type
    while hasattr(values, "value_type"):
        values = values.value_type
    if not (types.is_floating(values) or types.is_integer(values) or types.is_boolean(values)):
        return None
    columns = [to_rows(files[0], name, first)]
    columns += [to_rows(path, name, _read_leaves(path, depth)[name]) for path in files[1:]]
    shape = (sum(map(len, columns)), *columns[0].shape[1:])
    budget.reserve(name, shape, columns[0].dtype.itemsize)

    def blocks() -> Iterator[Array]:
        for path in files:
            yield to_rows(path, name, _read_leaves(path, depth)[name])

    checks = [watch_file(path) for path in files]

    def read(start: int, stop: int) -> Array:
        for check in checks:
            check()
        return np.concatenate(list(blocks()))[start:stop]

    return Rows(shape, columns[0].dtype, blocks, read, shape[0])


def _read_leaves(path: Path, depth: int) -> dict[str, Any]:
    """Return observations and actions of a file by names such as observations/goal, without inner columns."""
    pa = import_optional("pyarrow")
    if path.suffix == ".parquet":
        table = (
            import_optional("pyarrow.parquet")
            .ParquetFile(path)
            .read(columns=[OBSERVATIONS, ACTIONS], use_threads=False)
        )
    else:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
    if missing := [name for name in (OBSERVATIONS, ACTIONS) if name not in table.column_names]:
        raise InvalidData(f"{path} lacks {', '.join(missing)}; it has {', '.join(table.column_names)}.")
    leaves: dict[str, Any] = {}
    for name in (OBSERVATIONS, ACTIONS):
        column = table[name].combine_chunks()
        column = column.combine_chunks() if hasattr(column, "chunks") else column
        leaves |= _list_leaves(path, name, column, depth)
    return leaves


def _list_leaves(path: Path, name: str, column: Any, depth: int) -> dict[str, Any]:
    if not import_optional("pyarrow").types.is_struct(column.type):
        return {name: column}
    if depth == 0:
        raise InvalidData(f"{path}: observations are nested too deep; flatten them.")
    column.validate(full=True)
    fields = [column.type.field(index) for index in range(column.type.num_fields)]
    return {
        key: leaf
        for index, field in enumerate(fields)
        for key, leaf in _list_leaves(path, f"{name}/{field.name}", column.field(index), depth - 1).items()
    }
