"""Folders of Hugging Face datasets: Arrow files of `save_to_disk`, or parquet files as on the Hub.

The package `datasets` is not needed. Its `save_to_disk` writes `state.json` and `data-*.arrow`, in a folder per
split if there are splits. Parquet files are named by their split: `data/train-00000-of-00002.parquet`.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.columns import OPTIONS, ArrowColumns, demonstrations_from_columns
from diffclone.data.formats.contents import import_optional
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import read_meta
from diffclone.data.formats.names import sort_naturally
from diffclone.data.formats.options import ReadOptions
from diffclone.data.formats.tables import check_same_columns, parquet_columns
from diffclone.errors import InvalidData

STATE, SPLITS = "state.json", "dataset_dict.json"
SHARD = re.compile(r"-\d+(-of-\d+)?$")


def read_hugging_face(folder: Path, options: ReadOptions) -> Demonstrations:
    """Read a dataset, or the split that `filter_key` names."""
    if (folder / SPLITS).is_file():
        splits = read_meta(folder / SPLITS).get("splits")
        names = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
        split = _choose_split(folder, names, options)
        if Path(split).name != split or split == "..":
            raise InvalidData(f"{folder}: {SPLITS} names the split {split!r}, which is not a folder in it.")
        columns = _arrow_columns(folder / split)
    elif (folder / STATE).is_file():
        _choose_split(folder, [], options)
        columns = _arrow_columns(folder)
    else:
        files = _list_parquet(folder)
        if not files:
            name = "NAME" if folder.exists() else folder
            raise InvalidData(
                f"{folder} has neither {STATE}, {SPLITS} nor *.parquet. Datasets are not downloaded; to download one: "
                f"hf download {name} --repo-type dataset --local-dir FOLDER."
            )
        of_split: dict[str, list[Path]] = {}
        for path in files:
            of_split.setdefault(SHARD.sub("", path.stem), []).append(path)
        # Files that are not named as shards of a split are parts of one table.
        named = all(SHARD.search(path.stem) for path in files)
        split = _choose_split(folder, list(of_split) if named else [], options)
        columns = parquet_columns(folder, of_split[split] if split else files)
    return demonstrations_from_columns(folder, "Hugging Face dataset", columns, {"source": folder.name}, options)


def _choose_split(folder: Path, names: Sequence[str], options: ReadOptions) -> str:
    if options.filter_key is None and len(names) <= 1:
        return next(iter(names), "")
    if options.filter_key not in names:
        given = "" if options.filter_key is None else f", not {options.filter_key}"
        raise InvalidData(
            f"{folder} has the splits {', '.join(names) or 'nothing'}{given}; "
            + ("choose with --filter-key NAME." if names else "remove --filter-key.")
        )
    return str(options.filter_key)


def _arrow_columns(folder: Path) -> ArrowColumns:
    """Return the columns of the files of `save_to_disk`, one after the other, read in batches."""
    pa = import_optional("pyarrow")
    files = [folder / name for name in sort_naturally(path.name for path in folder.glob("*.arrow") if path.is_file())]
    if not files:
        raise InvalidData(f"{folder} has no *.arrow files, where datasets.save_to_disk stores rows.")
    budget = MemoryBudget.from_path(folder)

    def open_file(path: Path) -> Iterator[Any]:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    schemas: list[list[str]] = []
    rows = 0
    for path in files:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            schemas.append(list(reader.schema.names))
            for batch in reader:
                rows += batch.num_rows
                budget.reserve("a column", (batch.num_rows,), 1)
    check_same_columns(folder, schemas)

    def batches(name: str) -> Iterator[Any]:
        return (batch.column(name) for path in files for batch in open_file(path))

    return ArrowColumns(folder, schemas[0], rows, batches, budget)


def _list_parquet(folder: Path) -> list[Path]:
    """Return parquet files in the folder, or in its folder `data`."""
    for place in (folder, folder / "data"):
        if found := [path for path in place.glob("*.parquet") if path.is_file()] if place.is_dir() else []:
            return [place / name for name in sort_naturally(path.name for path in found)]
    return []


HUGGING_FACE = Format(
    label="Hugging Face dataset",
    recognise=lambda path: any((path / name).is_file() for name in (STATE, SPLITS)) or bool(_list_parquet(path)),
    read=read_hugging_face,
    options=(*OPTIONS, "filter_key"),
    files=(".parquet", ".arrow"),
)
