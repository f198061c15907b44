from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from diffclone import BC, Demonstrations, Network, Training, evaluate, fit
from diffclone.errors import InvalidSettings

TINY = BC(training=Training(updates=2), network=Network(width=4, depth=1))


def blank(obs: int, act: int) -> Demonstrations:
    rng = np.random.default_rng(0)
    rows, ends = rng.normal(size=(20, obs)), np.arange(2, 21, 2)
    return Demonstrations.from_arrays(rows, rng.uniform(-1, 1, (20, act)), episode_ends=ends)


def test_episodes_in_an_environment_that_is_not_ours() -> None:
    policy = fit(TINY, blank(3, 1), seeds=(0, 1), device="cpu")
    scores = evaluate(policy, "Pendulum-v1", episodes=2)
    assert scores.length.tolist() == [[200, 200], [200, 200]]
    assert not scores.reports_success
    assert scores.summary()["success_rate"] is None
    assert np.all(scores.returns < 0)
    again = evaluate(policy[1], "Pendulum-v1", episodes=2)
    assert np.array_equal(again.returns[0], scores.returns[1])
    other = evaluate(policy[1], "Pendulum-v1", episodes=2, starts="validation")
    assert not np.array_equal(other.returns, again.returns)


def test_one_of_ours_reports_success_through_gymnasium_too() -> None:
    policy = fit(TINY, blank(6, 2), device="cpu")
    scores = evaluate(policy, "diffclone/Maze-v0", episodes=1)
    assert scores.reports_success
    assert scores.success.shape == (1, 1)


@pytest.mark.parametrize(
    ("env", "sizes", "message"),
    [
        ("Pendulum-v1", (4, 1), "the policy maps 4 numbers to 1; Pendulum-v1 gives 3 and takes 1"),
        ("CartPole-v1", (4, 1), r"CartPole-v1 takes actions in Discrete\(2\); a policy needs a Box"),
        ("NoSuch-v0", (3, 1), r"the environment NoSuch-v0 cannot be made \("),
    ],
)
def test_what_does_not_fit_is_one_line(env: str, sizes: tuple[int, int], message: str) -> None:
    policy = fit(TINY, blank(*sizes), device="cpu")
    with pytest.raises(InvalidSettings, match=message):
        evaluate(policy, env, episodes=1)


def test_from_a_file_to_an_evaluation_by_two_commands(diffclone: Command, tmp_path: Path) -> None:
    blank(3, 1).save(tmp_path / "mine.npz")
    small = ("--method", "bc", "--training.updates", "64", "--seeds", "1", "--device", "cpu")
    done = diffclone("train", tmp_path / "mine.npz", *small, "--out", tmp_path / "run")
    assert done.code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "held_out/L_BC" in lines  # a tenth of ten episodes
    refused = diffclone("evaluate", tmp_path / "run")
    assert (refused.code, "say --task NAME, or --env ID" in refused.err) == (2, True)
    played = diffclone("evaluate", tmp_path / "run", "--env", "Pendulum-v1", "--episodes", "1")
    assert played.code == 0
    assert "return" in played.out
    assert "Pendulum-v1" in (tmp_path / "run" / "policy" / "README.md").read_text()
