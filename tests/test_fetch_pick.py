import importlib
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from conftest import robotics
from diffclone.errors import InvalidSettings
from diffclone.tasks.experts import run_episode
from diffclone.tasks.fetch_pick import FetchPickBatch, PickExpert, allowed_bins, first_angles
from diffclone.testing.tasks import generators

ONE = np.zeros(1, dtype=np.int64)
REST = np.zeros((1, 4))
GRIPPER, BLOCK_HEIGHT = (1.34193, 0.74910, 0.53473), 0.42489
"""Gymnasium-Robotics' positions of gripper and block at the start of an episode."""

Doubles = npt.NDArray[np.float64]


def stock() -> Any:
    """Return Gymnasium-Robotics' environment with the same arm, table and block."""
    gym.register_envs(robotics())
    return gym.make("FetchPickAndPlace-v4").unwrapped


def starts(count: int, **options: Any) -> tuple[Doubles, Doubles]:
    """Return the positions (x, y) of blocks and goals relative to the gripper."""
    env = FetchPickBatch(count, **options)
    env.reset(np.arange(count), generators(count))
    obs, gripper = env.observe(np.arange(count)), env.gripper_start[:2]
    env.close()
    return obs[:, 3:5] - gripper, obs[:, 13:15] - gripper


def test_the_start_is_that_of_gymnasium_robotics() -> None:
    env = FetchPickBatch(1)
    env.reset(ONE, generators(1))
    assert env.gripper_start == pytest.approx(np.array(GRIPPER), abs=2e-5)
    assert env.block_height == pytest.approx(BLOCK_HEIGHT, abs=2e-5)
    obs = env.observe(ONE)[0]
    assert obs[:3] == pytest.approx(np.array(GRIPPER), abs=2e-4)
    assert obs[5] == pytest.approx(BLOCK_HEIGHT, abs=2e-4)
    assert obs[6:9] == pytest.approx(obs[3:6] - obs[:3])
    assert obs[9:11] == pytest.approx(np.zeros(2), abs=1e-4)  # fingers closed
    assert obs[11:13] == pytest.approx(np.zeros(2), abs=1e-4)
    assert obs[15] == pytest.approx(env.block_height + 0.15)
    theirs = stock()
    assert env.gripper_start == pytest.approx(theirs.initial_gripper_xpos, abs=1e-9)
    assert env.block_height == pytest.approx(theirs.height_offset, abs=1e-9)
    theirs.close()
    env.close()


def test_a_step_is_that_of_gymnasium_robotics() -> None:
    theirs, ours, expert = stock(), FetchPickBatch(1, end_on_success=False), PickExpert(noise=0.0)
    mujoco: Any = importlib.import_module("mujoco")
    rng = np.random.default_rng(0)
    ours.reset(ONE, [rng])
    theirs.reset(seed=0)
    theirs.data.qpos[:], theirs.data.qvel[:] = ours.simulation.positions[0], ours.simulation.velocities[0]
    theirs.goal = ours.goals[0].copy()
    mujoco.mj_forward(theirs.model, theirs.data)
    expert.reset(ours.observe(ONE)[0], rng)
    solved = list[tuple[bool, bool]]()
    for _ in range(50):
        act = expert.act(ours.observe(ONE)[0])
        assert act is not None
        outcome = ours.step(ONE, act[None])
        seen, _, _, _, info = theirs.step(act)
        expected = np.concatenate([seen["observation"][:13], seen["desired_goal"]])
        np.testing.assert_allclose(ours.observe(ONE)[0], expected, rtol=0, atol=1e-8)
        distance = np.linalg.norm(seen["achieved_goal"] - seen["desired_goal"])
        assert outcome.reward[0] == pytest.approx(-distance, abs=1e-8)
        solved.append((bool(outcome.success[0]), bool(info["is_success"])))
    assert all(a == b for a, b in solved)
    assert solved[-1][0]
    theirs.close()
    ours.close()


