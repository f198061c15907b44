"""`diffclone record`: a user's function or a trained policy in any environment."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command, assert_error, robotics
from diffclone import BC, Demonstrations, Network, Policy, Training, evaluate, fit

EXPERT = """
import os, signal, sys
import numpy as np

calls = 0

def swing(obs):
    return [np.clip(-2 * obs[1] - 0.5 * obs[2], -2, 2)]

def interrupted(obs):
    global calls
    calls += 1
    if calls == 8:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
        os.kill(os.getpid(), signal.SIGINT)
    return [0.0]

def fails_later(obs):
    global calls
    calls += 1
    return [0.0] if calls < 8 else [float("nan")]

def exits_later(obs):
    global calls
    calls += 1
    return [0.0] if calls < 8 else sys.exit(0)

def reach(obs):
    return np.append(np.clip(10 * (obs["desired_goal"] - obs["achieved_goal"]), -1, 1), 0)

class Expert: pass
number = 3
"""
PENDULUM = ("record", "--env", "Pendulum-v1", "--max-steps", "3")


@pytest.fixture
def expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_expert.py"
    path.write_text(EXPERT)
    return path


def test_a_function_is_recorded_and_the_file_says_how(diffclone: Command, expert: Path) -> None:
    result = diffclone(*PENDULUM, "--policy", "my_expert.py:swing", "--episodes", "4", "--out", "a.npz", "--json")
    assert result.code == 0, result.err
    demos = Demonstrations.load("a.npz")
    about = json.loads(result.out)
    assert -16.3 * 3 <= about.pop("mean_return") <= 0, "rewards of Pendulum are from -16.3 to 0"
    assert about == {
        "out": "a.npz",
        "episodes": 4,
        "steps": 12,
        "played": 4,
        "fingerprint": demos.fingerprint,
    }
    assert np.allclose(demos.act[:, 0], np.clip(-2 * demos.obs[:, 1] - 0.5 * demos.obs[:, 2], -2, 2))
    assert demos.lengths.tolist() == [3] * 4
    assert demos.meta["environment"] == "Pendulum-v1"
    assert demos.meta["action_bounds"] == [[-2.0], [2.0]]
    # The recorded command plays the same episodes again.
    assert diffclone(*shlex.split(demos.meta["command"])[1:], "--out", "b.npz").code == 0
    assert Demonstrations.load("b.npz").fingerprint == demos.fingerprint
    line = diffclone(*PENDULUM, "--policy", "my_expert:swing", "--episodes", "2", "--seed", "1", "--out", "c.npz").err
    assert "Next: diffclone train c.npz --out RUN" in line
    assert not Demonstrations.load("c.npz").find_shared_episodes(demos)


@pytest.mark.parametrize("out", ["a.hdf5", "minari:./a-v0", "lerobot:a"])
def test_every_format_that_can_be_written(diffclone: Command, expert: Path, out: str) -> None:
    assert diffclone(*PENDULUM, "--policy", "my_expert:swing", "--episodes", "2", "--out", out).code == 0
    assert Demonstrations.load(out).lengths.tolist() == [3, 3]
    assert_error(diffclone(*PENDULUM, "--policy", "my_expert:swing", "--out", out), "exists already")


def test_a_task_by_name_and_a_trained_policy(diffclone: Command, tmp_path: Path) -> None:
    demos = Demonstrations.from_arrays(np.eye(6), np.eye(6)[:, :2], episode_ends=[6])
    method = BC(network=Network(width=8), training=Training(updates=2))
    fit(method, demos, seeds=(0, 1), device="cpu").save(tmp_path / "policy")
    command = ("record", "--env", "maze", "--policy", tmp_path / "policy", "--episodes", "2", "--max-steps", "5")
    for member in (0, 1):
        assert diffclone(*command, "--member", str(member), "--out", tmp_path / f"{member}.npz").code == 0
    recorded = [Demonstrations.load(tmp_path / f"{member}.npz") for member in (0, 1)]
    assert recorded[0].meta["task"] == "maze"
    assert np.array_equal(recorded[0].obs[0], recorded[1].obs[0]), "both members begin at the same starts"
    assert not np.array_equal(recorded[0].act, recorded[1].act)
    acted = Policy.load(tmp_path / "policy")[0](recorded[0].obs)
    assert np.allclose(acted.clip(-1, 1), recorded[0].act, atol=1e-6)
    wrong = (*command[:1], "--env", "Pendulum-v1", *command[3:], "--out", tmp_path / "b.npz")
    assert_error(diffclone(*wrong), r"the policy maps 6 numbers to 2; Pendulum-v1 gives 3 and takes 1")
    assert_error(diffclone(*command, "--member", "2", "--out", tmp_path / "b.npz"), "member 2 does not exist")


def test_a_policy_with_a_memory_begins_each_episode_anew(diffclone: Command, tmp_path: Path) -> None:
    demos = Demonstrations.from_arrays(np.eye(6), np.eye(6)[:, :2], episode_ends=[6])
    method = BC(network=Network(width=8), training=Training(updates=2), history=2, horizon=3, execute=2)
    policy = fit(method, demos, device="cpu")
    policy.save(tmp_path / "policy")
    command = ("record", "--env", "maze", "--policy", tmp_path / "policy", "--episodes", "2", "--max-steps", "5")
    assert diffclone(*command, "--out", tmp_path / "a.npz").code == 0
    for obs, act in Demonstrations.load(tmp_path / "a.npz").episodes():
        session = policy.session()
        assert np.allclose([session(row) for row in obs], act, atol=1e-6)


def test_a_policy_trained_on_a_goal_environment_is_evaluated_there(diffclone: Command, expert: Path) -> None:
    robotics()
    command = ("record", "--env", "gymnasium_robotics:FetchReach-v4", "--policy", "my_expert:reach", "--max-steps", "9")
    result = diffclone(*command, "--episodes", "3", "--only-successes", "--stop-at-success", "--out", "a.npz")
    assert result.code == 0, result.err
    assert "left out of the observations: achieved_goal" in result.err
    demos = Demonstrations.load("a.npz")
    assert demos.meta["observation_keys"] == [["observation", 10], ["desired_goal", 3]]
    policy = fit(BC(network=Network(width=8), training=Training(updates=2)), demos, device="cpu")
    scores = evaluate(policy, "gymnasium_robotics:FetchReach-v4", episodes=1, max_episode_steps=3)
    assert scores.reports_success


def test_ctrl_c_keeps_the_finished_episodes(diffclone: Command, expert: Path) -> None:
    result = diffclone(*PENDULUM, "--policy", "my_expert:interrupted", "--episodes", "9", "--out", "a.npz")
    assert result.code == 130
    assert result.err.splitlines()[-1] == "diffclone: interrupted. 2 of 9 episodes are in a.npz."
    assert Demonstrations.load("a.npz").lengths.tolist() == [3, 3]


def test_an_error_keeps_the_finished_episodes(diffclone: Command, expert: Path) -> None:
    result = diffclone(*PENDULUM, "--policy", f"{expert}:fails_later", "--episodes", "9", "--out", "a.npz")
    assert result.code == 2
    last = result.err.splitlines()[-1]
    assert last == (
        "diffclone: episode 2, step 1: the policy returned [nan], which is not finite. 2 of 9 episodes are in a.npz."
    )
    assert Demonstrations.load("a.npz").lengths.tolist() == [3, 3]


def test_a_function_that_exits_keeps_the_finished_episodes(diffclone: Command, expert: Path) -> None:
    out = ["--out", "a.npz", "--episodes", "9", "--max-steps", "3"]
    result = diffclone("record", "--env", "Pendulum-v1", "--policy", "my_expert.py:exits_later", *out)
    assert_error(result, r"episode 2, step 1: SystemExit: 0 \(line .* 2 of 9 episodes are in a.npz")
    assert Demonstrations.load("a.npz").lengths.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"--env": "Pendulm-v1"},
            r"unknown environment 'Pendulm-v1'; did you mean 'Pendulum-v1'\? Give a task \(maze, ",
        ),
        ({"--env": "mase"}, r"unknown environment 'mase'; did you mean 'maze'"),
        ({"--env": "nowhere:Env-v0"}, r"the environment nowhere:Env-v0 cannot be made \(.*nowhere"),
        ({"--env": "CartPole-v1"}, r"CartPole-v1 takes actions in Discrete\(2\); a policy needs a Box"),
        ({"--policy": "my_expert"}, r"'my_expert' names no function. Give MODULE:FUNCTION, FILE.py:FUNCTION"),
        (
            {"--policy": "my_expert:swim"},
            r"my_expert has no swim; it has swing, interrupted, fails_later, exits_later, reach, Expert",
        ),
        ({"--policy": "other:swing"}, r"no module 'other' in "),
        ({"--policy": "other.py:swing"}, r"no such file: other.py"),
        ({"--policy": "broken.py:swing"}, r"broken.py cannot be imported: SyntaxError"),
        ({"--policy": "my_expert:Expert"}, r"my_expert:Expert is a class; a function or a callable object is needed"),
        ({"--policy": "my_expert:number"}, r"my_expert:number is int; a function"),
        ({"--policy": "my_expert:number.act"}, r"my_expert has no number.act; it has "),
        ({"--policy": "exits.py:swing"}, r"exits.py cannot be imported: SystemExit: 2"),
        ({"--policy": "empty"}, r"empty is not a run: it has no run.json"),
        ({"--policy": "my_expert:reach"}, r"episode 0, step 0: IndexError: .* \(line \d+ of .*my_expert.py\)"),
        ({"--episodes": "0"}, r"--episodes must be at least 1; it is 0"),
        ({"--seed": "-1"}, r"--seed must not be negative"),
        ({"--max-steps": "0"}, r"--max-steps must be at least 1"),
        ({"--out": "my_expert.py"}, r"cannot save demonstrations as my_expert.py. Formats to save"),
        ({"--out": "there.npz"}, r"there.npz exists already and is not overwritten"),
        ({"--out": "there.npz/a.npz"}, r"there.npz/a.npz cannot be written: .*there.npz is not a folder"),
        ({"--out": "minari:my.demos", "--policy": "other:swing"}, r"my.demos-v0 is not a Minari id"),
        ({"--options": "gravity=1"}, r"the environment Pendulum-v1 cannot be made \(.*gravity"),
        ({"--obs-keys": "state"}, r"have no named parts, so that state cannot be chosen"),
    ],
)
def test_mistakes_are_one_line(
    diffclone: Command, expert: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    (tmp_path / "broken.py").write_text("def swing(obs) return 0")
    (tmp_path / "exits.py").write_text("import sys; sys.exit(2)")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.npz").write_bytes(b"precious")
    before = sorted(tmp_path.iterdir())
    given = {"--env": "Pendulum-v1", "--policy": "my_expert:swing", "--out": "a.npz", "--episodes": "1", **changes}
    assert_error(diffclone("record", *[word for pair in given.items() for word in pair]), message)
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "__pycache__"] == before
    assert (tmp_path / "there.npz").read_bytes() == b"precious"
