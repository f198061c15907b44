from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
import torch

from diffclone import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.tasks import TASKS
from diffclone.tasks.experts import collect
from diffclone.tasks.maze import CELLS, MazeBatch, WaypointExpert, shortest_path
from diffclone.testing.tasks import generators

AUTHORS_MAZE = Path(__file__).parents[2] / "shared/demos/maze.pt"

Doubles = npt.NDArray[np.float64]


def put_into_state(env: MazeBatch, obs: npt.NDArray[Any]) -> None:
    """Set every row to an observed state."""
    env.reset(np.arange(env.count), generators(env.count))
    env.simulation.positions[:], env.simulation.velocities[:], env.goals[:] = obs[:, :2], obs[:, 2:4], obs[:, 4:]


@pytest.fixture
def maze() -> Iterator[MazeBatch]:
    env = MazeBatch(1)
    yield env
    env.close()


ONE = np.zeros(1, dtype=np.int64)
REST = np.zeros((1, 2))


def starts(count: int, **options: Any) -> Doubles:
    env = MazeBatch(count, **options)
    env.reset(np.arange(count), generators(count))
    obs = env.observe(np.arange(count))
    env.close()
    return obs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 0.0}, r"coverage must leave at least one of 26 cells and be at most 1; it is 0\.0"),
        ({"coverage": 0.03}, r"coverage .* it is 0\.03"),
        ({"coverage": 1.5}, r"coverage .* it is 1\.5"),
        ({"coverage": float("nan")}, "coverage .* it is nan"),
    ],
)
def test_a_wrong_coverage_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as error:
        TASKS["maze"].make(1, **options)
    assert "\n" not in str(error.value)
    with pytest.raises(InvalidSettings, match=message):
        gym.make("diffclone/Maze-v0", **options)


@pytest.mark.skipif(not AUTHORS_MAZE.exists(), reason="the authors' demonstrations are not available")
def test_a_step_matches_the_authors_data() -> None:
    data = torch.load(AUTHORS_MAZE, weights_only=True)
    obs, act, after = (data[key].double().numpy() for key in ("obs", "actions", "next_obs"))
    assert len(obs) == 18525
    env = MazeBatch(len(obs))
    put_into_state(env, obs)
    env.step(np.arange(len(obs)), act)
    error = np.abs(env.observe(np.arange(len(obs))) - after).max(1)
    env.close()
    assert np.count_nonzero(error > 1e-5) <= 6  # at walls, where another version of MuJoCo solved the contact
    assert error.max() < 0.05


@pytest.mark.parametrize("end_on_success", [True, False])
@pytest.mark.parametrize(("distance", "reached"), [(0.5, True), (np.nextafter(0.5, 1), False)])
def test_success_is_at_half_a_cell_and_may_end_the_episode(
    *, distance: float, reached: bool, end_on_success: bool
) -> None:
    env = MazeBatch(1, end_on_success=end_on_success)
    env.reset(ONE, generators(1))
    env.simulation.velocities[:] = 0
    env.simulation.positions[:] = (0.8, 0.8)  # the centre of a cell, without contacts
    env.goals[:] = (0.8, 0.8 + distance)
    exact = abs(float(env.goals[0, 1]) - 0.8)
    outcome = env.step(ONE, REST)
    assert bool(outcome.success[0]) == (exact <= 0.5) == reached
    assert bool(outcome.ended[0]) == (reached and end_on_success)
    assert outcome.reward[0] == pytest.approx(np.exp(-exact))
    env.goals[:] = 6  # far away: a solved row stays solved, and the episode ends only at the goal
    outcome = env.step(ONE, REST)
    assert (bool(outcome.success[0]), bool(outcome.ended[0])) == (reached, False)
    env.reset(ONE, generators(1))
    assert not env.solved[0]
    env.close()


def test_speed_is_clipped_to_five_before_a_step(maze: MazeBatch) -> None:
    after = list[Doubles]()
    for speed in ((50.0, -50.0), (5.0, -5.0), (4.0, -4.0)):
        put_into_state(maze, np.array([[0.8, 0.8, *speed, 6, 6]]))
        maze.step(ONE, REST)
        after.append(maze.observe(ONE)[0, :4])
    assert np.array_equal(after[0], after[1])
    assert np.abs(after[0][2:]).max() <= 5
    assert np.abs(after[2][2:]).max() < 4.5
    # The force may increase it beyond the limit until the next step.
    put_into_state(maze, np.array([[0.8, 0.8, 5.0, 0.0, 6, 6]]))
    maze.step(ONE, np.ones((1, 2)))
    assert 5 < maze.observe(ONE)[0, 2] < 5.25


