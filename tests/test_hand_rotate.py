import importlib
import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from conftest import robotics
from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import Rows
from diffclone.tasks.hand_rotate import HandRotateBatch, angle_between, yaw_quaternion
from diffclone.testing.tasks import generators

ONE = np.zeros(1, dtype=np.int64)
REST = np.zeros((1, 20))

Doubles = npt.NDArray[np.float64]


def do_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the steps in which the block settles in the hand."""

    def stay(env: HandRotateBatch, rows: Rows, act: Doubles, substeps: int) -> None:
        pass

    monkeypatch.setattr(HandRotateBatch, "_advance", stay)


def yaw_of(quaternion: Doubles) -> Doubles:
    """Return the yaw of quaternions (rows, 4) of rotations about the vertical axis."""
    return 2 * np.arctan2(quaternion[:, 3], quaternion[:, 0])


def test_a_step_is_that_of_gymnasium_robotics() -> None:
    gym.register_envs(robotics())
    theirs: Any = gym.make("HandManipulateBlockRotateZ-v1").unwrapped
    mujoco: Any = importlib.import_module("mujoco")
    ours = HandRotateBatch(1, end_on_success=False)
    ours.reset(ONE, generators(1))
    theirs.reset(seed=0)
    theirs.data.qpos[:31], theirs.data.qvel[:30] = ours.simulation.positions[0], ours.simulation.velocities[0]
    mujoco.mj_forward(theirs.model, theirs.data)
    for act in np.random.default_rng(0).uniform(-1, 1, (30, 20)):
        ours.step(ONE, act[None])
        theirs._set_action(act)
        theirs._mujoco_step(act)
        positions, velocities = theirs.data.qpos, theirs.data.qvel
        expected = [positions[:24], velocities[:24], velocities[24:30], positions[24:31]]
        np.testing.assert_allclose(ours.observe(ONE)[0, :61], np.concatenate(expected), rtol=0, atol=2e-6)
    theirs.close()
    ours.close()


def test_the_observation_is_hand_block_zeros_and_goal() -> None:
    env, rows = HandRotateBatch(4), np.arange(4)
    env.reset(rows, generators(4))
    for act in np.random.default_rng(1).uniform(-1, 1, (5, 4, 20)):
        env.step(rows, act)
    obs, sim = env.observe(rows), env.simulation
    assert np.array_equal(obs[:, :24], sim.positions[:, :24])
    assert np.array_equal(obs[:, 24:48], sim.velocities[:, :24])
    assert np.array_equal(obs[:, 48:54], sim.velocities[:, 24:30])
    assert np.array_equal(obs[:, 54:61], sim.positions[:, 24:31])
    assert not obs[:, 61:64].any()
    assert np.array_equal(obs[:, 64:], env.goals)
    assert np.linalg.norm(obs[:, 57:61], axis=1) == pytest.approx(1)
    assert [sim.model.joint(k).name for k in (0, 23, 24)] == ["robot0:WRJ1", "robot0:THJ0", "block"]
    env.close()


@pytest.mark.parametrize(("options", "widest"), [({}, math.pi / 6), ({"start_yaw": math.pi / 12}, math.pi / 12)])
def test_blocks_and_goals_start_in_their_ranges(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], widest: float
) -> None:
    do_not_settle(monkeypatch)
    count = 1500
    env = HandRotateBatch(count, **options)
    env.reset(np.arange(count), generators(count))
    obs = env.observe(np.arange(count))
    env.close()
    block, goal = yaw_of(obs[:, 57:61]), yaw_of(obs[:, 64:])
    assert np.abs(block).max() <= widest
    assert np.ptp(block) > 1.98 * widest
    assert np.all((goal >= math.pi / 3) & (goal <= 2 * math.pi / 3))
    assert np.ptp(goal) > 0.98 * math.pi / 3
    assert not obs[:, [58, 59, 65, 66]].any()
    assert obs[:, 54:57].mean(0) == pytest.approx(np.array([1, 0.87, 0.2]), abs=5e-4)
    assert obs[:, 54:57].std(0) == pytest.approx(0.005, rel=0.1)


def test_without_noise_the_block_starts_at_one_position(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_settle(monkeypatch)
    env = HandRotateBatch(20, start_noise=0.0, start_yaw=0.0)
    env.reset(np.arange(20), generators(20))
    obs = env.observe(np.arange(20))
    assert np.ptp(obs[:, 48:61], axis=0).max() == 0
    assert np.ptp(obs[:, 64:], axis=0).max() > 0
    env.close()


def test_an_episode_starts_with_the_block_at_rest_in_the_hand() -> None:
    env, rows = HandRotateBatch(40), np.arange(40)
    env.reset(rows, generators(40))
    obs = env.observe(rows)
    assert np.all(obs[:, 56] > 0.04)
    assert np.abs(obs[:, 54:57] - (1.0, 0.87, 0.17)).max() < 0.05
    assert np.abs(obs[:, 48:51]).max() < 0.5
    assert not env.solved.any()
    assert env.distance == pytest.approx(angle_between(obs[:, 57:61], obs[:, 64:]))
    env.close()


@pytest.mark.parametrize(
    ("a", "b", "angle"),
    [
        (0.0, 0.0, 0.0),
        (0.3, 0.1, 0.2),
        (0.1, 0.3, 0.2),
        (math.pi / 2, -math.pi / 2, math.pi),
        (math.pi, -0.5, math.pi + 0.5),  # more than π: q and −q differ
        (1.9 * math.pi, 0.0, 1.9 * math.pi),
    ],
)
def test_the_angle_between_two_rotations(a: float, b: float, angle: float) -> None:
    assert angle_between(yaw_quaternion(a)[None], yaw_quaternion(b)[None])[0] == pytest.approx(angle, abs=1e-7)


def test_the_angle_includes_all_three_axes() -> None:
    tilted = np.array([[math.cos(0.2), math.sin(0.2), 0, 0]])
    assert angle_between(tilted, np.array([[1.0, 0, 0, 0]]))[0] == pytest.approx(0.4)
    assert angle_between(-tilted, np.array([[1.0, 0, 0, 0]]))[0] == pytest.approx(2 * math.pi - 0.4)


@pytest.mark.parametrize("end_on_success", [True, False])
@pytest.mark.parametrize(("off", "reached"), [(0.08, True), (0.12, False)])
def test_success_is_within_a_tenth_of_a_radian_and_may_end_the_episode(
    *, off: float, reached: bool, end_on_success: bool
) -> None:
    env = HandRotateBatch(1, end_on_success=end_on_success)
    env.reset(ONE, generators(1))
    env.step(ONE, REST)
    w, x, y, z = env.observe(ONE)[0, 57:61]
    c, s = math.cos(off / 2), math.sin(off / 2)
    env.goals[0] = (c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w)  # rotated about the vertical axis
    env.distance[0] = 1.0
    outcome = env.step(ONE, REST)
    now = env.distance[0]
    assert now == pytest.approx(off, abs=0.015)
    assert outcome.reward[0] == pytest.approx(1.0 - now)
    assert bool(outcome.success[0]) == reached
    assert bool(outcome.ended[0]) == (reached and end_on_success)
    env.goals[0] = yaw_quaternion(3.0)
    assert bool(env.step(ONE, REST).success[0]) == reached  # a solved row stays solved
    env.close()


def test_rewards_add_up_to_the_decrease_of_the_angle() -> None:
    env = HandRotateBatch(1, end_on_success=False)
    env.reset(ONE, generators(1))
    first = env.distance[0]
    acts = np.random.default_rng(3).uniform(-1, 1, (10, 1, 20))
    total = sum(float(env.step(ONE, act).reward[0]) for act in acts)
    assert total == pytest.approx(first - env.distance[0])
    env.close()


def test_actions_are_targets_and_are_clipped() -> None:
    env = HandRotateBatch(3, end_on_success=False)
    env.reset(np.arange(3), [np.random.default_rng(0) for _ in range(3)])
    for _ in range(10):
        env.step(np.arange(3), np.stack([np.ones(20), np.full(20, 7.0), -np.ones(20)]))
    obs = env.observe(np.arange(3))
    assert np.array_equal(obs[0, :24], obs[1, :24])
    assert np.abs(obs[0, :24] - obs[2, :24]).max() > 1  # a fist and an open hand
    env.close()


@pytest.mark.parametrize("start_yaw", [-0.1, 3.2])
def test_a_wrong_yaw_is_one_line(start_yaw: float) -> None:
    with pytest.raises(InvalidSettings, match="start_yaw must be between 0 and π; it is"):
        HandRotateBatch(1, start_yaw=start_yaw)
