import hashlib
import importlib.resources
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from diffclone import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.tasks import TASKS, Task
from diffclone.tasks.batch import BatchEnv
from diffclone.tasks.expert import collect
from diffclone.tasks.maze import CELLS, MazeBatch
from diffclone.tasks.maze_expert import WaypointExpert, shortest_way

ASSETS = Path(str(importlib.resources.files("diffclone.assets")))
AUTHORS_MAZE = Path(__file__).parents[2] / "shared/demos/maze.pt"

Doubles = npt.NDArray[np.float64]

every_task = pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in TASKS.items()])


def random_actions(env: BatchEnv, seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(env.act_low, env.act_high, (*shape, len(env.act_low))).astype(np.float32)


def generators(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(row) for row in range(count)]


def play(task: Task, seed: int) -> tuple[Doubles, list[tuple[float, bool, bool, bool]]]:
    """Observations and outcomes of one short episode of random actions through Gymnasium."""
    env = gym.make(task.gymnasium_id)
    env.action_space.seed(seed)
    seen, outcomes = [env.reset(seed=seed)[0]], list[tuple[float, bool, bool, bool]]()
    for _ in range(60):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        seen.append(obs)
        outcomes.append((float(reward), terminated, truncated, info["success"]))
        if terminated:
            break
    env.close()
    return np.array(seen), outcomes


# Every task.


@every_task
def test_gymnasiums_own_checker_is_content(task: Task) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for harmless in ("minimum value is -infinity", "maximum value is infinity", "render modes", "unwrapped"):
            warnings.filterwarnings("ignore", message=f".*{harmless}")
        env = gym.make(task.gymnasium_id)
        check_env(env.unwrapped)
        env.close()


@every_task
def test_the_same_seed_and_actions_give_the_same_episode(task: Task) -> None:
    (first, outcomes), (again, outcomes_again), (other, _) = (play(task, seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert outcomes == outcomes_again
    assert not np.array_equal(first[0], other[0])


@every_task
def test_sizes_spaces_and_demonstrations_agree(task: Task) -> None:
    env, batch, demos = gym.make(task.gymnasium_id), task.make(3), task.demonstrations()
    obs_space, act_space = env.observation_space, env.action_space
    assert isinstance(obs_space, gym.spaces.Box)
    assert isinstance(act_space, gym.spaces.Box)
    assert env.spec is not None
    assert env.spec.max_episode_steps == task.horizon
    assert obs_space.shape == (task.obs_size,) == demos.obs.shape[1:]
    assert act_space.shape == (task.act_size,) == demos.act.shape[1:]
    assert env.reset(seed=0)[0].shape == (task.obs_size,)
    batch.reset(np.arange(3), generators(3))
    assert batch.observe(np.arange(3)).shape == (3, task.obs_size)
    assert batch.count == 3
    assert demos.action_bounds is not None
    for low, high in ((act_space.low, act_space.high), demos.action_bounds):
        assert np.array_equal(low, batch.act_low)
        assert np.array_equal(high, batch.act_high)
    assert np.all((demos.act >= batch.act_low) & (demos.act <= batch.act_high))
    batch.close()
    env.close()


@every_task
def test_observations_are_finite_and_keep_their_numbers(task: Task) -> None:
    env, batch = gym.make(task.gymnasium_id), task.make(2)
    env.action_space.seed(0)
    seen = [env.reset(seed=0)[0]]
    seen += [env.step(env.action_space.sample())[0] for _ in range(20)]
    batch.reset(np.arange(2), generators(2))
    for act in random_actions(batch, 0, 20, 2):
        seen.append(batch.observe(np.arange(2)))
        batch.step(np.arange(2), act)
    assert all(np.isfinite(obs).all() for obs in seen)
    assert not any(np.shares_memory(a, b) for k, a in enumerate(seen) for b in seen[:k])
    # What was handed out is the caller's: writing into it moves nothing.
    before = batch.observe(np.arange(2))
    batch.observe(np.arange(2))[:] = 7
    assert np.array_equal(batch.observe(np.arange(2)), before)
    batch.close()
    env.close()


@every_task
def test_many_rows_and_one_agree(task: Task) -> None:
    count, steps = 7, 40
    together, alone = task.make(count), [task.make(1) for _ in range(count)]
    one, everyone = np.zeros(1, dtype=np.int64), np.arange(count)
    together.reset(everyone, generators(count))
    for env, rng in zip(alone, generators(count), strict=True):
        env.reset(one, [rng])
    act, chosen = random_actions(together, 1, steps, count), np.random.default_rng(2).random((steps, count)) < 0.6
    for step in range(steps):
        rows = np.random.default_rng(step).permutation(np.flatnonzero(chosen[step]))  # some rows, in any order
        still = np.setdiff1d(everyone, rows)
        before = together.observe(still)
        outcome = together.step(rows, act[step, rows])
        assert np.array_equal(together.observe(still), before)
        assert len(outcome.reward) == len(outcome.success) == len(outcome.ended) == len(rows)
        for place, row in enumerate(rows):
            single = alone[row].step(one, act[step, [row]])
            assert outcome.reward[place] == pytest.approx(single.reward[0], abs=1e-12)
            assert (outcome.success[place], outcome.ended[place]) == (single.success[0], single.ended[0])
            np.testing.assert_allclose(together.observe(rows)[place], alone[row].observe(one)[0], rtol=0, atol=1e-12)
    for env in (together, *alone):
        env.close()


def put_into_state(env: BatchEnv, obs: npt.NDArray[Any]) -> None:
    """Begin in every row as it was observed. A new task adds its own way."""
    env.reset(np.arange(env.count), generators(env.count))
    assert isinstance(env, MazeBatch), f"how is a state of {type(env).__name__} restored from an observation?"
    env.simulation.positions[:], env.simulation.velocities[:], env.goals[:] = obs[:, :2], obs[:, 2:4], obs[:, 4:]


@every_task
def test_recorded_actions_lead_where_they_led_the_expert(task: Task) -> None:
    one = np.zeros(1, dtype=np.int64)
    for obs, act in list(task.demonstrations().episodes())[:10]:
        env = task.make(1, **task.expert().env_options)
        put_into_state(env, obs[:1])
        seen, success = list[Doubles](), False
        for action in act:
            seen.append(env.observe(one)[0])
            success = bool(env.step(one, action[None]).success[0])
        env.close()
        np.testing.assert_allclose(np.array(seen[:50]), obs[:50], rtol=0, atol=1e-3)
        assert success


def test_assets_are_those_of_the_checksums() -> None:
    listed = dict(line.split(maxsplit=1)[::-1] for line in (ASSETS / "CHECKSUMS").read_text().splitlines())
    listed = {name.removeprefix("*"): digest for name, digest in listed.items()}
    files = {path.relative_to(ASSETS).as_posix(): path for path in ASSETS.rglob("*.npz")}
    assert {name for name in listed if name.endswith(".npz")} == files.keys()
    assert {name: hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() for name in listed} == listed


@every_task
def test_demonstrations_say_where_they_come_from(task: Task) -> None:
    meta = task.demonstrations().meta
    assert meta["task"] == task.name
    assert meta["expert"] == type(task.expert()).__name__
    assert isinstance(meta["seed"], int)
    assert {"python", "numpy", "diffclone"} <= meta["versions"].keys()
    assert meta["command"].startswith(f"diffclone collect {task.name} ")


# Maze.


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
        ({"start_noise": -1.0}, r"noise must not be negative; it is -1\.0 \(start\)"),
        ({"goal_noise": -0.5}, r"-0\.5 \(goal\)"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as fault:
        TASKS["maze"].make(1, **options)
    assert "\n" not in str(fault.value)
    with pytest.raises(InvalidSettings, match=message):
        gym.make("diffclone/Maze-v0", **options)


@pytest.mark.skipif(not AUTHORS_MAZE.exists(), reason="the authors' demonstrations are not beside the repository")
def test_a_step_is_the_authors_step() -> None:
    data = torch.load(AUTHORS_MAZE, weights_only=True)
    obs, act, after = (data[key].double().numpy() for key in ("obs", "actions", "next_obs"))
    assert len(obs) == 18525
    env = MazeBatch(len(obs))
    put_into_state(env, obs)
    env.step(np.arange(len(obs)), act)
    error = np.abs(env.observe(np.arange(len(obs))) - after).max(1)
    env.close()
    assert np.count_nonzero(error > 1e-5) <= 6  # at walls, where another MuJoCo solved the contact
    assert error.max() < 0.05


@pytest.mark.parametrize("end_on_success", [True, False])
@pytest.mark.parametrize(("distance", "reached"), [(0.5, True), (np.nextafter(0.5, 1), False)])
def test_success_is_at_half_a_cell_and_may_end_the_episode(
    *, distance: float, reached: bool, end_on_success: bool
) -> None:
    env = MazeBatch(1, end_on_success=end_on_success)
    env.reset(ONE, generators(1))
    env.simulation.velocities[:] = 0
    env.simulation.positions[:] = (0.8, 0.8)  # in the middle of a cell, where nothing pushes
    env.goals[:] = (0.8, 0.8 + distance)
    exact = abs(float(env.goals[0, 1]) - 0.8)
    outcome = env.step(ONE, REST)
    assert bool(outcome.success[0]) == (exact <= 0.5) == reached
    assert bool(outcome.ended[0]) == (reached and end_on_success)
    assert outcome.reward[0] == pytest.approx(np.exp(-exact))
    env.goals[:] = 6  # far away: what was solved stays solved, and an episode ends only at the goal
    outcome = env.step(ONE, REST)
    assert (bool(outcome.success[0]), bool(outcome.ended[0])) == (reached, False)
    env.reset(ONE, generators(1))
    assert not env.solved[0]
    env.close()


def test_speed_is_cut_to_five_before_a_step(maze: MazeBatch) -> None:
    after = list[Doubles]()
    for speed in ((50.0, -50.0), (5.0, -5.0), (4.0, -4.0)):
        put_into_state(maze, np.array([[0.8, 0.8, *speed, 6, 6]]))
        maze.step(ONE, REST)
        after.append(maze.observe(ONE)[0, :4])
    assert np.array_equal(after[0], after[1])
    assert np.abs(after[0][2:]).max() <= 5
    assert np.abs(after[2][2:]).max() < 4.5
    # A push may take it beyond the limit until the next step.
    put_into_state(maze, np.array([[0.8, 0.8, 5.0, 0.0, 6, 6]]))
    maze.step(ONE, np.ones((1, 2)))
    assert 5 < maze.observe(ONE)[0, 2] < 5.25


def test_starts_and_goals_lie_around_all_cells() -> None:
    obs = starts(2000)
    for points in (obs[:, :2], obs[:, 4:]):
        cells = np.rint(points)
        assert np.abs(points - cells).max() <= 0.1
        assert np.abs(points - cells).max() > 0.09
        assert {(int(i), int(j)) for i, j in cells} == set(CELLS)
    assert len(CELLS) == 26
    assert obs[:, 2:4].std() == pytest.approx(0.1, rel=0.05)


def test_no_noise_is_exact() -> None:
    start, goal = starts(50, start_noise=0.0), starts(50, goal_noise=0.0)
    assert np.array_equal(start[:, :2], np.rint(start[:, :2]))
    assert not start[:, 2:4].any()
    assert not np.array_equal(start[:, 4:], np.rint(start[:, 4:]))
    assert np.array_equal(goal[:, 4:], np.rint(goal[:, 4:]))
    assert not np.array_equal(goal[:, :2], np.rint(goal[:, :2]))


def test_half_the_coverage_is_half_the_cells() -> None:
    obs = np.rint(starts(1000, coverage=0.5)).astype(int)
    start, goal = ({(int(i), int(j)) for i, j in obs[:, k : k + 2]} for k in (0, 4))
    assert len(start) == len(goal) == 13
    assert start != goal
    assert start | goal <= set(CELLS)


def test_an_episode_is_cut_at_the_horizon() -> None:
    env = gym.make("diffclone/Maze-v0", end_on_success=False)
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, dtype=np.float32))[2:4] for _ in range(400)]
    assert ends == [(False, False)] * 399 + [(False, True)]
    env.close()


@pytest.mark.parametrize(
    ("start", "goal", "way"),
    [
        ((1, 1), (1, 2), [(1, 2)]),
        ((3, 3), (3, 3), []),
        # From the top left the only way to the bottom right leads through the middle.
        ((1, 1), (4, 4), [(1, 2), (2, 2), (3, 2), (3, 3), (3, 4), (4, 4)]),
        ((5, 4), (6, 3), [(5, 3), (6, 3)]),
    ],
)
def test_the_shortest_way(start: tuple[int, int], goal: tuple[int, int], way: list[tuple[int, int]]) -> None:
    assert shortest_way(start, goal) == way


def test_the_expert_without_noise_always_arrives(maze: MazeBatch) -> None:
    expert, lengths = WaypointExpert(noise=0.0), list[int]()
    for start in range(30):
        rng = np.random.default_rng(start)
        maze.reset(ONE, [rng])
        expert.begin(maze.observe(ONE)[0], rng)
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


def test_fresh_demonstrations_are_like_the_authors() -> None:
    demos = collected(20, seed=9)
    assert demos.num_episodes == 20
    assert demos.lengths.min() > 75
    assert demos.lengths.max() < 600
    assert demos.act.std() == pytest.approx(0.74, abs=0.04)
    assert (np.abs(demos.act) == 1).mean() == pytest.approx(1 / 3, abs=0.06)
    for obs, _ in demos.episodes():
        assert np.linalg.norm(obs[-1, :2] - np.rint(obs[-1, 4:])) < 0.25  # a step before it arrives
        assert np.ptp(obs[:, 4:], axis=0).max() == 0


def test_demonstrations_are_of_their_seed() -> None:
    first, again, other = (collected(2, seed).fingerprint for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("episodes", [0, -1])
def test_no_episodes_are_refused(episodes: int) -> None:
    with pytest.raises(InvalidSettings, match=f"at least one episode must be collected; {episodes} were asked for"):
        collected(episodes, seed=0)
