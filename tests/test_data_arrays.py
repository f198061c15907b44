"""Arrays and tables as other people store them: their names, their shapes, and what is refused with the way out."""

import pickle
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import Demonstrations
from diffclone.data.formats import describe
from diffclone.data.formats.meta import order_keys
from diffclone.data.formats.rows import Rows, read_all
from diffclone.errors import DiffcloneWarning, InvalidData

h5py: Any = pytest.importorskip("h5py")
pa: Any = pytest.importorskip("pyarrow")
pd: Any = pytest.importorskip("pandas")
minari: Any = pytest.importorskip("minari")
gym: Any = pytest.importorskip("gymnasium")
parquet: Any = pytest.importorskip("pyarrow.parquet")

FIXTURES = Path(__file__).parent / "fixtures"
LENGTHS, ENDS = [3, 1, 4], [3, 4, 8]
RNG = np.random.default_rng(0)
STATE, GOAL, ACT = (RNG.normal(size=(8, size)).astype(np.float32) for size in (3, 2, 2))
TERMINALS, TIMEOUTS = np.arange(8) == 2, np.arange(8) == 3
NUMBERS = np.repeat([4, 9, 2], LENGTHS)
SLICES = [slice(end - length, end) for end, length in zip(ENDS, LENGTHS, strict=True)]


def check(demos: Demonstrations, *obs: Any) -> None:
    assert np.array_equal(demos.obs, np.concatenate(obs or (STATE,), 1))
    assert np.array_equal(demos.act, ACT)
    assert demos.episode_ends.tolist() == ENDS


def pad(values: Any, extra: int = 0, fill: float = 0) -> Any:
    """Return the values as (episodes, steps, size), padded, with `extra` rows of sevens after each episode."""
    padded = np.full((3, max(LENGTHS) + extra, values.shape[1]), fill, dtype=np.float64)
    for episode, rows in enumerate(SLICES):
        padded[episode, : LENGTHS[episode]] = values[rows]
        padded[episode, LENGTHS[episode] : LENGTHS[episode] + extra] = 7
    return padded


@pytest.mark.parametrize("suffix", ["npz", "hdf5"])
@pytest.mark.parametrize(
    "arrays",
    [
        {"observations": STATE, "actions": ACT, "terminals": TERMINALS, "timeouts": TIMEOUTS},
        {"obs": STATE, "acts": ACT, "dones": TERMINALS | TIMEOUTS, "next_obs": STATE, "rewards": np.zeros(8)},
        {"observation": STATE.astype(np.float64), "action": ACT, "terminated": TERMINALS, "truncated": TIMEOUTS},
        {"states": STATE, "actions": ACT, "dones": (TERMINALS | TIMEOUTS).astype(np.int64)[:, None]},
        {"obs": STATE, "states": GOAL, "actions": ACT, "episode_ends": ENDS},
        {"observations": STATE, "actions": ACT, "lengths": LENGTHS},
        {"obs": STATE, "actions": ACT, "episode_starts": np.isin(np.arange(8), [0, 3, 4])},
        {"observations": STATE, "actions": ACT, "episode_id": NUMBERS},
        {"observations": STATE, "actions": ACT, "episode_id": NUMBERS, "terminated": TERMINALS & False},
        {"obs": STATE, "actions": ACT, "dones": TERMINALS, "episode_starts": np.isin(np.arange(8), [0, 3, 4])},
        {"obs/a": STATE[:, :1], "obs/b": STATE[:, 1:], "actions": ACT, "episode": NUMBERS},
    ],
    ids=lambda arrays: " ".join(arrays),
)
def test_names_of_other_people(tmp_path: Path, suffix: str, arrays: dict[str, Any]) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    check(Demonstrations.load(path))


