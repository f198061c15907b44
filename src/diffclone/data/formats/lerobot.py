"""LeRobot's dataset folders, version 3: `meta/info.json`, and frames in `data/chunk-*/file-*.parquet`.

Files are found by listing the folder, not by the path templates in `info.json`, which may point outside it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Array, FileContents, import_optional
from diffclone.data.formats.format import Format
from diffclone.data.formats.memory import MemoryBudget
from diffclone.data.formats.meta import read_meta
from diffclone.data.formats.options import ReadOptions
from diffclone.errors import InvalidData
from diffclone.files import create_path, home_folder, write_json

OBSERVATIONS = ("observation.state", "observation.environment_state")
INDEX = "__index_level_0__"
ROWS = 8192
"""Frames read at a time, so that a wrong number of frames in the file's header is noticed early."""


def find_lerobot(name: str) -> Path:
    """Return a folder given by its path, or by its repository name in LeRobot's cache folder."""
    if Path(name).is_dir() or ".." in Path(name).parts:
        return Path(name)
    home = os.environ.get("HF_LEROBOT_HOME") or home_folder("HF_LEROBOT_HOME") / ".cache" / "huggingface" / "lerobot"
    return Path(home) / name


def read_lerobot(folder: Path, options: ReadOptions) -> Demonstrations:
    """Read state and environment state, concatenated. Videos and images are left out."""
    info_path = folder / "meta" / "info.json"
    if not info_path.is_file():
        raise InvalidData(f"{folder} is not a LeRobot dataset (no meta/info.json). Datasets are not downloaded.")
    budget = MemoryBudget.from_path(folder / "data")
    info = read_meta(info_path)
    files = sorted(path for path in (folder / "data").glob("*/*.parquet") if path.is_file())
    if not files:
        raise InvalidData(f"{folder} has no data/chunk-*/file-*.parquet, where LeRobot stores frames.")
    parts = [_read_file(path, budget) for path in files]
    if any(part.keys() != parts[0].keys() for part in parts):
        raise InvalidData(f"{folder}: the files in data have different columns; all must have the same columns.")
    columns = {key: _join_parts(folder, key, [part[key] for part in parts]) for key in parts[0]}
    episode, frame = columns.pop("episode_index"), columns.pop("frame_index")
    order = np.lexsort((frame, episode))
    ends = np.flatnonzero(np.append(np.diff(episode[order]) != 0, values=True)) + 1 if len(order) else order
    ours = folder / "meta" / "diffclone.json"
    meta = read_meta(ours) if ours.is_file() else _make_meta(folder, info)
    obs = {key: columns[key][order] for key in OBSERVATIONS if key in columns}
    act, left_out = columns["action"][order], _list_images(info)
    return FileContents("LeRobot", obs, act, ends, meta, left_out).to_demonstrations(folder, options)


def write_lerobot(demos: Demonstrations, name: str) -> None:
    """Write a new folder with one file of frames. `fps` and `task` come from `meta`; without them, 10 and empty."""
    with create_path(Path(name)) as folder:
        _write_folder(demos, folder)


def _write_folder(demos: Demonstrations, folder: Path) -> None:
    pa, parquet = import_optional("pyarrow"), import_optional("pyarrow.parquet")
    fps, task = demos.meta.get("fps"), str(demos.meta.get("task") or "")
    fps = fps if isinstance(fps, int | float) and fps > 0 else 10
    lengths, ends = demos.lengths, demos.episode_ends
    frame = np.concatenate([np.arange(length) for length in lengths])
    columns = {
        OBSERVATIONS[0]: _to_lists(pa, demos.obs),
        "action": _to_lists(pa, demos.act),
        "timestamp": pa.array((frame / fps).astype(np.float32)),
        "frame_index": pa.array(frame),
        "episode_index": pa.array(np.repeat(np.arange(len(lengths)), lengths)),
        "index": pa.array(np.arange(demos.num_steps)),
        "task_index": pa.array(np.zeros(demos.num_steps, dtype=np.int64)),
    }
    first = np.zeros(len(lengths), dtype=np.int64)
    episodes = {
        "episode_index": np.arange(len(lengths)),
        "tasks": pa.array([[task]] * len(lengths)),
        "length": lengths,
        **{f"{part}/{kind}_index": first for part in ("data", "meta/episodes") for kind in ("chunk", "file")},
        "dataset_from_index": ends - lengths,
        "dataset_to_index": ends,
    }
    tasks = pa.table({"task_index": [0], INDEX: [task]}, metadata={"pandas": json.dumps(_pandas_index())})
    for name, table in (
        ("data/chunk-000/file-000.parquet", pa.table(columns)),
        ("meta/episodes/chunk-000/file-000.parquet", pa.table(episodes)),
        ("meta/tasks.parquet", tasks),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, folder / name, use_dictionary=False)
    values = {OBSERVATIONS[0]: demos.obs, "action": demos.act}
    write_json(folder / "meta" / "stats.json", {key: _compute_statistics(array) for key, array in values.items()})
    write_json(folder / "meta" / "diffclone.json", dict(demos.meta))
    write_json(folder / "meta" / "info.json", _make_info(demos, columns, fps))


