"""Options of reading reach the format, travel with runs, and are refused where they have no meaning."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jaxtyping
import numpy as np
import pytest

from conftest import Command
from diffclone import Demonstrations
from diffclone.cli.arguments import ReadArguments, find_demonstrations
from diffclone.data.formats import ReadOptions
from diffclone.data.formats.options import expand_bounds, parse_bounds
from diffclone.deploy.runtime import load
from diffclone.errors import InvalidData, InvalidSettings

RNG = np.random.default_rng(0)
OBS, GOAL, ACT = (RNG.normal(size=(24, size)).astype(np.float32) for size in (3, 2, 2))
ENDS = [*range(2, 25, 2)]


def save(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"obs": OBS, "goal": GOAL, "act": ACT, "episode_ends": ENDS}
    np.savez(path, **(arrays | changes))
    return path


def frame(**columns: list[float]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def test_keys_choose_arrays_in_the_given_order(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    assert Demonstrations.load(path).obs.shape == (24, 3)
    demos = Demonstrations.load(path, obs_keys=["goal", "obs"], action_keys=["goal"])
    assert np.array_equal(demos.obs, np.hstack([GOAL, OBS]))
    assert np.array_equal(demos.act, GOAL)
    assert demos.meta["observation_keys"] == [["goal", 2], ["obs", 3]]
    pattern = Demonstrations.load(path, obs_keys=["o*", "goal"])
    assert np.array_equal(pattern.obs, np.hstack([OBS, GOAL]))
    with pytest.raises(InvalidData, match=r"has no gaol, which --obs-keys names; it has obs, goal, act, episode_ends"):
        Demonstrations.load(path, obs_keys=["gaol"])


def test_an_option_that_a_format_does_not_use_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    with pytest.raises(InvalidData, match=r"a\.npz has no named subsets, so that #train cannot be read"):
        Demonstrations.load(path, filter_key="train")
    with pytest.raises(InvalidData, match=r"names the subset a, and --filter-key b; give one"):
        Demonstrations.load(f"{path}#a", filter_key="b")
    import torch

    torch.save({"obs": torch.ones(2, 1), "actions": torch.ones(2, 1), "done": torch.ones(2)}, tmp_path / "a.pt")
    with pytest.raises(InvalidData, match=r"does not use --episode-key; it uses .*--action-bounds"):
        Demonstrations.load(tmp_path / "a.pt", episode_key="done")
    with pytest.raises(InvalidSettings, match="--obs-keys: for files of your own; maze is a task"):
        find_demonstrations("maze", None, ReadOptions(obs_keys=("obs",)))


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: Demonstrations.load(cast(Any, OBS)), "the name of a file or folder is needed; .* of type ndarray"),
        (lambda: Demonstrations.load(cast(Any, None)), "the name of a file or folder is needed; .* of type NoneType"),
        (lambda: Demonstrations.load("a.npz", obs_key="obs"), "no option obs_key of reading; there are obs_keys, act"),
        (lambda: Demonstrations.from_dataframe({"obs": OBS}), "a data frame of pandas or polars is needed; .* dict"),
        (lambda: Demonstrations.from_episodes(cast(Any, None)), "a list of episodes is needed, .* of type NoneType"),
        (
            lambda: Demonstrations.from_episodes([{"state": OBS, "ctrl": ACT}]),
            r"episode 0 lacks act; it has state, ctrl.*choose with obs_keys and action_keys\.$",
        ),
        (
            lambda: Demonstrations.from_dataframe(frame(obs=[0.0], action=[0.0])),
            "ends of episodes are unknown.*episode: episode_key=NAME",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_in_the_words_of_python(
    read: Callable[[], Demonstrations], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(InvalidData, match=message) as raised:
        read()
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("-1,1", [-1, -1], [1, 1]), ("-1,-2:1,2.5", [-1, -2], [1, 2.5]), ("0,inf", [0, 0], [np.inf] * 2)],
)
def test_action_bounds(tmp_path: Path, text: str, low: list[float], high: list[float]) -> None:
    demos = Demonstrations.load(save(tmp_path / "a.npz"), action_bounds=parse_bounds(text))
    assert demos.meta["action_bounds"] == [low, high]
    assert demos.fingerprint == Demonstrations.load(tmp_path / "a.npz").fingerprint


@pytest.mark.parametrize("text", ["1", "a,b", "1,2,3", "1:2:3", ""])
def test_action_bounds_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(InvalidData, match=r"--action-bounds takes LOW,HIGH"):
        parse_bounds(text)


@pytest.mark.parametrize("text", ["1,-1", "nan,1", "1:2", "1,2,3:4,5,6"])
def test_action_bounds_of_the_wrong_size_or_order_are_refused(text: str) -> None:
    with pytest.raises(InvalidData, match=r"each of the 2 action dimensions, and no low above its high"):
        expand_bounds(parse_bounds(text), 2)


def test_options_survive_json() -> None:
    options = ReadOptions(("a", "b"), ("c",), action_bounds=(-1.0, (1.0, 2.0)), action_kind="continuous")
    assert ReadOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert ReadOptions().to_dict() == {}
    given = ReadOptions.from_dict({"obs_keys": "state", "action_bounds": (np.float32(-1), np.array([1, 2]))})
    assert given == ReadOptions(("state",), action_bounds=(-1.0, (1.0, 2.0)))
    assert ReadArguments(obs_keys=("a,b", "c")).options().obs_keys == ("a", "b", "c")


def test_a_run_remembers_how_its_data_was_read(diffclone: Command, tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    flags = ["--method", "dbc", "--seeds", "1", "--held-out", "0.5", "--training.updates", "2"]
    flags += ["--guide.training.updates", "2", "--action-bounds", "-9,9", "--no-cache"]
    train = ["train", path, "--out", tmp_path / "run", *flags, "--obs-keys", "goal", "obs"]
    assert diffclone(*train).code == 0
    assert diffclone(*train).code == 0  # the same command finds its run
    config = json.loads((tmp_path / "run/policy/config.json").read_text())
    assert config["action_bounds"] == [[-9, -9], [9, 9]]
    renamed = save(tmp_path / "renamed.npz")
    assert diffclone(train[0], renamed, *train[2:]).code == 0  # the data is the same
    other = diffclone("train", path, "--out", tmp_path / "run", *flags)
    assert other.code == 2
    assert "holds another run" in other.err
    # The run's own held-out episodes are read with the same keys; other data with the flags of this command.
    calibrate = ["calibrate", tmp_path / "run", "--alpha", "0.5", "--score", "nearest"]
    assert diffclone(*calibrate).code == 0
    wrong = diffclone(*calibrate, "--obs-keys", "goal")
    assert "options of reading need --data FILE" in wrong.err
    save(tmp_path / "b.npz", act=-ACT)
    assert diffclone(*calibrate, "--again", "--data", tmp_path / "b.npz", "--obs-keys", "goal", "obs").code == 0
    exported = diffclone(
        "export", tmp_path / "run", "--out", tmp_path / "p.npz", "--to", "numpy", "--action-bounds", "0,0"
    )
    assert exported.code == 0, exported.err
    assert not load(tmp_path / "p.npz")(np.zeros((4, 5), dtype=np.float32)).any()