def test_what_is_missing_or_ambiguous_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    for number, (arrays, message) in enumerate(
        [
            ({"x": STATE, "actions": ACT}, r"lacks obs; it has x, actions\. .*--obs-keys"),
            ({"obs": STATE, "observations": STATE, "act": ACT, "dones": TIMEOUTS}, r"has obs and observations; choose"),
            ({"obs": STATE, "actions": ACT, "lengths": [3, 1]}, r"lengths adds up to 4; there are 8 steps"),
            ({"obs": STATE, "actions": ACT, "episode": NUMBERS[:5]}, r"episode and actions differ in length: 5 != 8"),
            (
                {"obs": STATE, "actions": ACT, "episode": [1, 1, 2, 2, 1, 1, 1, 1]},
                r"the steps with episode 1 are not tog",
            ),
            ({"obs": STATE, "actions": np.arange(8), "dones": TIMEOUTS}, r"integers \(int64\).*--action-kind cont"),
            ({"obs": STATE, "act": np.arange(8)[:, None], "episode_ends": [8]}, r"integers.*--action-kind continuous"),
            ({"obs": STATE, "act": (9 * ACT).astype(int), "episode_ends": [8]}, r"integers.*--action-kind continuous"),
            ({"obs": STATE, "act": ACT > 0, "episode_ends": [8]}, r"integers \(bool\).*--action-kind continuous"),
            ({"obs": STATE, "act": ACT}, r"Add episode_ends.* \(\[8\] for a single one\)"),
            (
                {"obs": STATE * np.float64(1e300), "act": ACT, "episode_ends": [8]},
                r"32-bit numbers cannot hold, such as",
            ),
            ({"obs": np.array([STATE, 1], dtype=object), "act": ACT}, r"obs\.npy has Python objects.*from_episodes"),
        ]
    ):
        np.savez(tmp_path / f"{number}.npz", **arrays)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidData, match=message):
            Demonstrations.load(tmp_path / f"{number}.npz")


@pytest.mark.parametrize("act", [np.arange(8), np.arange(8)[:, None], np.arange(8.0)])
def test_one_number_per_step_is_an_action_of_one_dimension(tmp_path: Path, act: Any) -> None:
    np.savez(tmp_path / "a.npz", observations=STATE, actions=act, dones=TIMEOUTS)
    demos = Demonstrations.load(tmp_path / "a.npz", **({"action_kind": "continuous"} if act.dtype.kind == "i" else {}))
    assert demos.act.tolist() == np.arange(8.0)[:, None].tolist()


