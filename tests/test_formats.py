"""Files that were written by the packages of the formats are read correctly."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import install_package
from diffclone import Demonstrations
from diffclone.data.formats import FORMATS, check_target, describe, has_format_prefix
from diffclone.errors import InvalidData, MissingPackage, install_command

h5py: Any = pytest.importorskip("h5py")
pa: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")
zarr: Any = pytest.importorskip("zarr")
minari: Any = pytest.importorskip("minari")
gym: Any = pytest.importorskip("gymnasium")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")

LENGTHS = [3, 1, 4]
ENDS = [3, 4, 8]
RNG = np.random.default_rng(0)
STATE = RNG.normal(size=(8, 3)).astype(np.float32)
GOAL = RNG.normal(size=(8, 2)).astype(np.float32)
ACT = RNG.uniform(-1, 1, size=(8, 2)).astype(np.float32)
IMAGES = np.zeros((8, 4, 4, 3), dtype=np.uint8)

TABLES = """
import numpy as np
from pathlib import Path
from diffclone import Demonstrations
from diffclone.data.formats import Format

def read(path):
    rows = np.loadtxt(path, dtype=np.float32)
    return Demonstrations.from_arrays(rows[:, :-1], rows[:, -1:], episode_ends=[len(rows)])

def write(demos, name):
    np.savetxt(name, np.hstack([demos.obs, demos.act]), header="table", comments="#", fmt="%.9g")

