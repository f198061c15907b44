"""Conversion between formats keeps every number."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from diffclone import Demonstrations
from diffclone.cli.arguments import find_demonstrations
from diffclone.cli.convert import Convert
from diffclone.data.formats import describe
from diffclone.errors import InvalidData, InvalidFile, UnknownName

h5py: Any = pytest.importorskip("h5py")
parquet: Any = pytest.importorskip("pyarrow.parquet")
minari: Any = pytest.importorskip("minari")

TARGETS = ["{}/a.npz", "{}/a.hdf5", "minari:{}/a-v0", "lerobot:{}/a"]
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def make(**meta: Any) -> Demonstrations:
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(9, 3)), rng.uniform(-1, 1, size=(9, 2))
    return Demonstrations.from_arrays(obs, act, episode_ends=[4, 5, 9], meta=meta)


@st.composite
def demonstrations(draw: st.DrawFn) -> Demonstrations:
    """Draw any finite numbers, including −0 and subnormal ones, and any bounds, including infinite ones."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    sizes = [draw(st.integers(1, 4)) for _ in range(2)]
    obs, act = (draw(arrays.arrays(np.float32, (sum(lengths), size), elements=FLOATS)) for size in sizes)
    meta: dict[str, Any] = {"task": draw(st.none() | st.sampled_from(["maze", "mine, with a space"]))}
    if draw(st.booleans()):
        low = draw(arrays.arrays(np.float32, sizes[1], elements=st.floats(max_value=0, width=32, allow_nan=False)))
        meta["action_bounds"] = [low.tolist(), (-low).tolist()]
    return Demonstrations.from_arrays(obs, act, episode_ends=np.cumsum(lengths), meta=meta)


def check(again: Demonstrations, demos: Demonstrations) -> None:
    """Check that arrays are equal bit for bit (−0 is not 0), and that metadata is kept."""
    for name in ("obs", "act", "episode_ends"):
        first, second = getattr(again, name), getattr(demos, name)
        assert first.dtype == second.dtype
        assert first.shape == second.shape
        assert first.tobytes() == second.tobytes()
    assert again.fingerprint == demos.fingerprint
    added = again.meta.keys() - demos.meta.keys()
    assert added <= {"understood", "observation_keys"}
    assert {key: again.meta[key] for key in demos.meta if key != "understood"} == {
        key: value for key, value in demos.meta.items() if key != "understood"
    }


@pytest.mark.parametrize("target", TARGETS)
@given(demos=demonstrations())
@settings(deadline=None, max_examples=12)
def test_every_format_round_trips(target: str, demos: Demonstrations) -> None:
    with tempfile.TemporaryDirectory() as folder:
        demos.save(target.format(folder))
        check(Demonstrations.load(target.format(folder)), demos)


def test_a_chain_of_conversions_through_all_formats(tmp_path: Path) -> None:
    demos = now = make(task="maze", action_bounds=[[-1.0, -2.0], [1.0, 2.0]], command="by hand")
    for number, target in enumerate([*TARGETS, *reversed(TARGETS)]):
        path = target.format(tmp_path / str(number))
        now.save(path)
        now = Demonstrations.load(path)
        check(now, demos)
    assert now.action_bounds is not None
    assert now.action_bounds[0].tolist() == [-1, -2]


