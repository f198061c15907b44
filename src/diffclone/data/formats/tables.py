"""Tables with one row per step: CSV files, parquet files and data frames."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.columns import (
    BLOCK_ROWS,
    BUFFER,
    OPTIONS,
    ArrowColumns,
    demonstrations_from_columns,
    unequal_rows,
)
from diffclone.data.formats.contents import import_optional
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.names import list_names
from diffclone.data.formats.options import ReadOptions, keywords_in_errors
from diffclone.data.formats.rows import Rows, slice_rows
from diffclone.errors import InvalidData

PARQUET_MAGIC = b"PAR1"
FRAME = "the data frame"
DELIMITERS = (",", ";", "\t")
"""Signs between the columns of a CSV file. The first one in its first line is used."""
SAMPLE = 1 << 16
"""Characters from which the decimal point of a CSV file is found."""


def read_csv(path: Path, options: ReadOptions) -> Demonstrations:
    """Read a file whose first line has the names of the columns."""
    csv = import_optional("pyarrow.csv")
    budget = MemoryBudget.from_path(path)
    delimiter, decimal = _find_signs(path)
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(decimal_point=decimal),
    )

    def batches(name: str) -> Iterator[Any]:
        return iter(table[name].chunks)

    names = list(table.column_names)
    if all(map(_is_number, names)) and not all(map(str.isdecimal, names)):
        raise InvalidData(
            f"{path} begins with a line of numbers ({list_names(names, 3)}); the first line must have the names of the "
            "columns, such as episode, obs_0, obs_1, action_0. Add it."
        )
    if len(set(names)) < len(names):
        raise InvalidData(f"{path} has two columns of the same name; its columns are {', '.join(names)}.")
    columns = ArrowColumns(path, names, table.num_rows, batches, budget)
    return demonstrations_from_columns(path, "CSV", columns, {"source": path.name}, options)


def _find_signs(path: Path) -> tuple[str, str]:
    """Return the sign between the columns and the decimal point of a CSV file.

    Where a comma is the decimal point, spreadsheets separate columns by semicolons.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        header, sample = file.readline(SAMPLE), file.read(SAMPLE)
    delimiter = next((sign for sign in DELIMITERS if sign in header), ",")
    return delimiter, "," if delimiter != "," and "," in sample and "." not in sample else "."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_parquet(path: Path, options: ReadOptions) -> Demonstrations:
    """Read a parquet file."""
    columns = parquet_columns(path, [path])
    return demonstrations_from_columns(path, "parquet", columns, {"source": path.name}, options)


def parquet_columns(source: Path, files: Sequence[Path]) -> ArrowColumns:
    """Return the columns of parquet files, one after the other."""
    parquet = import_optional("pyarrow.parquet")
    budget = MemoryBudget.from_path(source)
    schemas: list[list[str]] = []
    rows = 0
    for path in files:
        with parquet.ParquetFile(path) as file:
            schemas.append(list(file.schema_arrow.names))
            rows += max(0, file.metadata.num_rows)
    budget.reserve("a column", (rows,), 1)
    check_same_columns(source, schemas)

    def batches(name: str) -> Iterator[Any]:
        for path in files:
            with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
                for batch in file.iter_batches(BLOCK_ROWS, columns=[name], use_threads=False):
                    yield batch.column(name)

    return ArrowColumns(source, schemas[0], rows, batches, budget)


def check_same_columns(source: Path, schemas: Sequence[Sequence[str]]) -> None:
    """Raise `InvalidData` if files of one dataset have other columns than its first file."""
    for names in schemas:
        if list(names) != list(schemas[0]):
            raise InvalidData(
                f"{source}: one file has the columns {', '.join(names)}, the first has {', '.join(schemas[0])}. "
                "All files must have the same columns."
            )


@keywords_in_errors()
def demonstrations_from_frame(frame: Any, meta: Mapping[str, Any], options: ReadOptions) -> Demonstrations:
    """Read a data frame of pandas, polars, or of another package whose columns have `to_numpy`."""
    if not hasattr(frame, "columns"):
        raise InvalidData(
            f"a data frame of pandas or polars is needed; it is of type {type(frame).__name__}. Arrays are given to "
            "Demonstrations.from_arrays."
        )
    demos = demonstrations_from_columns(FRAME, "data frame", FrameColumns(frame), meta, options)
    return options.apply_bounds(demos)


@final
class FrameColumns(Mapping[str, Any]):
    """The columns of a data frame by name. Lists are converted to an array when their column is used."""

    def __init__(self, frame: Any):
        self.frame, self.labels = frame, {str(label): label for label in frame.columns}
        self.known: dict[str, Rows] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, name: str) -> Rows:
        if name not in self.known:
            values = self.frame[self.labels[name]].to_numpy()
            if values.dtype == object and any(isinstance(row, np.ndarray | list | tuple) for row in values):
                try:
                    values = np.stack([np.asarray(row) for row in values])
                except ValueError:
                    raise unequal_rows(FRAME, name) from None
            self.known[name] = slice_rows(values, values.shape)
        return self.known[name]


def _is_parquet(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC


CSV = Format(
    label="CSV file",
    recognise=lambda path: False,  # any text may be CSV: the suffix decides
    read=read_csv,
    options=OPTIONS,
    suffixes=(".csv",),
)
PARQUET = Format(
    label="parquet file",
    recognise=_is_parquet,
    read=read_parquet,
    options=OPTIONS,
    suffixes=(".parquet",),
)