def test_one_long_episode_is_suspicious(tmp_path: Path) -> None:
    steps = 3000
    arrays = {"observations": np.ones((steps, 1)), "actions": np.ones((steps, 1)), "terminals": np.zeros(steps)}
    np.savez(tmp_path / "a.npz", **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.warns(DiffcloneWarning, match=r"terminals and no timeouts: one episode of 3000 steps is suspicious"):
        assert Demonstrations.load(tmp_path / "a.npz").num_episodes == 1
    timeouts = np.arange(steps) % 100 == 99
    np.savez(tmp_path / "b.npz", **arrays, timeouts=timeouts)  # pyright: ignore[reportArgumentType]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Demonstrations.load(tmp_path / "b.npz").num_episodes == 30


@pytest.mark.parametrize(
    "more",
    [
        {"lengths": LENGTHS},
        {"mask": np.arange(4) < np.array(LENGTHS)[:, None]},
        {"terminals": np.arange(4) == np.array(LENGTHS)[:, None] - 1},
    ],
    ids=["lengths", "mask", "flags"],
)
@pytest.mark.parametrize("extra", [0, 1])
def test_arrays_of_episodes_steps_and_size(tmp_path: Path, more: dict[str, Any], extra: int) -> None:
    np.savez(tmp_path / "a.npz", observations=pad(STATE, extra, np.nan), actions=pad(ACT), **more)
    check(Demonstrations.load(tmp_path / "a.npz"))


@pytest.mark.parametrize("names", [("obs", "act"), ("observations", "actions")])
@pytest.mark.parametrize("extra", [0, 1])
def test_without_lengths_all_episodes_are_as_long(tmp_path: Path, names: tuple[str, str], extra: int) -> None:
    steps = (STATE[:4], STATE[4:])
    obs = np.stack([np.concatenate([part, part[:extra]]) for part in steps])
    arrays: dict[str, Any] = {names[0]: obs, names[1]: ACT.reshape(2, 4, 2)}
    np.savez(tmp_path / "a.npz", **arrays)
    demos = Demonstrations.load(tmp_path / "a.npz")
    assert demos.lengths.tolist() == [4, 4]
    assert (np.array_equal(demos.obs, STATE), np.array_equal(demos.act, ACT)) == (True, True)


def test_padding_without_lengths_is_refused(tmp_path: Path) -> None:
    no_flags = np.zeros((3, 4))
    np.savez(tmp_path / "a.npz", obs=pad(STATE), actions=pad(ACT), dones=no_flags, truncated=no_flags)
    assert Demonstrations.load(tmp_path / "a.npz").lengths.tolist() == [4, 4, 4]
    # Flags of termination alone do not tell which steps follow a time limit.
    for name, more in (("b", {"episode_index": 0}), ("e", {"dones": no_flags}), ("f", {"terminated": no_flags})):
        np.savez(tmp_path / f"{name}.npz", obs=pad(STATE), actions=pad(ACT), **more)  # pyright: ignore
        with pytest.raises(InvalidData, match=r"2 of 3 episodes end in steps that are all zeros.*Add an array lengths"):
            Demonstrations.load(tmp_path / f"{name}.npz")
    for name, wrong in (("lengths", [3, 0, 4]), ("lengths", [1, 5, 4]), ("dones", np.zeros((3, 5)))):
        np.savez(tmp_path / "c.npz", obs=pad(STATE), actions=pad(ACT), **{name: wrong})  # pyright: ignore
        with pytest.raises(InvalidData, match=name):
            Demonstrations.load(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", obs=pad(STATE)[:2], actions=pad(ACT), lengths=LENGTHS)
    with pytest.raises(InvalidData, match=r"obs has the shape \(2, 4, 3\) where actions have \(3, 4\) episodes"):
        Demonstrations.load(tmp_path / "d.npz")


def test_lists_of_episodes(tmp_path: Path) -> None:
    check(Demonstrations.from_episodes([(STATE[rows], ACT[rows]) for rows in SLICES]))
    check(Demonstrations.from_episodes({"obs": STATE[rows].tolist(), "act": ACT[rows].tolist()} for rows in SLICES))
    nested = [{"observations": {"state": STATE[rows], "goal": GOAL[rows]}, "actions": ACT[rows]} for rows in SLICES]
    demos = Demonstrations.from_episodes(nested, meta={"task": "mine"}, action_bounds=(-9, 9))
    check(demos, GOAL, STATE)
    assert demos.meta["observation_keys"] == [["observations/goal", 2], ["observations/state", 3]]
    assert (demos.meta["task"], demos.meta["action_bounds"]) == ("mine", [[-9, -9], [9, 9]])
    check(Demonstrations.from_episodes(nested, obs_keys=["observations/state"]))
    after = [(np.concatenate([STATE[rows], STATE[:1]]), ACT[rows]) for rows in SLICES]
    check(Demonstrations.from_episodes(after))  # an observation after the last action
    mine = STATE.copy()
    Demonstrations.from_episodes([(mine, ACT)])
    mine[0] = 1  # the caller's array is neither frozen nor shared
    for wrong, message in (
        ([], "has no episodes"),
        ([STATE], "episode 0 is a ndarray; a pair"),
        ([(STATE, ACT[:5])], "obs of shape .* for 5 actions"),
        ([(STATE, ACT), (STATE[:, :2], ACT)], "obs has shape .* in episode 1"),
        ([{"x": STATE, "act": ACT}], "episode 0 lacks obs; it has x, act"),
        ([([[1.0], [1.0, 2.0]], ACT)], "episode 0: rows of obs differ in length"),
    ):
        with pytest.raises(InvalidData, match=message):
            Demonstrations.from_episodes(wrong)


def test_a_folder_of_npz_files(tmp_path: Path) -> None:
    for episode, rows in enumerate(SLICES):  # ep_10 comes after ep_9
        dones = np.arange(LENGTHS[episode]) == LENGTHS[episode] - 1
        np.savez(tmp_path / f"ep_{episode + 8}.npz", observation=STATE[rows], action=ACT[rows], dones=dones)
    demos = Demonstrations.load(tmp_path)
    check(demos)
    assert describe(demos).startswith("folder of npz files: 3 episodes, 8 steps; observations observation (3)")
    np.savez(tmp_path / "ep_11.npz", observation=STATE[:2], action=ACT[:2], infos=np.array([{}]))
    assert Demonstrations.load(tmp_path).lengths.tolist() == [*LENGTHS, 2]  # what is not needed is not read
    np.savez(tmp_path / "ep_12.npz", observation=STATE[:2, :1], action=ACT[:2])
    with pytest.raises(InvalidData, match=r"observation has shape \(1\) per step in episode 4, and \(3\) before"):
        Demonstrations.load(tmp_path)


def table(**changes: Any) -> Any:
    columns: dict[str, Any] = {"episode": NUMBERS, "reward": np.zeros(8)}
    columns |= {f"obs_{k}": STATE[:, k] for k in (2, 0, 1)} | {f"action.{k}": ACT[:, k] for k in range(2)}
    return pd.DataFrame({name: values for name, values in (columns | changes).items() if values is not None})


def test_tables(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for demos in (
        Demonstrations.from_dataframe(frame),
        Demonstrations.load(tmp_path / "a.csv"),
        Demonstrations.load(tmp_path / "a.parquet"),
    ):
        check(demos)
    names = pd.DataFrame({"run": [*"aaabcccc"], "state": [*STATE], "goal": [*GOAL], "act": [*ACT]})
    names.to_parquet(tmp_path / "b.parquet")
    for demos in (
        Demonstrations.from_dataframe(names, episode_key="run", obs_keys=["goal", "state"]),
        Demonstrations.load(tmp_path / "b.parquet", episode_key="run", obs_keys=["goal", "state"]),
    ):
        check(demos, GOAL, STATE)
    flags = table(episode=None, terminals=TERMINALS, timeouts=TIMEOUTS)
    check(Demonstrations.from_dataframe(flags))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"obs_2": None, "obs_0": None, "obs_1": None}, {}, r"has the columns .*reward.*; choose with .*obs.keys.NAME"),
        ({"obs": STATE[:, 0]}, {}, r"has the columns obs and obs_0…; choose with .*obs.keys"),
        ({"episode": None}, {}, r"so that the ends of episodes are unknown.*episode.key.NAME"),
        ({"traj_id": 0}, {}, r"has episode and traj_id; choose with .*episode.key"),
        ({"episode": [0, 0, 0, 1, 0, 0, 0, 0]}, {}, r"the steps with episode 0 are not together\. Sort"),
        ({"episode": [0, 0, 0, np.nan, 1, 1, 1, 1]}, {}, r"episode has no value at 1 of 8 steps, the first in row 3"),
        ({"episode": ["a", None, "a", "a", *"bbbb"]}, {}, r"episode has no value at 1 of 8 steps, the first in row 1"),
        ({"obs_1": ["x"] * 8}, {}, r"obs_1 must contain numbers"),
        ({"obs_1": [np.nan] * 7 + [1]}, {}, r"obs contains 7 NaN"),
        ({}, {"action_keys": ["episode"]}, r"actions are integers"),
        ({}, {"obs_keys": ["nothing"]}, r"has no nothing, which .*obs.keys names; it has episode, reward"),
    ],
)
def test_tables_that_need_a_choice(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    frame = table(**changes)
    frame.to_csv(tmp_path / "a.csv", index=False)
    for read in (
        lambda: Demonstrations.from_dataframe(frame, **options),
        lambda: Demonstrations.load(tmp_path / "a.csv", **options),
    ):
        with pytest.raises(InvalidData, match=message):
            read()


@pytest.mark.parametrize(("separator", "decimal"), [(";", "."), (";", ","), ("\t", "."), ("\t", ",")])
def test_signs_of_csv_files_are_found(tmp_path: Path, separator: str, decimal: str) -> None:
    table().to_csv(tmp_path / "a.csv", index=False, sep=separator, decimal=decimal)
    check(Demonstrations.load(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:1], "has names of columns and no rows"),  # pyright: ignore
        (lambda lines: lines[1:], r"begins with a line of numbers \(.*, …\); the first line must have the names"),  # pyright: ignore
        (lambda lines: [*lines[:6], "2,0,oops,0,0,0,0\n"], r"obs_2 must contain numbers; it contains 'oops' in row 5"),  # pyright: ignore
    ],
)
def test_csv_files_that_are_not_whole_tables(tmp_path: Path, change: Any, message: str) -> None:
    table().to_csv(tmp_path / "a.csv", index=False)
    lines = (tmp_path / "a.csv").read_text().splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join(change(lines)))
    with pytest.raises(InvalidData, match=message):
        Demonstrations.load(tmp_path / "a.csv")


