"""Evaluation in Gymnasium environments that are not bundled."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import jaxtyping
import numpy as np
import numpy.typing as npt
import pytest

from conftest import Command, assert_error
from diffclone import BC, Demonstrations, DiffusionPolicy, Network, Policy, Training, evaluate, fit
from diffclone.errors import InvalidSettings
from diffclone.tasks import TASKS, gymnasium_batch
from diffclone.tasks.batch import START_SEEDS, BatchEnv
from diffclone.tasks.gymnasium_batch import GymnasiumBatch, gymnasium_task
from diffclone.testing import check_task

TINY = BC(training=Training(updates=2), network=Network(width=4, depth=1))


def blank(obs: int, act: int) -> Demonstrations:
    rng = np.random.default_rng(0)
    rows, ends = rng.normal(size=(20, obs)), np.arange(2, 21, 2)
    return Demonstrations.from_arrays(rows, rng.uniform(-1, 1, (20, act)), episode_ends=ends)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return fit(TINY, blank(3, 2), seeds=(0, 1), device="cpu")


class Corridor(gym.Env[dict[str, Any], npt.NDArray[np.float32]]):
    """Sums up its actions. An episode has 1 to 40 steps, drawn at its start."""

    opened: list["Corridor"]
    closed: list["Corridor"]

    def __init__(self, fail_at: int = 1000, *, reports: bool = True):
        self.observation_space = gym.spaces.Dict(
            {"sum": gym.spaces.Box(-np.inf, np.inf, (2,)), "left": gym.spaces.Box(0, 40, (1,))}
        )
        self.action_space = gym.spaces.Box(-1, 1, (2, 1), np.float32)
        self.fail_at, self.reports, self.sum, self.left, self.steps = fail_at, reports, np.zeros(2), 0, 0
        self.opened.append(self)

    def observe(self) -> dict[str, Any]:
        return {"sum": self.sum.astype(np.float32), "left": np.array([self.left], np.float32)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.sum, self.left, self.steps = self.np_random.normal(size=2), int(self.np_random.integers(1, 41)), 0
        return self.observe(), {}

    def step(self, action: npt.NDArray[np.float32]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        assert self.left > 0, "a step after the end of an episode"
        assert action.shape == (2, 1)
        assert action.dtype == np.float32
        self.sum, self.left, self.steps = self.sum + action[:, 0], self.left - 1, self.steps + 1
        if self.steps >= self.fail_at:
            raise RuntimeError("broken")
        info = {"is_success": bool(self.sum[0] > 0)} if self.reports else {}
        return self.observe(), float(self.sum[1]), self.left == 0, False, info

    def close(self) -> None:
        self.closed.append(self)


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    """Every environment that a test opened is closed exactly once."""
    Corridor.opened, Corridor.closed = [], []
    yield
    assert sorted(map(id, Corridor.closed)) == sorted(map(id, Corridor.opened))


def run_by_hand(policy: Policy, member: int, episode: int) -> tuple[bool, int, float]:
    env, one = Corridor(), policy[member]
    obs, _ = env.reset(seed=START_SEEDS["evaluation"] + episode)
    total, length, ended, info = 0.0, 0, False, dict[str, Any]()
    while not ended:
        flat = gym.spaces.flatten(env.observation_space, obs)
        obs, reward, ended, _, info = env.step(one(np.asarray(flat, dtype=np.float32)).reshape(2, 1))
        total, length = total + reward, length + 1
    env.close()
    return info["is_success"], length, total


def test_every_episode_is_that_of_a_single_environment(policy: Policy) -> None:
    scores = evaluate(policy, Corridor, episodes=25)
    assert scores.task == "Corridor"
    assert scores.reports_success
    for member in range(2):
        for episode in range(25):
            success, length, returns = run_by_hand(policy, member, episode)
            assert (scores.success[member, episode], scores.length[member, episode]) == (success, length)
            assert scores.returns[member, episode] == pytest.approx(returns, rel=1e-4)
    assert len(np.unique(scores.length[0])) > 5


def test_environments_are_stepped_together(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    act, calls = Policy.act, list[int]()

    def count(self: Policy, obs: Any, call: int) -> Any:
        calls.append(obs.shape[1])
        return act(self, obs, call)

    monkeypatch.setattr(Policy, "act", count)
    scores = evaluate(policy, Corridor, episodes=30)
    assert len(Corridor.opened) == 21  # ten per member, and one to learn the sizes
    assert max(calls) == 10
    assert len(calls) < scores.length[0].sum() / 4


def test_a_member_scores_the_same_alone(policy: Policy) -> None:
    method = DiffusionPolicy(training=Training(updates=2))
    sampling = fit(method, blank(3, 2), seeds=(0, 1), device="cpu").acting(sampler="ddim", calls=2)
    together, alone = evaluate(sampling, Corridor, episodes=15), evaluate(sampling[1], Corridor, episodes=15)
    np.testing.assert_allclose(alone.returns[0], together.returns[1], rtol=1e-4)


def test_progress_and_steps_count_episodes(policy: Policy) -> None:
    counts, seen = list[tuple[int, int]](), list[tuple[int, ...]]()
    scores = evaluate(
        policy,
        Corridor,
        episodes=15,
        progress=lambda done, total: counts.append((done, total)),
        on_step=lambda rows, obs, act: seen.extend((int(row), *obs_shape(obs, act)) for row in rows),
    )
    assert counts == sorted(counts)
    assert counts[-1] == (30, 30)
    assert {shape[1:] for shape in seen} == {(3, 2)}
    assert np.bincount([row for row, *_ in seen]).tolist() == scores.length.ravel().tolist()


def obs_shape(obs: npt.NDArray[Any], act: npt.NDArray[Any]) -> tuple[int, int]:
    return obs.shape[1], act.shape[1]


def test_the_papers_protocol_restarts_any_environment(policy: Policy) -> None:
    scores = evaluate(policy, Corridor, protocol="paper")
    assert scores.success.shape == (2, 100)
    assert scores.length.min() >= 1


def test_a_task_keeps_the_options_of_its_environment(policy: Policy) -> None:
    assert not evaluate(policy, gymnasium_task(Corridor, reports=False), episodes=1).reports_success


def test_success_that_is_not_reported_is_not_counted(policy: Policy) -> None:
    scores = evaluate(policy, Corridor, episodes=3, reports=False)
    assert not scores.reports_success
    assert scores.options == {"reports": False}
    summary = scores.summary()
    assert summary["success_rate"] is None
    assert summary["outcomes"]["success"] is None
    assert np.shape(summary["outcomes"]["returns"]) == (2, 3)


# Environments are closed.


def test_environments_are_closed_if_a_step_fails(policy: Policy) -> None:
    message = (
        r"step of the environment Corridor failed: RuntimeError: broken \(line .*It was made with {'fail_at': 3}\.$"
    )
    with pytest.raises(InvalidSettings, match=message) as raised:
        evaluate(policy, Corridor, episodes=4, fail_at=3)
    assert isinstance(raised.value.__cause__, RuntimeError)  # with the environment's own traceback
    assert len(Corridor.opened) == 9


def test_environments_are_closed_if_a_callback_fails(policy: Policy) -> None:
    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(policy, Corridor, episodes=4, progress=fail)


def test_environments_are_closed_if_another_cannot_be_made(policy: Policy) -> None:
    def make() -> Corridor:
        if len(Corridor.opened) == 5:
            raise OSError("no more")
        return Corridor()

    with pytest.raises(InvalidSettings, match=r"cannot be made \(no more\)"):
        evaluate(policy, make, episodes=4)


def test_environments_are_closed_if_the_policy_does_not_fit() -> None:
    with pytest.raises(InvalidSettings, match="the policy maps 4 numbers to 1; Corridor gives 3 and takes 2"):
        evaluate(fit(TINY, blank(4, 1), device="cpu"), Corridor)
    assert len(Corridor.opened) == 1


def test_all_environments_are_closed_if_closing_one_fails(policy: Policy) -> None:
    class Stuck(Corridor):
        def close(self) -> None:
            super().close()
            if self in self.opened[3:4]:
                raise OSError("stuck")

    with pytest.raises(OSError, match="stuck"):
        evaluate(policy, Stuck, episodes=4)


def test_a_bundled_task_is_closed_if_a_callback_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, closed = TASKS["spiral"].make_batch, list[BatchEnv]()
    assert isinstance(batch, type)

    def close(env: BatchEnv) -> None:
        closed.append(env)

    monkeypatch.setattr(batch, "close", close)

    def fail(rows: Any, obs: Any, act: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(fit(TINY, blank(6, 2), device="cpu"), "spiral", episodes=2, on_step=fail)
    assert len(closed) == 1


def test_a_function_must_make_a_new_environment_at_each_call(policy: Policy) -> None:
    one = Corridor()
    with pytest.raises(InvalidSettings, match="returned the same environment twice"):
        evaluate(policy, lambda: one, episodes=2)
    Corridor.closed = [one]  # it was closed more than once


# Ids.


def test_a_gymnasium_id() -> None:
    policy = fit(TINY, blank(3, 1), seeds=(0, 1), device="cpu")
    scores = evaluate(policy, "Pendulum-v1", episodes=2)
    assert scores.length.tolist() == [[200, 200], [200, 200]]
    assert not scores.reports_success
    assert np.all(scores.returns < 0)
    again = evaluate(policy[1], "Pendulum-v1", episodes=2)
    assert np.array_equal(again.returns[0], scores.returns[1])
    other = evaluate(policy[1], "Pendulum-v1", episodes=2, starts="validation")
    assert not np.array_equal(other.returns, again.returns)


def test_a_bundled_task_scores_the_same_by_its_gymnasium_id() -> None:
    policy = fit(TINY, blank(6, 2), device="cpu")
    by_id, by_name = evaluate(policy, "diffclone/Spiral-v0", episodes=2), evaluate(policy, "spiral", episodes=2)
    assert by_id.reports_success
    assert np.array_equal(by_id.length, by_name.length)
    np.testing.assert_allclose(by_id.returns, by_name.returns, rtol=1e-4)


def test_an_environment_without_a_limit_is_stopped(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium_batch, "MAX_STEPS", 1)
    assert evaluate(policy, Corridor, episodes=2).length.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("env", "sizes", "message"),
    [
        ("Pendulum-v1", (4, 1), "the policy maps 4 numbers to 1; Pendulum-v1 gives 3 and takes 1"),
        ("CartPole-v1", (4, 1), r"CartPole-v1 takes actions in Discrete\(2\); a policy needs a Box"),
        ("NoSuch-v0", (3, 1), r"the environment NoSuch-v0 cannot be made \("),
        ("no_such_module:NoSuch", (3, 1), r"the environment no_such_module:NoSuch cannot be made \("),
    ],
)
def test_an_environment_that_does_not_fit_is_one_line(env: str, sizes: tuple[int, int], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        evaluate(fit(TINY, blank(*sizes), device="cpu"), env, episodes=1)


def test_a_wrong_option_that_shows_at_a_step_is_one_line(diffclone: Command, tmp_path: Path) -> None:
    fit(TINY, blank(3, 1), device="cpu").save(tmp_path / "policy")
    arguments = ("evaluate", tmp_path / "policy", "--env", "Pendulum-v1", "--episodes", "1", "--options", "g=abc")
    message = r"step of the environment Pendulum-v1 failed: TypeError: .*It was made with {'g': 'abc'}\."
    assert_error(diffclone(*arguments), message)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (None, "evaluate needs a task or its name, .*or a function .*; it was given an object of type NoneType"),
        (3, "evaluate needs a task or its name, .* type int"),
        (lambda: 3, "<lambda> made an object of type int, not an environment"),
        (lambda: 1 / 0, r"the environment <lambda> cannot be made \(division by zero\)"),
        (gym.make, r"the environment make cannot be made \(.*missing 1 required positional argument: 'id'\)"),
    ],
)
def test_anything_but_an_environment_is_one_line(
    policy: Policy, task: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(InvalidSettings, match=message):
        evaluate(policy, task, episodes=1)


def test_an_environment_in_place_of_its_id_is_one_line(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    env: Any = gym.make("Pendulum-v1")
    with pytest.raises(InvalidSettings, match=r"such as lambda: gymnasium.make\(…\); .* an object of type TimeLimit"):
        evaluate(policy, env, episodes=1)
    env.close()


def test_a_task_over_a_gymnasium_environment_passes_the_contract_checks() -> None:
    task = gymnasium_task("Pendulum-v1")
    assert (task.obs_size, task.act_size, task.environments_per_member) == (3, 1, 10)
    assert isinstance(task.make_batch, partial)
    assert task.make_batch.func is GymnasiumBatch
    check_task(task)


def test_train_on_a_file_and_evaluate_in_an_environment(diffclone: Command, tmp_path: Path) -> None:
    blank(3, 1).save(tmp_path / "mine.npz")
    small = ("--method", "bc", "--training.updates", "64", "--seeds", "1", "--device", "cpu")
    done = diffclone("train", tmp_path / "mine.npz", *small, "--out", tmp_path / "run")
    assert done.code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "held_out/L_BC" in lines  # a tenth of ten episodes
    refused = diffclone("evaluate", tmp_path / "run")
    assert (refused.code, "--env" in refused.err) == (2, True)
    evaluated = diffclone("evaluate", tmp_path / "run", "--env", "Pendulum-v1", "--episodes", "1")
    assert evaluated.code == 0
    assert "return" in evaluated.out
    assert "Pendulum-v1" in (tmp_path / "run" / "policy" / "README.md").read_text()