def test_angles_are_those_of_gymnasium_robotics() -> None:
    robotics()
    rotations: Any = importlib.import_module("gymnasium_robotics.utils.rotations")
    quaternions = np.random.default_rng(0).standard_normal((100, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    expected = np.array([rotations.mat2euler(rotations.quat2mat(quaternion)) for quaternion in quaternions])
    np.testing.assert_allclose(first_angles(quaternions), expected[:, :2], rtol=0, atol=1e-9)


def test_angles_match_those_computed_by_hand() -> None:
    half = np.sqrt(0.5)
    quaternions = np.array([[1, 0, 0, 0], [half, half, 0, 0], [half, 0, half, 0], [half, 0, 0, half]])
    expected = [[0, 0], [np.pi / 2, 0], [0, np.pi / 2], [0, 0]]
    found = first_angles(quaternions)
    assert found[[0, 1, 3]] == pytest.approx(np.array(expected)[[0, 1, 3]])
    assert found[2, 1] == pytest.approx(np.pi / 2)  # here the first angle is arbitrary


@pytest.mark.parametrize("noise", [1.0, 1.25, 2.0])
def test_blocks_are_on_the_far_side_and_goals_on_the_near_side(noise: float) -> None:
    block, goal = starts(1500, start_noise=noise, goal_noise=noise)
    for points, low, high in ((block, 0.1, 0.1 + 0.04 * noise), (goal, -0.1 - 0.04 * noise, -0.1)):
        assert np.abs(points[:, 0]).max() <= 0.05 * noise
        assert np.abs(points[:, 0]).max() > 0.049 * noise
        assert np.all((points[:, 1] >= low) & (points[:, 1] <= high))
        assert np.ptp(points[:, 1]) > 0.039 * noise
        assert points.mean(0) == pytest.approx(np.array([0, (low + high) / 2]), abs=0.004 * noise)
    assert abs(np.corrcoef(block[:, 0], goal[:, 0])[0, 1]) < 0.1


def test_start_and_goal_have_separate_noise() -> None:
    block, goal = starts(30, start_noise=0.0)
    assert block == pytest.approx(np.tile([0, 0.1], (30, 1)))
    assert np.ptp(goal, axis=0).min() > 0.01
    block, goal = starts(30, goal_noise=0.0)
    assert goal == pytest.approx(np.tile([0, -0.1], (30, 1)))
    assert np.ptp(block, axis=0).min() > 0.01


def test_a_coverage_of_a_quarter_is_the_diagonal() -> None:
    block, goal = starts(400, start_noise=1.0, goal_noise=1.0, coverage=0.25)
    for points, low in ((block, 0.1), (goal, -0.14)):
        column, row = (4 * (points[:, 0] + 0.05) / 0.1).astype(int), (4 * (points[:, 1] - low) / 0.04).astype(int)
        assert np.array_equal(column, row)
        assert set(column.tolist()) == {0, 1, 2, 3}


def test_a_coverage_of_half_leaves_two_bins_per_column() -> None:
    assert allowed_bins(1) == [(0,), (1,), (2,), (3,)]
    assert allowed_bins(2)[:4] == [(0, 1), (0, 2), (0, 3), (1, 2)]
    assert allowed_bins(4) == [(0, 1, 2, 3)]
    block, _ = starts(600, start_noise=1.0, coverage=0.5)
    cells = {(int(x), int(y)) for x, y in 4 * (block - (-0.05, 0.1)) / (0.1, 0.04)}
    assert cells == {(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 3), (3, 1), (3, 2)}


@pytest.mark.parametrize("coverage", [0.0, 0.2, 1.5, -1.0])
def test_a_wrong_coverage_is_one_line(coverage: float) -> None:
    with pytest.raises(InvalidSettings, match=r"coverage must be between 0\.25 and 1; it is"):
        FetchPickBatch(1, coverage=coverage)


@pytest.mark.parametrize("end_on_success", [True, False])
@pytest.mark.parametrize(("above", "reached"), [(0.049, True), (0.051, False)])
def test_success_is_within_five_centimetres_and_may_end_the_episode(
    *, above: float, reached: bool, end_on_success: bool
) -> None:
    env = FetchPickBatch(1, end_on_success=end_on_success)
    env.reset(ONE, generators(1))
    env.step(ONE, REST)  # the block has come to rest
    env.goals[0] = env.observe(ONE)[0, 3:6] + (0, 0, above)
    outcome = env.step(ONE, REST)
    assert outcome.reward[0] == pytest.approx(-above, abs=5e-4)
    assert bool(outcome.success[0]) == reached
    assert bool(outcome.ended[0]) == (reached and end_on_success)
    env.goals[0] += 1  # a solved row stays solved
    assert bool(env.step(ONE, REST).success[0]) == reached
    env.reset(ONE, generators(1))
    assert not env.solved[0]
    env.close()


def test_actions_move_gripper_and_fingers_and_are_clipped() -> None:
    env = FetchPickBatch(3)
    env.reset(np.arange(3), [np.random.default_rng(0) for _ in range(3)])
    before = env.observe(np.arange(3))
    env.step(np.arange(3), np.array([[1, 0, 0, 1], [5.0, 0, 0, 9], [0, 0, 0, -1]]))
    after = env.observe(np.arange(3))
    assert np.array_equal(after[0], after[1])
    assert 0.005 < after[0, 0] - before[0, 0] <= 0.05
    assert abs(after[2, 0] - before[2, 0]) < 1e-3
    assert np.all(after[0, 9:11] > 0.02)
    assert np.all(after[2, 9:11] < 0.001)
    env.close()


# The expert.


def test_the_experts_first_move_is_above_the_block() -> None:
    expert, obs = PickExpert(noise=0.0), np.zeros(16)
    obs[6:9] = (0.1, -0.2, -0.1)
    expert.reset(obs, np.random.default_rng(0))
    assert expert.act(obs) == pytest.approx(np.array([0.6, -1.2, -0.42, 0.05]))  # not clipped


def test_a_phase_ends_one_step_after_its_distance_is_met() -> None:
    expert, obs = PickExpert(noise=0.0), np.zeros(16)
    expert.reset(obs, np.random.default_rng(0))
    obs[6:9], obs[13:16] = (0, 0, -0.03), (0, 0, 0.5)
    fingers = [float(np.asarray(expert.act(obs))[3]) for _ in range(2)]
    assert fingers == pytest.approx([0.05, -0.005])
    obs[6:9] = 0
    expert.act(obs)
    assert expert.act(obs) == pytest.approx(np.array([0, 0, 3, -0.005]))  # to the goal
    obs[13:16] = 0
    expert.act(obs)
    obs[13:16] = 1
    assert expert.act(obs) == pytest.approx(np.array([0, 0, 0, -0.005]))  # the last phase holds the block


@pytest.mark.parametrize("noise", [1.0, 1.25, 2.0])
def test_the_expert_without_noise_always_succeeds(noise: float) -> None:
    env, expert = FetchPickBatch(1, start_noise=noise, goal_noise=noise), PickExpert(noise=0.0)
    episodes = [run_episode(env, expert, np.random.default_rng(start), 50) for start in range(20)]
    env.close()
    assert all(episode.success for episode in episodes)
    lengths = [len(episode.act) for episode in episodes]
    assert min(lengths) >= 30
    assert max(lengths) <= 45


def test_an_expert_that_does_not_stop_at_success_holds_the_block() -> None:
    expert = PickExpert(noise=0.0, stop_at_success=False)
    env = FetchPickBatch(1, **expert.env_options)
    episode = run_episode(env, expert, np.random.default_rng(0), expert.horizon)
    assert len(episode.act) == 50
    assert episode.obs[-1][3:6] == pytest.approx(episode.obs[-1][13:16], abs=0.02)
    assert np.array(episode.act)[-1] == pytest.approx(np.array([0, 0, 0, -0.005]))
    env.close()


def test_the_experts_noise_does_not_affect_the_fingers() -> None:
    expert, obs = PickExpert(noise=0.1), np.zeros(16)
    moves = list[Doubles]()
    for seed in range(200):
        expert.reset(obs, np.random.default_rng(seed))
        act = expert.act(obs)
        assert act is not None
        moves.append(act)
    assert np.std(moves, axis=0) == pytest.approx(np.array([0.1, 0.1, 0.1, 0]), abs=0.02)