def test_lists_of_different_lengths_in_a_column(tmp_path: Path) -> None:
    columns = {"obs": [[1.0], [1.0, 2.0]], "action": [[1.0], [1.0]], "episode": [0, 0]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InvalidData, match=r"rows of obs differ in length"):
        Demonstrations.load(tmp_path / "a.parquet")
    with pytest.raises(InvalidData, match=r"rows of obs differ in length"):
        Demonstrations.from_dataframe(pd.DataFrame(columns))


def test_folders_written_by_hugging_face_datasets(tmp_path: Path) -> None:
    with tarfile.open(FIXTURES / "hf_datasets_5_2_0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    whole = Demonstrations.load(tmp_path / "plain")
    assert whole.lengths.tolist() == LENGTHS
    assert (whole.obs.shape, whole.act.shape) == ((8, 3), (8, 2))
    wide = Demonstrations.load(tmp_path / "plain", obs_keys=["grid", "observation"])
    assert np.array_equal(wide.obs[:, 4:], whole.obs)
    for name in ("splits", "hub"):
        with pytest.raises(InvalidData, match=r"has the splits (train, test|test, train); choose with --filter-key"):
            Demonstrations.load(tmp_path / name)
        parts = [Demonstrations.load(tmp_path / name, filter_key=split) for split in ("train", "test")]
        assert parts[0].joined(parts[1]).fingerprint == whole.fingerprint
        with pytest.raises(InvalidData, match=r"has the splits .*, not valid"):
            Demonstrations.load(f"{tmp_path / name}#valid")


@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_all_storages_of_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str) -> None:
    box = gym.spaces.Box
    parts = {"state": box(-np.inf, np.inf, (3,), np.float32), "inner": gym.spaces.Dict({"goal": box(-9, 9, (2,))})}
    parts["camera"] = box(0, 255, (8, 8, 3), np.uint8)
    buffers: list[Any] = []
    for rows in SLICES:
        state, goal = (np.concatenate([values[rows], values[:1]]) for values in (STATE, GOAL))
        camera = np.zeros((len(state), 8, 8, 3), dtype=np.uint8)
        length = len(state) - 1
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                observations={"state": state, "inner": {"goal": goal}, "camera": camera},
                actions=ACT[rows],
                rewards=[0.0] * length,
                terminations=[False] * length,
                truncations=[False] * (length - 1) + [True],
            )
        )
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    spaces = {"observation_space": gym.spaces.Dict(parts), "action_space": box(-2, 3, (2,), np.float32)}
    minari.create_dataset_from_buffers("mine/test-v0", buffers, **spaces, data_format=storage)
    demos = Demonstrations.load("minari:mine/test-v0")
    check(demos, GOAL, STATE)
    assert demos.meta["observation_keys"] == [["observations/inner/goal", 2], ["observations/state", 3]]
    assert demos.meta["understood"]["left_out"] == {"observations/camera": [8, 8, 3]}
    assert demos.meta["action_bounds"] == [[-2, -2], [3, 3]]
    check(Demonstrations.load("minari:mine/test-v0", obs_keys=["state", "inner/goal"]), STATE, GOAL)
    with pytest.raises(InvalidData, match=r"has no goal, which --obs-keys names; it has inner/goal, state"):
        Demonstrations.load("minari:mine/test-v0", obs_keys=["goal"])