def _read_file(path: Path, budget: MemoryBudget) -> dict[str, list[Array]]:
    parquet = import_optional("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        names = set(file.schema_arrow.names)
        needed = ["action", "episode_index", "frame_index"]
        if missing := [name for name in needed if name not in names]:
            raise InvalidData(f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(names)) or 'nothing'}.")
        wanted = [*(key for key in OBSERVATIONS if key in names), *needed]
        # The sizes of single columns are not used: pyarrow aborts the process where those are damaged.
        budget.reserve("a column", (max(0, file.metadata.num_rows),), 1)
        found: dict[str, list[Array]] = {name: [] for name in wanted}
        for batch in file.iter_batches(ROWS, columns=wanted, use_threads=False):
            batch.validate(full=True)
            for name in wanted:
                rows = _to_rows(path, name, batch.column(name))
                budget.reserve(name, rows.shape, rows.itemsize)
                found[name].append(rows)
    return found


def _to_rows(path: Path, name: str, column: Any) -> Array:
    """Convert a column to an array with one number per frame for indices, and one row per frame otherwise."""
    values, wide = column, hasattr(column.type, "value_type")
    if wide:
        values = column.flatten()
        sizes = np.asarray(column.value_lengths())
        if column.null_count or (sizes != sizes[:1]).any():
            raise InvalidData(f"{path}: rows of {name} differ in length; all frames must have the same length.")
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "fiub" or (name.endswith("_index") and (wide or array.dtype.kind not in "iu")):
        raise InvalidData(f"{path}: {name} must contain numbers; it contains {column.type}.")
    return array if name.endswith("_index") else array.reshape(len(column), -1)


def _join_parts(folder: Path, name: str, parts: list[list[Array]]) -> Array:
    flat = [rows for part in parts for rows in part]
    if len({rows.shape[1:] for rows in flat}) > 1:
        raise InvalidData(f"{folder}: rows of {name} differ in length; all frames must have the same length.")
    return np.concatenate(flat) if flat else np.zeros((0, 1), dtype=np.float32)


def _make_meta(folder: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    fps = info.get("fps")
    return {"source": folder.name} | ({"fps": fps} if isinstance(fps, int | float) else {})


def _list_images(info: Mapping[str, Any]) -> dict[str, list[int]]:
    features = info.get("features")
    if not isinstance(features, dict):
        return {}
    images = {k: v for k, v in features.items() if isinstance(v, dict) and v.get("dtype") in ("video", "image")}
    return {key: [n for n in about.get("shape") or [] if isinstance(n, int)] for key, about in images.items()}


def _to_lists(pa: Any, rows: Array) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).reshape(-1)), rows.shape[1])


def _compute_statistics(rows: Array) -> dict[str, Any]:
    wide = rows.astype(np.float64)
    found = {"min": wide.min(0), "max": wide.max(0), "mean": wide.mean(0), "std": wide.std(0)}
    return {name: values.tolist() for name, values in found.items()} | {"count": [len(rows)]}


def _pandas_index() -> dict[str, Any]:
    """Return the metadata with which pandas marks an index: LeRobot looks tasks up in it."""
    entry = {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    number = {"pandas_type": "int64", "numpy_type": "int64", "metadata": None}
    return {
        "index_columns": [INDEX],
        "column_indexes": [{"name": None, "field_name": None, **entry, "metadata": {"encoding": "UTF-8"}}],
        "columns": [
            {"name": "task_index", "field_name": "task_index", **number},
            {"name": None, "field_name": INDEX, **entry},
        ],
    }


def _make_info(demos: Demonstrations, columns: Mapping[str, Any], fps: int | float) -> dict[str, Any]:
    sizes = {OBSERVATIONS[0]: (demos.obs.dtype, demos.obs.shape[1]), "action": (demos.act.dtype, demos.act.shape[1])}
    features = {
        name: {"dtype": str(sizes[name][0] if name in sizes else column.type), "shape": [1], "names": None}
        | ({"shape": [sizes[name][1]]} if name in sizes else {})
        for name, column in columns.items()
    }
    features["timestamp"]["dtype"] = "float32"  # Arrow names this type float
    return {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": demos.num_episodes,
        "total_frames": demos.num_steps,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 500,
        "fps": fps,
        "splits": {"train": f"0:{demos.num_episodes}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": features,
    }


LEROBOT = Format(
    label="LeRobot dataset",
    recognise=lambda path: (path / "meta" / "info.json").is_file(),
    read=read_lerobot,
    options=("action_kind",),
    write=write_lerobot,
    find=find_lerobot,
)
