"""Write a LeRobot dataset folder, version 3."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import Array, import_optional
from diffclone.files import create_path, write_json

STATE = "observation.state"
INDEX = "__index_level_0__"


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
        STATE: _to_lists(pa, demos.obs),
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
    values = {STATE: demos.obs, "action": demos.act}
    write_json(folder / "meta" / "stats.json", {key: _compute_statistics(array) for key, array in values.items()})
    write_json(folder / "meta" / "diffclone.json", dict(demos.meta))
    write_json(folder / "meta" / "info.json", _make_info(demos, columns, fps))


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
    sizes = {STATE: (demos.obs.dtype, demos.obs.shape[1]), "action": (demos.act.dtype, demos.act.shape[1])}
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