def test_pickles_are_refused_with_the_way_out(tmp_path: Path) -> None:
    for name in ("a.pkl", "b.data"):
        (tmp_path / name).write_bytes(pickle.dumps({"obs": STATE}))
        with pytest.raises(InvalidData, match=r"is a pickle, .* is not read.*Demonstrations\.from_episodes"):
            Demonstrations.load(tmp_path / name)


def test_flags_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    for wrong, message in ((["no"] * 8, "terminals must contain true and false"), ([np.nan] * 8, "contains NaN")):
        np.savez(tmp_path / "a.npz", obs=STATE, actions=ACT, terminals=wrong)  # pyright: ignore
        with pytest.raises(InvalidData, match=message):
            Demonstrations.load(tmp_path / "a.npz")
        (tmp_path / "a.npz").unlink()
        np.savez(tmp_path / "b.npz", obs=pad(STATE), actions=pad(ACT), dones=np.resize(wrong, (3, 4)))
        with pytest.raises(InvalidData, match="dones must contain true and false"):
            Demonstrations.load(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", obs=STATE, actions=ACT, lengths=[3.0, 5.0])
    with pytest.raises(InvalidData, match="lengths must contain integers"):
        Demonstrations.load(tmp_path / "c.npz")


def test_own_arrays_are_read_beside_others(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", obs=STATE, act=ACT, episode_ends=ENDS, actions=GOAL, observations=GOAL)
    check(Demonstrations.load(tmp_path / "a.npz"))
    assert np.array_equal(Demonstrations.load(tmp_path / "a.npz", action_keys="actions").act, GOAL)


@pytest.mark.parametrize("by_episode", [False, True])
def test_images_are_read_only_if_they_are_chosen(tmp_path: Path, *, by_episode: bool) -> None:
    arrays: dict[str, Any] = {
        "obs/image": np.ones((8, 4, 4, 3)),
        "obs/state": STATE,
        "actions": ACT,
        "dones": TERMINALS,
    }
    if by_episode:
        arrays = {name: values.reshape(2, 4, *values.shape[1:]) for name, values in arrays.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    demos = Demonstrations.load(tmp_path / "a.npz")
    assert (demos.obs.shape[1], demos.meta["understood"]["left_out"]) == (3, {"obs/image": [4, 4, 3]})
    with pytest.warns(DiffcloneWarning, match=r"obs/image looks like images of 4 × 4 × 3.*at least 36 .*48 plain num"):
        assert Demonstrations.load(tmp_path / "a.npz", obs_keys=["obs/image", "obs/state"]).obs.shape[1] == 51


def test_files_of_a_folder_have_steps_first(tmp_path: Path) -> None:
    starts = np.isin(np.arange(8), [0, 3, 4])
    np.savez(tmp_path / "1.npz", obs=STATE, action=ACT, episode_starts=starts)
    check(Demonstrations.load(tmp_path))
    np.savez(tmp_path / "2.npz", obs=STATE[None], action=ACT[None])
    with pytest.raises(InvalidData, match=r"2.npz: actions have the shape \(1, 8, 2\); \(steps, size\) was expected"):
        Demonstrations.load(tmp_path)


def test_other_data_beside_the_files_of_a_folder_is_named(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "a.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(Demonstrations.load(tmp_path))
    np.savez(tmp_path / "b.npz", obs=STATE, act=ACT, episode_ends=ENDS)
    (tmp_path / "notes.txt").write_text("about these files")
    with pytest.warns(
        DiffcloneWarning, match=r"is read as Hugging Face dataset, without the other data in it: b\.npz\."
    ):
        check(Demonstrations.load(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(Demonstrations.load(f"npz-folder:{tmp_path}"))


@pytest.mark.parametrize("name", ["episode_0.hdf5", "0.csv"])
def test_a_folder_of_files_that_are_read_one_by_one_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"1")
    with pytest.raises(
        InvalidData, match=rf"is a folder with {name}, and a folder of such files is not read.*from_epis"
    ):
        Demonstrations.load(tmp_path)


def test_a_group_per_episode_is_not_taken_for_minari(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["episode_0/obs"], file["episode_0/action"] = STATE, ACT
    with pytest.raises(InvalidData, match=r"contains episode_0; a robomimic file .*Demonstrations\.from_episodes"):
        Demonstrations.load(tmp_path / "a.h5")


def test_columns_that_are_not_used_may_have_any_content(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"tokens": [[1], [1, 2], *[None] * 6], "obs": [*STATE], "act": [*ACT], "episode": NUMBERS}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    check(Demonstrations.load(tmp_path / "a.parquet"))
    check(Demonstrations.from_dataframe(pd.DataFrame(columns)))
    with pytest.raises(InvalidData, match="rows of tokens differ in length or are missing"):
        Demonstrations.from_dataframe(pd.DataFrame(columns), obs_keys=["tokens"])


def test_datasets_of_the_hub_are_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"not downloaded; to download one: hf download lerobot/pusht --repo-type"):
        Demonstrations.load("hf:lerobot/pusht")
    (tmp_path / "dataset_dict.json").write_text('{"splits": [".."]}')
    with pytest.raises(InvalidData, match=r"names the split '\.\.', which is not a folder in it"):
        Demonstrations.load(tmp_path)


def test_a_missing_value_in_a_later_block_is_found(tmp_path: Path) -> None:
    steps = 70_000
    frame = pd.DataFrame({"obs_0": np.zeros(steps), "action": np.zeros(steps), "episode": np.arange(steps) // 1000})
    flags = np.arange(steps) % 1000 == 999
    missing = {
        "episode": frame.assign(episode=frame.episode.astype("Int64").where(frame.index != steps - 1)),
        "done": frame.drop(columns="episode").assign(done=pd.array(flags, "boolean")),
    }
    missing["done"].loc[steps - 5, "done"] = pd.NA
    for name, table in missing.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(pa.Table.from_pandas(table), path, row_group_size=4096)
        with pytest.raises(InvalidData, match=name):
            Demonstrations.load(path)
    dates = pd.to_datetime(["2026-01-01", "2026-01-01", None])
    with pytest.raises(InvalidData, match="episode has no value at 1 of 3 steps, the first in row 2"):
        Demonstrations.from_dataframe(frame.head(3).assign(episode=dates))


def test_names_of_episodes_that_grow_in_a_later_block_stay_whole() -> None:
    blocks = [np.array(["a", "b"]), np.array(["bcd", "bce"])]
    assert read_all(Rows((4,), blocks[0].dtype, lambda: blocks)).tolist() == ["a", "b", "bcd", "bce"]


def test_entries_of_a_tuple_are_in_the_order_of_their_numbers() -> None:
    keys = [f"observations/_index_{n}" for n in range(12)]
    assert order_keys(reversed(keys), {}) == keys
    assert order_keys(["obs_9", "obs_10"], {}) == ["obs_10", "obs_9"]  # as Gymnasium orders a dict
    assert order_keys(["b", "a"], {"observation_keys": [["b", 1], ["a", 2]]}) == ["b", "a"]