TABLE = Format(
    label="table of numbers",
    recognise=lambda path: path.read_bytes().startswith(b"#table"),
    read=read,
    write=write,
    suffixes=(".table",),
)
"""


def slices() -> list[slice]:
    return [slice(end - length, end) for end, length in zip(ENDS, LENGTHS, strict=True)]


def check(demos: Demonstrations, *obs: Any) -> None:
    assert np.array_equal(demos.obs, np.concatenate(obs, 1))
    assert np.array_equal(demos.act, ACT)
    assert demos.episode_ends.tolist() == ENDS
    json.dumps(demos.meta)


def robomimic(path: Path, **keys: Any) -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {}})
        data.attrs["total"] = 8
        # Written from last to first, so that the order in the file differs from the numbers.
        for number, rows in reversed(list(enumerate(slices()))):
            demo = data.create_group(f"demo_{number + 8}")
            demo.attrs["num_samples"] = LENGTHS[number]
            demo.create_dataset("actions", data=ACT[rows].astype(np.float64), compression="gzip")
            demo.create_dataset("rewards", data=np.zeros(LENGTHS[number]))
            for key, values in keys.items():
                demo.create_dataset(f"obs/{key}", data=values[rows])
        file.create_dataset("mask/train", data=np.array([b"demo_8", b"demo_10"]))
    return path


def d4rl(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "observations": STATE,
        "actions": ACT,
        "rewards": np.zeros(8),
        "terminals": np.arange(8) == 2,
        "timeouts": np.arange(8) == 3,
    }
    with h5py.File(path, "w") as file:
        for key, values in (arrays | changes).items():
            if values is not None:
                file[key] = values
        file["infos/qpos"] = np.zeros((8, 2))
    return path


def minari_store(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str = "mine/test-v0",
    *,
    images: bool = False,
    discrete: bool = False,
    flat: bool = False,
    storage: str = "hdf5",
) -> Path:
    """Write a dataset with Minari. The last observation of each episode belongs to no step and must not be read."""
    box = gym.spaces.Box
    parts: dict[str, Any] = {"state": box(-np.inf, np.inf, (3,), np.float32), "goal": box(-9, 9, (2,), np.float32)}
    seen: dict[str, Any] = {"state": STATE, "goal": GOAL}
    if images:
        parts["camera"] = box(0, 255, (40, 40, 3), np.uint8)
        seen["camera"] = np.zeros((8, 40, 40, 3), dtype=np.uint8)
    episodes: list[Any] = []
    for rows in slices():
        obs = {key: np.concatenate([values[rows], 0 * values[:1] + 7]) for key, values in seen.items()}
        length = rows.stop - rows.start
        episodes.append(
            minari.data_collector.EpisodeBuffer(
                observations=obs["state"] if flat else obs,
                actions=np.ones(length, dtype=np.int64) if discrete else ACT[rows],
                rewards=[0.0] * length,
                terminations=[False] * length,
                truncations=[False] * (length - 1) + [True],
            )
        )
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    minari.create_dataset_from_buffers(
        name,
        episodes,
        observation_space=parts["state"] if flat else gym.spaces.Dict(parts),
        action_space=gym.spaces.Discrete(3) if discrete else box(-2, 3, (2,), np.float32),
        data_format=storage,
    )
    return folder / name


def lerobot(folder: Path, *, files: int = 2, **changes: Any) -> Path:
    """Write a dataset in the layout of version 3: several episodes per file, several files per chunk."""
    columns: dict[str, Any] = {
        "observation.state": pa.array(list(STATE)),
        "observation.environment_state": pa.array(list(GOAL), type=pa.list_(pa.float32(), 2)),
        "action": pa.array(list(ACT)),
        "timestamp": pa.array(np.zeros(8, dtype=np.float32)),
        "frame_index": pa.array(np.concatenate([np.arange(n) for n in LENGTHS])),
        "episode_index": pa.array(np.repeat(np.arange(3), LENGTHS)),
        "index": pa.array(np.arange(8)),
        "task_index": pa.array(np.zeros(8, dtype=np.int64)),
    }
    table = pa.table({key: values for key, values in (columns | changes).items() if values is not None})
    (folder / "data/chunk-000").mkdir(parents=True)
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    for number, part in enumerate(np.array_split(np.arange(8), files)):
        parquet.write_table(table.take(pa.array(part)), folder / f"data/chunk-000/file-{number:03d}.parquet")
    features = {key: {"dtype": "float32", "shape": [1]} for key in columns}
    features["observation.images.top"] = {"dtype": "video", "shape": [480, 640, 3]}
    template = "../../{chunk_index.__class__}/{file_index:999999999999d}"
    info = {"codebase_version": "v3.0", "fps": 20, "features": features, "data_path": template}
    (folder / "meta/info.json").write_text(json.dumps(info))
    return folder


def zarr_buffer(store: Any, *, version: int = 2, key: str = "state", **options: Any) -> None:
    root = zarr.open_group(store, mode="w", zarr_format=version)
    data, meta = root.create_group("data"), root.create_group("meta")
    for name, values in ((key, STATE), ("action", ACT), ("img", IMAGES)):
        data.create_array(name, data=values, chunks=(3, *values.shape[1:]), **options)
    meta.create_array("episode_ends", data=np.array(ENDS))


def test_robomimic_episodes_are_ordered_by_number_and_observations_by_key(tmp_path: Path) -> None:
    path = robomimic(
        tmp_path / "a.hdf5",
        state=STATE,
        goal=GOAL.astype(np.float64),
        agentview_image=IMAGES,
        words=np.array([b"go"] * 8),
    )
    demos = Demonstrations.load(path)
    check(demos, GOAL, STATE)
    assert demos.meta["understood"] == {
        "format": "robomimic HDF5",
        "observations": {"goal": [2], "state": [3]},
        "actions": [2],
        "left_out": {"agentview_image": [4, 4, 3], "words": []},
        "episodes": 3,
        "steps": 8,
        "subsets": {"train": 2},
    }
    assert demos.meta["observation_keys"] == [["goal", 2], ["state", 3]]
    assert demos.meta["environment"] == "Lift"
    line = describe(demos)
    assert line.startswith("robomimic HDF5: 3 episodes, 8 steps; observations goal (2), state (3) in -")
    assert line.endswith("left out agentview_image (4, 4, 3), words (1); subsets for --filter-key: train (2)")
    part = Demonstrations.load(f"{path}#train")
    assert part.fingerprint == demos.take([0, 2]).fingerprint
    with pytest.raises(InvalidData, match=r"lacks /mask/valid; the group contains train"):
        Demonstrations.load(f"{path}#valid")


def test_robomimic_files_with_images_only_or_without_observations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"no low-dimensional observations; it has top \(4, 4, 3\)\. Images"):
        Demonstrations.load(robomimic(tmp_path / "a.hdf5", top=IMAGES))
    with pytest.raises(InvalidData, match=r"/data/demo_8 has no obs; it has actions, rewards.*dataset_states_to_obs"):
        Demonstrations.load(robomimic(tmp_path / "b.hdf5"))


def test_d4rl_episodes_end_at_terminals_and_timeouts(tmp_path: Path) -> None:
    demos = Demonstrations.load(d4rl(tmp_path / "a.h5"))
    check(demos, STATE)
    assert demos.meta["understood"]["format"] == "D4RL HDF5"
    without = Demonstrations.load(d4rl(tmp_path / "b.hdf5", timeouts=None))
    assert without.episode_ends.tolist() == [3, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"terminals": None, "timeouts": None},
            r"has actions, .* ends of episodes are unknown.* terminals and timeouts",
        ),
        ({"actions": np.arange(8)}, r"integers \(int64\); discrete actions are not supported"),
        ({"actions": None}, r"contains infos, observations.*; a robomimic file contains data, a D4RL"),
        ({"terminals": np.zeros(5)}, r"terminals and actions differ in length: 5 != 8"),
        ({"observations": IMAGES}, r"no low-dimensional observations; it has observations \(4, 4, 3\)"),
        ({"observations": np.array([b"a"] * 8)}, r"/observations must contain numbers; it contains \|S1"),
        ({"observations": STATE[:5]}, r"differ in length: 5 != 8"),
    ],
)
def test_invalid_d4rl_files_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Demonstrations.load(d4rl(tmp_path / "a.hdf5", **changes))


def test_minari_is_read_by_id_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = minari_store(tmp_path, monkeypatch, images=True)
    for source in ("minari:mine/test-v0", f"minari:{folder}", folder, folder / "data"):
        demos = Demonstrations.load(source)
        check(demos, GOAL, STATE)
        assert demos.meta["observation_keys"] == [["observations/goal", 2], ["observations/state", 3]]
        assert demos.meta["understood"]["left_out"] == {"observations/camera": [40, 40, 3]}
        assert demos.meta["action_bounds"] == [[-2.0, -2.0], [3.0, 3.0]]
        assert demos.meta["source"] == "mine/test-v0"
    # Minari's own reader agrees.
    theirs = [episode.observations["state"][:-1] for episode in minari.load_dataset("mine/test-v0")]
    assert np.array_equal(np.concatenate(theirs), demos.obs[:, 2:])
    with pytest.raises(InvalidData, match=r"is part of a Minari dataset; give its folder"):
        Demonstrations.load(folder / "data" / "main_data.hdf5")


def test_minari_with_one_array_of_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari_store(tmp_path, monkeypatch, "flat-v3", flat=True)
    check(Demonstrations.load("minari:flat-v3"), STATE)


def test_invalid_minari_datasets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari_store(tmp_path, monkeypatch, discrete=True)
    with pytest.raises(InvalidData, match=r"actions are Discrete; only a Box .* discrete actions are not"):
        Demonstrations.load("minari:mine/test-v0")
    with pytest.raises(InvalidData, match=r"is not a Minari dataset .* minari download"):
        Demonstrations.load("minari:mine/other-v0")
    with pytest.raises(InvalidData, match=r"neither a folder nor a Minari id"):
        Demonstrations.load("minari:../mine/test-v0")


def test_minari_creates_no_environment_to_find_its_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = minari_store(tmp_path, monkeypatch)
    path = folder / "data" / "metadata.json"
    about = json.loads(path.read_text())
    del about["observation_space"], about["action_space"]
    about["env_spec"] = json.dumps({"id": "Evil-v0", "entry_point": "antigravity:geohash"})
    path.write_text(json.dumps(about))
    check(Demonstrations.load(folder), GOAL, STATE)


def test_lerobot_path_templates_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lerobot(tmp_path / "me" / "set")
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path))
    for source in (folder, f"lerobot:{folder}", "lerobot:me/set"):
        demos = Demonstrations.load(source)
        check(demos, STATE, GOAL)
        assert demos.meta["fps"] == 20
        assert demos.meta["understood"]["left_out"] == {"observation.images.top": [480, 640, 3]}


def test_lerobot_tasks_with_the_same_text_are_one_subset(tmp_path: Path) -> None:
    folder = lerobot(tmp_path / "a", task_index=pa.array(np.repeat([0, 2, 1], LENGTHS)))
    lines = [json.dumps({"task_index": k, "task": text}) for k, text in enumerate(["push", "lift", "push"])]
    (folder / "meta/tasks.jsonl").write_text("\n".join(lines))
    assert "push (2), lift (1)" in describe(Demonstrations.load(folder))
    assert Demonstrations.load(f"{folder}#push").num_episodes == 2
    assert Demonstrations.load(f"{folder}#2").num_episodes == 1


def test_lerobot_frames_are_sorted(tmp_path: Path) -> None:
    frames, episodes = np.array([2, 1, 0, 0, 3, 2, 1, 0]), np.array([0, 0, 0, 1, 2, 2, 2, 2])
    demos = Demonstrations.load(lerobot(tmp_path / "a", frame_index=pa.array(frames), episode_index=pa.array(episodes)))
    assert np.array_equal(demos.act, ACT[[2, 1, 0, 3, 7, 6, 5, 4]])
    assert demos.episode_ends.tolist() == ENDS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": None}, r"lacks action; it has episode_index"),
        ({"action": pa.array(np.arange(8))}, r"discrete actions are not supported"),
        ({"action": pa.array(["up"] * 8)}, r"action must contain numbers; it contains string"),
        ({"action": pa.array([[1.0, 2.0], [1.0], *[[1.0, 2.0]] * 6])}, r"rows of action differ in length"),
        ({"action": pa.array([[1.0, None]] * 8)}, r"act contains 8 NaN or infinite values"),
        ({"action": pa.array([None, *[[1.0, 2.0]] * 7])}, r"rows of action differ in length"),
        (
            {"observation.state": None, "observation.environment_state": None},
            r"no low-dimensional observations; it has observation\.images\.top \(480, 640, 3\)",
        ),
    ],
)
def test_invalid_lerobot_datasets_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Demonstrations.load(lerobot(tmp_path / "a", files=1, **changes))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", ["blosc", "zstd", "gzip", None])
def test_zarr_buffers_of_both_versions(tmp_path: Path, version: int, codec: str | None) -> None:
    import numcodecs
    import zarr.codecs as v3

    old = {"blosc": numcodecs.Blosc("zstd"), "zstd": numcodecs.Zstd(), "gzip": numcodecs.GZip()}
    new: dict[str, Any] = {"blosc": v3.BloscCodec(), "zstd": v3.ZstdCodec(), "gzip": v3.GzipCodec()}
    chosen: Any = None if codec is None else (old if version == 2 else new)[codec]
    zarr_buffer(tmp_path / "a.zarr", version=version, compressors=chosen)
    demos = Demonstrations.load(tmp_path / "a.zarr")
    check(demos, STATE)
    assert demos.meta["understood"]["left_out"] == {"img": [4, 4, 3]}


@pytest.mark.parametrize("prefix", ["", "pusht/pusht_cchi_v7_replay.zarr/"])
def test_zarr_archives(tmp_path: Path, prefix: str) -> None:
    zarr_buffer(tmp_path / "a.zarr", key="obs")
    with zipfile.ZipFile(tmp_path / "a.zarr.zip", "w") as file:
        for path in sorted((tmp_path / "a.zarr").rglob("*")):
            if path.is_file():
                file.write(path, prefix + path.relative_to(tmp_path / "a.zarr").as_posix())
    check(Demonstrations.load(tmp_path / "a.zarr.zip"), STATE)


def test_zarr_archives_written_by_zarr(tmp_path: Path) -> None:
    with zarr.storage.ZipStore(tmp_path / "b.zip", mode="w") as store:
        zarr_buffer(store, version=3)
    check(Demonstrations.load(tmp_path / "b.zip"), STATE)


def test_zarr_images_may_have_any_codec(tmp_path: Path) -> None:
    zarr_buffer(tmp_path / "a.zarr")
    path = tmp_path / "a.zarr/data/img/.zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"compressor": {"id": "imagecodecs_jpegxl"}}))
    check(Demonstrations.load(tmp_path / "a.zarr"), STATE)


def test_zarr_without_a_state_is_refused(tmp_path: Path) -> None:
    zarr_buffer(tmp_path / "a.zarr", key="keypoint")
    with pytest.raises(InvalidData, match=r"has data/action, data/img, data/keypoint; expected data/state or data/obs"):
        Demonstrations.load(tmp_path / "a.zarr")


def test_the_content_decides_the_format_of_files_with_other_names(tmp_path: Path) -> None:
    d4rl(tmp_path / "a.data")
    np.savez(tmp_path / "b.npz", obs=STATE, act=ACT, episode_ends=ENDS)
    (tmp_path / "b.npz").rename(tmp_path / "b.data")
    done = torch.zeros(8)
    done[[2, 3]] = 1
    torch.save({"obs": torch.tensor(STATE), "actions": torch.tensor(ACT), "done": done}, tmp_path / "c.data")
    for name in "abc":
        check(Demonstrations.load(tmp_path / f"{name}.data"), STATE)


def test_another_package_adds_a_format_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables.py").write_text(TABLES)
    install_package(tmp_path, "tables", "[diffclone.formats]\ntable = tables:TABLE\n")
    monkeypatch.syspath_prepend(tmp_path)
    FORMATS.__dict__.pop("_plugins", None)
    try:
        demos = Demonstrations.from_arrays(STATE, ACT[:, :1], episode_ends=[8])
        demos.save(tmp_path / "a.table")
        demos.save(f"table:{tmp_path}/b")
        for name in ("a.table", "b"):  # by its suffix, by its content
            assert Demonstrations.load(tmp_path / name).fingerprint == demos.fingerprint
        assert has_format_prefix("table:b")
        assert not has_format_prefix("chair:b")
        (tmp_path / "c.table").write_text("#table\n1 2 x\n")
        with pytest.raises(InvalidData, match=r"c\.table is not a readable table of numbers \(.*'x'"):
            Demonstrations.load(tmp_path / "c.table")
        (tmp_path / "d.log").write_text("1, 2")
        with pytest.raises(InvalidData, match=r"Known formats: .*, zarr \(.*\), .*, table \(\*\.table\)"):
            Demonstrations.load(tmp_path / "d.log")
    finally:
        monkeypatch.undo()
        FORMATS.__dict__.pop("_plugins", None)
        FORMATS._entries.pop("table", None)  # pyright: ignore[reportPrivateUsage]


def test_a_prefix_selects_the_format_whatever_the_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "both.hdf5", "w") as file:
        file["data/demo_0/actions"], file["data/demo_0/obs/state"] = ACT[:3], GOAL[:3]
    d4rl(tmp_path / "a.hdf5")
    with h5py.File(tmp_path / "a.hdf5") as source, h5py.File(tmp_path / "both.hdf5", "a") as file:
        for key in ("observations", "actions", "terminals", "timeouts"):
            source.copy(key, file)
    assert Demonstrations.load(tmp_path / "both.hdf5").num_steps == 3
    check(Demonstrations.load(f"d4rl:{tmp_path}/both.hdf5"), STATE)
    with pytest.raises(InvalidData, match=r"a\.hdf5 has no named subsets, so that #train cannot be read"):
        Demonstrations.load(f"{tmp_path}/a.hdf5#train")


@pytest.mark.parametrize(
    ("package", "make"),
    [("h5py", lambda p: d4rl(p / "a.hdf5")), ("pyarrow", lambda p: lerobot(p / "a"))],  # pyright: ignore
)
def test_a_missing_package_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, make: Any
) -> None:
    import importlib

    path, real = make(tmp_path), importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingPackage, match=package):
        check_target({"h5py": f"{tmp_path}/new.hdf5", "pyarrow": f"lerobot:{tmp_path}/new"}[package])
    with pytest.raises(MissingPackage, match=re.escape(f"the package {package}. Try: {install_command('data')}")):
        Demonstrations.load(path)