def test_starts_and_goals_are_around_all_cells() -> None:
    obs = starts(2000)
    for points in (obs[:, :2], obs[:, 4:]):
        cells = np.rint(points)
        assert np.abs(points - cells).max() <= 0.1
        assert np.abs(points - cells).max() > 0.09
        assert {(int(i), int(j)) for i, j in cells} == set(CELLS)
    assert len(CELLS) == 26
    assert obs[:, 2:4].std() == pytest.approx(0.1, rel=0.05)


def test_without_noise_starts_and_goals_are_at_cells() -> None:
    start, goal = starts(50, start_noise=0.0), starts(50, goal_noise=0.0)
    assert np.array_equal(start[:, :2], np.rint(start[:, :2]))
    assert not start[:, 2:4].any()
    assert not np.array_equal(start[:, 4:], np.rint(start[:, 4:]))
    assert np.array_equal(goal[:, 4:], np.rint(goal[:, 4:]))
    assert not np.array_equal(goal[:, :2], np.rint(goal[:, :2]))


def test_coverage_is_the_fraction_of_cells() -> None:
    obs = np.rint(starts(1000, coverage=0.5)).astype(int)
    start, goal = ({(int(i), int(j)) for i, j in obs[:, k : k + 2]} for k in (0, 4))
    assert len(start) == len(goal) == 13
    assert start != goal
    assert start | goal <= set(CELLS)


def test_an_episode_is_truncated_at_the_horizon() -> None:
    env = gym.make("diffclone/Maze-v0", end_on_success=False)
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, dtype=np.float32))[2:4] for _ in range(400)]
    assert ends == [(False, False)] * 399 + [(False, True)]
    env.close()


@pytest.mark.parametrize(
    ("start", "goal", "path"),
    [
        ((1, 1), (1, 2), [(1, 2)]),
        ((3, 3), (3, 3), []),
        # From the top left, the only path to the bottom right goes through the middle.
        ((1, 1), (4, 4), [(1, 2), (2, 2), (3, 2), (3, 3), (3, 4), (4, 4)]),
        ((5, 4), (6, 3), [(5, 3), (6, 3)]),
    ],
)
def test_the_shortest_path(start: tuple[int, int], goal: tuple[int, int], path: list[tuple[int, int]]) -> None:
    assert shortest_path(start, goal) == path


def test_the_expert_without_noise_always_arrives(maze: MazeBatch) -> None:
    expert, lengths = WaypointExpert(noise=0.0), list[int]()
    for start in range(30):
        rng = np.random.default_rng(start)
        maze.reset(ONE, [rng])
        expert.reset(maze.observe(ONE)[0], rng)
        for steps in range(600):
            act = expert.act(maze.observe(ONE)[0])
            if act is None:
                assert maze.solved[0] or steps == 0
                lengths.append(steps)
                break
            maze.step(ONE, act[None])
    assert len(lengths) == 30


def collected(episodes: int, seed: int) -> Demonstrations:
    env = TASKS["maze"].make(1, **WaypointExpert.env_options)
    demos = collect(env, WaypointExpert(), episodes, seed=seed)
    env.close()
    return demos


def test_new_demonstrations_have_the_statistics_of_the_authors() -> None:
    demos = collected(20, seed=9)
    assert demos.num_episodes == 20
    assert demos.lengths.min() > 75
    assert demos.lengths.max() < 600
    assert demos.act.std() == pytest.approx(0.74, abs=0.04)
    assert (np.abs(demos.act) == 1).mean() == pytest.approx(1 / 3, abs=0.06)
    for obs, _ in demos.episodes():
        assert np.linalg.norm(obs[-1, :2] - np.rint(obs[-1, 4:])) < 0.25  # one step before it arrives
        assert np.ptp(obs[:, 4:], axis=0).max() == 0


def test_the_same_seed_gives_the_same_demonstrations() -> None:
    first, again, other = (collected(2, seed).fingerprint for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("episodes", [0, -1])
def test_collecting_fewer_than_one_episode_is_refused(episodes: int) -> None:
    with pytest.raises(InvalidSettings, match=f"at least one episode must be collected; {episodes} were requested"):
        collected(episodes, seed=0)


def test_the_bundled_actions_are_within_bounds() -> None:
    assert np.abs(TASKS["maze"].demonstrations().act).max() <= 1
