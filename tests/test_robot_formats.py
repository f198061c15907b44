"""Datasets that lerobot 0.6.1 and robomimic 0.3.0 wrote themselves, and other layouts of these formats."""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import Demonstrations
from diffclone.data.formats import describe
from diffclone.errors import DiffcloneWarning, InvalidData

h5py: Any = pytest.importorskip("h5py")
pa: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

FIXTURES = Path(__file__).parent / "fixtures"
LOW_DIMENSIONAL = ["observation.force", "observation.joints", "observation.pose", "observation.velocity"]


def extract_lerobot(folder: Path) -> Path:
    """Write the folders of lerobot 0.6.1, state, joints and keys: fixtures/make_lerobot_0_6_1.py."""
    with tarfile.open(FIXTURES / "lerobot_0_6_1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def extract_robomimic(path: Path) -> Path:
    """Write the file of robomimic 0.3.0: fixtures/make_robomimic_0_3_0.py."""
    path.write_bytes(gzip.decompress((FIXTURES / "robomimic_0_3_0.hdf5.gz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def lerobot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_lerobot(tmp_path_factory.mktemp("lerobot"))


@pytest.fixture
def robomimic(tmp_path: Path) -> Path:
    return extract_robomimic(tmp_path / "low_dim.hdf5")


def frames(folder: Path) -> Any:
    return parquet.read_table(folder / "data/chunk-000/file-000.parquet")


def matrix(table: Any, *names: str) -> Any:
    return np.concatenate([np.array(table[name].to_pylist()).reshape(len(table), -1) for name in names], 1)


def check_round_trip(demos: Demonstrations, *targets: str) -> None:
    """Convert to each format in turn; the numbers stay the same."""
    now = demos
    for target in targets:
        now.save(target)
        now = Demonstrations.load(target)
        assert now.fingerprint == demos.fingerprint
        assert now.meta["observation_keys"] == demos.meta["observation_keys"]


def copy_version_2(source: Path, target: Path) -> Path:
    """Write frames of lerobot 0.6.1 in the layout of version 2.1: one file per episode, and lines of JSON.

    lerobot 0.6 writes version 3 only.
    """
    table, tasks = frames(source), parquet.read_table(source / "meta/tasks.parquet").to_pylist()
    info = json.loads((source / "meta/info.json").read_text()) | {"codebase_version": "v2.1"}
    info["features"]["observation.images.front"] = {"dtype": "video", "shape": [480, 640, 3]}
    (target / "meta").mkdir(parents=True)
    (target / "meta/info.json").write_text(json.dumps(info))
    (target / "meta/tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)) + "\n")
    for number in range(info["total_episodes"]):
        path = target / f"data/chunk-{number // 2:03d}/episode_{number:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        chosen = np.flatnonzero(np.array(table["episode_index"]) == number)
        parquet.write_table(table.take(pa.array(chosen)), path)
    return target


# LeRobot.


@pytest.mark.parametrize("key", ["state", "joints"])
def test_lerobots_own_folders_with_one_key(lerobot: Path, tmp_path: Path, key: str) -> None:
    demos, table = Demonstrations.load(lerobot / key), frames(lerobot / key)
    assert np.array_equal(demos.obs, matrix(table, f"observation.{key}").astype(np.float32))
    assert np.array_equal(demos.act, matrix(table, "action").astype(np.float32))
    assert demos.episode_ends.tolist() == [200, 400, 600, 800, 1000, 1200]
    assert demos.meta["observation_keys"] == [[f"observation.{key}", 3]]
    assert demos.meta["tasks"] == ["swing up"]
    assert demos.meta["fps"] == 20
    check_round_trip(demos, f"{tmp_path}/a.npz", f"lerobot:{tmp_path}/again")


def test_several_keys_are_sorted_and_images_are_named_as_left_out(lerobot: Path) -> None:
    demos, table = Demonstrations.load(lerobot / "keys"), frames(lerobot / "keys")
    assert np.array_equal(demos.obs, matrix(table, *LOW_DIMENSIONAL).astype(np.float32))
    assert demos.meta["observation_keys"] == [
        [key, size] for key, size in zip(LOW_DIMENSIONAL, (1, 3, 4, 2), strict=True)
    ]
    assert demos.meta["understood"]["left_out"] == {"observation.images.top": [16, 16, 3]}
    assert demos.episode_ends.tolist() == [4, 7, 12]
    assert describe(demos).endswith(
        "left out observation.images.top (16, 16, 3); subsets for --filter-key: reach (2), push (1)"
    )


def test_keys_are_chosen_in_the_given_order(lerobot: Path) -> None:
    table = frames(lerobot / "keys")
    demos = Demonstrations.load(lerobot / "keys", obs_keys=["observation.velocity", "task_index"])
    assert np.array_equal(demos.obs, matrix(table, "observation.velocity", "task_index").astype(np.float32))
    assert demos.meta["observation_keys"] == [["observation.velocity", 2], ["task_index", 1]]
    swapped = Demonstrations.load(lerobot / "keys", action_keys=["observation.force", "action"])
    assert np.array_equal(swapped.act, matrix(table, "observation.force", "action").astype(np.float32))


@pytest.mark.parametrize("task", ["push", "1"])
def test_one_task_of_several(lerobot: Path, task: str) -> None:
    demos = Demonstrations.load(lerobot / "keys", filter_key=task)
    whole = Demonstrations.load(lerobot / "keys")
    assert demos.fingerprint == whole.take([1]).fingerprint
    assert demos.meta["tasks"] == ["push"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"obs_keys": ["observation.wrist"]},
            r"has no observation.wrist, which --obs-keys names; it has observation.vel",
        ),
        ({"action_keys": ["torque"]}, r"has no torque, which --action-keys names"),
        ({"filter_key": "pull"}, r"has no task 'pull', which --filter-key names; it has reach, push"),
        ({"filter_key": "7"}, r"has no task '7'"),
        ({"episode_key": "episode_index"}, r"is read as LeRobot dataset, which does not use --episode-key"),
    ],
)
def test_options_that_do_not_fit_a_lerobot_folder(lerobot: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Demonstrations.load(lerobot / "keys", **options)


def test_version_2_has_a_file_per_episode_and_several_chunks(lerobot: Path, tmp_path: Path) -> None:
    folder = copy_version_2(lerobot / "keys", tmp_path / "old")
    assert len(list(folder.glob("data/chunk-*"))) == 2
    demos = Demonstrations.load(folder)
    assert demos.fingerprint == Demonstrations.load(lerobot / "keys").fingerprint
    assert demos.meta["tasks"] == ["reach", "push"]
    assert demos.meta["understood"]["left_out"].keys() == {"observation.images.top", "observation.images.front"}
    assert Demonstrations.load(folder, filter_key="push").num_episodes == 1


def test_missing_episodes_and_early_ends_are_reported(lerobot: Path, tmp_path: Path) -> None:
    folder = copy_version_2(lerobot / "keys", tmp_path / "old")
    first = folder / "data/chunk-000/episode_000000.parquet"
    table = parquet.read_table(first)
    place = table.column_names.index("next.done")
    parquet.write_table(table.set_column(place, "next.done", pa.array([False, True, False, True])), first)
    with pytest.warns(DiffcloneWarning, match="next.done is set in 1 frames before the last of an episode"):
        assert Demonstrations.load(folder).num_episodes == 3
    first.unlink()
    with pytest.warns(DiffcloneWarning, match=r"says 3 episodes, and the data has 2; is the copy complete\?"):
        assert Demonstrations.load(folder).num_episodes == 2


@pytest.mark.parametrize(
    ("names", "obs", "act"),
    [
        ({"observation.joints": "state", "action": "actions"}, "state", ["actions"]),
        ({"observation.joints": "observation", "action": "action.arm"}, "observation", ["action.arm"]),
    ],
)
def test_names_that_other_programs_use(
    lerobot: Path, tmp_path: Path, names: dict[str, str], obs: str, act: list[str]
) -> None:
    folder = copy_version_2(lerobot / "joints", tmp_path / "other")
    for path in folder.glob("data/*/*.parquet"):
        table = parquet.read_table(path)
        parquet.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), path)
    demos = Demonstrations.load(folder)
    assert demos.fingerprint == Demonstrations.load(lerobot / "joints").fingerprint
    assert demos.meta["observation_keys"] == [[obs, 3]]


# robomimic.


def add_action_dict(path: Path) -> None:
    """Add what robomimic 0.5 stores beside `actions`, by its documentation: the package index has only 0.3.0."""
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            actions = demo["actions"][()]
            demo["actions_abs"] = 10 * actions
            demo["action_dict/abs_pos"], demo["action_dict/gripper"] = 10 * actions[:, :2], actions[:, 2:]
            demo["datagen_info/eef_pose"], demo["interventions"] = (
                np.zeros((len(actions), 4, 4)),
                np.zeros(len(actions)),
            )
            demo.attrs["ep_meta"] = json.dumps({"lang": "reach"})
            del demo["next_obs"]


def test_robomimics_own_file(robomimic: Path, tmp_path: Path) -> None:
    demos = Demonstrations.load(robomimic)
    with h5py.File(robomimic) as file:
        parts = [[file[f"data/demo_{k}/obs/{key}"][()] for k in range(3)] for key in ("object", "robot0_eef_pos")]
        actions = [file[f"data/demo_{k}/actions"][()] for k in range(3)]
    assert np.array_equal(demos.obs, np.concatenate([np.concatenate(p) for p in parts], 1).astype(np.float32))
    assert np.array_equal(demos.act, np.concatenate(actions).astype(np.float32))
    assert demos.episode_ends.tolist() == [4, 6, 9]
    assert demos.meta["environment"] == "Point"
    assert describe(demos).endswith("subsets for --filter-key: train (2), valid (1)")
    check_round_trip(demos, f"{tmp_path}/a.npz", f"{tmp_path}/again.hdf5")


def test_masks_choose_episodes(robomimic: Path) -> None:
    whole = Demonstrations.load(robomimic)
    for source, options in ((robomimic, {"filter_key": "valid"}), (f"{robomimic}#valid", {})):
        assert Demonstrations.load(source, **options).fingerprint == whole.take([2]).fingerprint
    assert Demonstrations.load(robomimic, filter_key="train").fingerprint == whole.take([0, 1]).fingerprint
    with h5py.File(robomimic, "r+") as file:
        del file["mask"]
    with pytest.raises(InvalidData, match=r"has no masks, so that the episodes of 'train' are unknown"):
        Demonstrations.load(robomimic, filter_key="train")
    assert "subsets" not in Demonstrations.load(robomimic).meta["understood"]
    with h5py.File(robomimic, "r+") as file:
        file["mask/some"] = np.array([b"data/demo_0"])
        file["mask/elsewhere"] = h5py.ExternalLink("other.hdf5", "mask/train")
    assert Demonstrations.load(robomimic).meta["understood"]["subsets"] == {"some": 1}
    with pytest.raises(InvalidData, match=r"lacks /data/data/demo_0"):  # a path could pass through a link
        Demonstrations.load(robomimic, filter_key="some")
    with h5py.File(robomimic, "r+") as file:
        del file["mask"]
        file["mask"] = np.ones(3)
    assert "subsets" not in Demonstrations.load(robomimic).meta["understood"]


def test_the_layout_of_robomimic_0_5(robomimic: Path) -> None:
    before = Demonstrations.load(robomimic)
    add_action_dict(robomimic)
    assert Demonstrations.load(robomimic).fingerprint == before.fingerprint
    absolute = Demonstrations.load(robomimic, action_keys=["actions_abs"])
    assert np.allclose(absolute.act, 10 * before.act)
    parts = Demonstrations.load(robomimic, action_keys=["action_dict/gripper", "action_dict/abs_pos"])
    assert np.allclose(parts.act, np.hstack([before.act[:, 2:], 10 * before.act[:, :2]]))
    chosen = Demonstrations.load(robomimic, obs_keys=["robot0_eef_pos"])
    assert np.array_equal(chosen.obs, before.obs[:, 2:])
    assert chosen.meta["understood"]["left_out"] == {"object": [2]}


def test_files_without_observations_can_be_read_by_the_states_of_the_simulator(robomimic: Path) -> None:
    """Downloads of robomimic 0.5 (demo_v15.hdf5) have states and actions only, as in its issue 244."""
    before = Demonstrations.load(robomimic)
    with h5py.File(robomimic, "r+") as file:
        for demo in file["data"].values():
            del demo["obs"], demo["next_obs"]
    with pytest.raises(
        InvalidData, match=r"has no obs; it has actions.* dataset_states_to_obs.py adds it; .*--obs-keys s"
    ):
        Demonstrations.load(robomimic)
    states = Demonstrations.load(robomimic, obs_keys=["states"])
    assert np.array_equal(states.obs, before.obs[:, [2, 3, 0, 1]])


def test_observations_in_groups(robomimic: Path) -> None:
    """Isaac Lab writes groups of observations, and one that is called `actions`."""
    before = Demonstrations.load(robomimic)
    with h5py.File(robomimic, "r+") as file:
        for demo in file["data"].values():
            demo.move("obs/object", "obs/policy/object")
            demo["obs/actions"] = np.zeros((len(demo["actions"]), 1))
    demos = Demonstrations.load(robomimic)
    assert demos.meta["observation_keys"] == [["actions", 1], ["policy/object", 2], ["robot0_eef_pos", 2]]
    assert np.array_equal(demos.obs[:, 1:], before.obs)
    assert np.array_equal(demos.act, before.act)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_keys": ["torque"]}, r"lacks /data/demo_0/torque; the group contains actions, dones"),
        ({"action_keys": ["actions/x"]}, r"/data/demo_0/actions is a dataset; a group was expected"),
        ({"obs_keys": ["gripper"]}, r"has no gripper, which --obs-keys names; it has object, robot0_eef_pos, actions"),
        ({"filter_key": "test"}, r"lacks /mask/test; the group contains train, valid"),
        ({"action_keys": ["dones"]}, r"actions are integers \(int64\); discrete actions are not supported"),
    ],
)
def test_options_that_do_not_fit_a_robomimic_file(robomimic: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Demonstrations.load(robomimic, **options)