@pytest.mark.parametrize("target", ["a.npz", "a.hdf5", "minari:./a-v0", "lerobot:a"])
def test_relative_paths(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", "store")
    make().save(target)
    check(Demonstrations.load(target), make())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_stay_bytes(tmp_path: Path, target: str) -> None:
    obs = np.arange(36, dtype=np.uint8).reshape(9, 4) * 7
    demos = Demonstrations.from_arrays(obs, np.ones((9, 1)), episode_ends=[9], meta={"image": [1, 2, 2]})
    demos.save(target.format(tmp_path))
    check(Demonstrations.load(target.format(tmp_path)), demos)


def test_observation_keys_survive_a_format_without_keys(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.ones((4, 2), dtype=np.float32)
        file["data/demo_0/obs/robot"] = np.ones((4, 3))
        file["data/demo_0/obs/object"] = np.zeros((4, 2))
    demos = Demonstrations.load(tmp_path / "a.hdf5")
    demos.save(f"lerobot:{tmp_path}/b")
    again = Demonstrations.load(tmp_path / "b")
    assert again.meta["understood"]["observations"] == {"observation.state": [5]}
    again.save(tmp_path / "c.hdf5")
    with h5py.File(tmp_path / "c.hdf5") as file:
        assert np.array_equal(file["data/demo_0/obs/object"], np.zeros((4, 2)))
        assert np.array_equal(file["data/demo_0/obs/robot"], np.ones((4, 3)))
        assert file["data/demo_0"].attrs["num_samples"] == 4
        assert json.loads(file["data"].attrs["env_args"])["env_name"] == ""
    check(Demonstrations.load(tmp_path / "c.hdf5"), demos)


def test_a_written_npz_does_not_name_the_format_that_it_was_converted_from(tmp_path: Path) -> None:
    rows = ["episode,s0,a0", *(f"{k // 2},{0.5 * k},{0.1 * k}" for k in range(4))]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    demos = Demonstrations.load(tmp_path / "a.csv")
    assert describe(demos).startswith("CSV: 2 episodes, 4 steps; observations s0 (1) in 0 … 1.5")
    demos.save(tmp_path / "b.npz")
    again = Demonstrations.load(tmp_path / "b.npz")
    assert (again.fingerprint, again.meta["source"]) == (demos.fingerprint, "a.csv")
    assert describe(again).startswith("demonstrations: 2 episodes, 4 steps; observations obs (1)")


def test_minari_reads_written_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    demos = make(action_bounds=[[-1.0, -1.5], [1.0, 1.5]])
    demos.save("minari:mine/test-v0")
    theirs = minari.load_dataset("mine/test-v0")
    assert (theirs.total_episodes, theirs.total_steps) == (3, 9)
    assert theirs.action_space.high.tolist() == [1.0, 1.5]
    assert list(minari.list_local_datasets()) == ["mine/test-v0"]
    for episode, (obs, act) in zip(theirs, demos.episodes(), strict=True):
        assert np.array_equal(episode.observations, [*obs, obs[-1]])
        assert np.array_equal(episode.actions, act)
        assert episode.truncations.tolist() == [False] * (len(act) - 1) + [True]
    with pytest.raises(InvalidFile, match="exists already"):
        demos.save("minari:mine/test-v0")


def test_written_lerobot_datasets_follow_version_3(tmp_path: Path) -> None:
    demos = make(task="maze", fps=50)
    demos.save(f"lerobot:{tmp_path}/a")
    info = json.loads((tmp_path / "a/meta/info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"], info["fps"]) == ("v3.0", 3, 9, 50)
    assert info["features"]["observation.state"] == {"dtype": "float32", "shape": [3], "names": None}
    assert info["features"]["timestamp"] == {"dtype": "float32", "shape": [1], "names": None}
    assert info["features"]["index"]["dtype"] == "int64"
    frames = parquet.read_table(tmp_path / "a" / info["data_path"].format(chunk_index=0, file_index=0))
    assert set(frames.column_names) == set(info["features"])
    assert frames["frame_index"].to_pylist() == [0, 1, 2, 3, 0, 0, 1, 2, 3]
    assert frames["timestamp"][3].as_py() == pytest.approx(3 / 50)
    episodes = parquet.read_table(tmp_path / "a/meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(e["dataset_from_index"], e["dataset_to_index"], e["length"]) for e in episodes] == [
        (0, 4, 4),
        (4, 5, 1),
        (5, 9, 4),
    ]
    assert episodes[0]["tasks"] == ["maze"]
    tasks = parquet.read_table(tmp_path / "a/meta/tasks.parquet")
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["__index_level_0__"]
    assert tasks.to_pylist() == [{"task_index": 0, "__index_level_0__": "maze"}]
    stats = json.loads((tmp_path / "a/meta/stats.json").read_text())
    assert np.allclose(stats["action"]["mean"], demos.act.mean(0))


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_overwritten(tmp_path: Path, target: str) -> None:
    path = target.format(tmp_path)
    precious = Path(path.removeprefix("minari:").removeprefix("lerobot:"))
    precious.write_bytes(b"precious")
    with pytest.raises(InvalidFile, match="exists already and is not overwritten"):
        make().save(path)
    assert precious.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [precious]


@pytest.mark.parametrize("target", TARGETS)
def test_a_failed_write_leaves_no_files(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        make().save(target.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_names_without_a_known_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidData, match=r"cannot save .*a\.csv\. Formats to save: npz \(\*\.npz\), robomimic .*, minari"
    ):
        make().save(tmp_path / "a.csv")
    with pytest.raises(InvalidData, match=r"is not a Minari id"):
        make().save(f"minari:{tmp_path}/a b")
    assert list(tmp_path.iterdir()) == []


def test_the_convert_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(task="not registered").save(tmp_path / "a.npz")
    Convert(str(tmp_path / "a.npz"), f"lerobot:{tmp_path}/b", json=True).run()
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "out": f"lerobot:{tmp_path}/b",
        "episodes": 3,
        "steps": 9,
        "fingerprint": make().fingerprint,
    }
    assert "3 episodes, 9 steps; observations obs (3) in -" in printed.err
    Convert(f"lerobot:{tmp_path}/b", str(tmp_path / "c.hdf5")).run()
    assert f"Next: diffclone train {tmp_path}/c.hdf5 --out RUN" in capsys.readouterr().err


def test_bundled_demonstrations_are_converted(tmp_path: Path) -> None:
    Convert("maze", str(tmp_path / "maze.hdf5")).run()
    bundled = find_demonstrations("maze", None)[1]
    check(Demonstrations.load(tmp_path / "maze.hdf5"), bundled)


def test_commands_find_datasets_by_prefix_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "MINARI_DATASETS_PATH", str(tmp_path))
    demos = make(task="maze")
    demos.save("minari:mine-v0")
    demos.save(f"lerobot:{tmp_path}/folder")
    for data in ("minari:mine-v0", f"lerobot:{tmp_path}/folder", str(tmp_path / "folder")):
        task, found = find_demonstrations(data, None)
        assert (task, found.fingerprint) == ("maze", demos.fingerprint)
    with pytest.raises(InvalidData, match="is not a Minari dataset"):
        find_demonstrations("minari:other-v0", None)
    with pytest.raises(UnknownName, match="maze"):
        find_demonstrations("maz", None)
