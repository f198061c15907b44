"""Contract checks for a task: every task in `TASKS` passes them, and so should yours."""

import inspect
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.errors import CannotRender, InvalidSettings
from diffclone.tasks import Task
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Outcome
from diffclone.tasks.experts import run_episode

FIRST = np.zeros(1, dtype=np.int64)
TOLERANCE = 1e-12
"""A row alone and the same row in a batch may differ by this much."""
EXPERT_TRIES = 10
HARMLESS = ("minimum value is -infinity", "maximum value is infinity", "render modes", "unwrapped", "symmetric")
"""Warnings of Gymnasium's checker that do not matter here."""


def check_task(task: Task) -> None:
    """Raise `AssertionError` if the task breaks a rule that evaluation, collection and the command line rely on."""
    for check in CHECKS:
        check(task)


def check_sizes(task: Task) -> None:
    """The batch has the sizes and bounds of the task."""
    rows = np.arange(3)
    with closing(task.make(3)) as env:
        require(env.count == 3, task, f"make(3) has {env.count} rows")
        for name, bound in (("act_low", env.act_low), ("act_high", env.act_high)):
            require(bound.shape == (task.act_size,), task, f"{name} has shape {bound.shape}, not ({task.act_size},)")
        require(bool((env.act_low < env.act_high).all()), task, "act_low must be below act_high")
        env.reset(rows, generators(3))
        shape = env.observe(rows).shape
        require(shape == (3, task.obs_size), task, f"three rows are observed as {shape}, not (3, {task.obs_size})")
        for subset in (rows, rows[:0], rows[[2, 0]]):
            outcome = env.step(subset, random_actions(env, 0, len(subset)))
            lengths = {len(outcome.reward), len(outcome.success), len(outcome.ended)}
            require(lengths == {len(subset)}, task, f"a step of {len(subset)} rows returns entries for {lengths}")
            require(bool(np.isfinite(outcome.reward).all()), task, "a reward is not finite")


def check_observations(task: Task) -> None:
    """Observations are finite copies, which the caller may change."""
    rows = np.arange(2)
    with closing(task.make(2)) as env:
        env.reset(rows, generators(2))
        for act in random_actions(env, 0, 10, 2):
            obs = env.observe(rows)
            require(bool(np.isfinite(obs).all()), task, "an observation is not finite")
            before = obs.copy()
            obs[:] = 7
            require(np.array_equal(env.observe(rows), before), task, "changing an observation changes the environment")
            obs = env.observe(rows)
            env.step(rows, act)
            require(np.array_equal(obs, before), task, "a step changes an earlier observation")


def check_seeds(task: Task) -> None:
    """An episode depends on its generator and its actions only, not on earlier episodes in the same row."""
    with closing(task.make(1)) as used, closing(task.make(1)) as fresh:
        used.reset(FIRST, generators(1))
        for act in random_actions(used, 0, 12, 1):
            used.step(FIRST, act)
        for env in (used, fresh):
            env.reset_from_seeds(FIRST, [2])
        compare(task, "a row that was used before", used, fresh)
        for act in random_actions(used, 1, 12, 1):
            outcomes = used.step(FIRST, act), fresh.step(FIRST, act)
            compare(task, "a row that was used before", used, fresh, *outcomes)


def check_rows(task: Task) -> None:
    """A row is the same alone and in a batch, and a step of some rows does not change the others."""
    count, steps = 5, 25
    alone = [task.make(1) for _ in range(count)]
    with closing(task.make(count)) as together:
        everyone = np.arange(count)
        together.reset(everyone, generators(count))
        for env, rng in zip(alone, generators(count), strict=True):
            env.reset(FIRST, [rng])
        act, chosen = random_actions(together, 1, steps, count), np.random.default_rng(2).random((steps, count)) < 0.6
        for step in range(steps):
            rows = np.random.default_rng(step).permutation(np.flatnonzero(chosen[step]))
            others = np.setdiff1d(everyone, rows)
            before = together.observe(others)
            outcome = together.step(rows, act[step, rows])
            require(np.array_equal(together.observe(others), before), task, "a step changes rows it does not name")
            obs = together.observe(rows)
            for k, row in enumerate(rows):
                single = alone[row].step(FIRST, act[step, [row]])
                near = bool(np.abs(obs[k] - alone[row].observe(FIRST)[0]).max() <= TOLERANCE)
                same = (outcome.success[k], outcome.ended[k]) == (single.success[0], single.ended[0])
                near = near and abs(outcome.reward[k] - single.reward[0]) <= TOLERANCE
                require(near and same, task, f"row {row} of a batch differs from the same row alone at step {step}")
    for env in alone:
        env.close()


def check_options(task: Task) -> None:
    """Options have defaults, and an unknown option is refused."""
    parameters = inspect.signature(task.make_batch).parameters.values()
    options = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    rows = np.arange(2)
    with closing(task.make(2, **options)) as explicit, closing(task.make(2)) as default:
        for env in (explicit, default):
            env.reset(rows, generators(2))
        same = np.array_equal(explicit.observe(rows), default.observe(rows))
        require(same, task, "passing the defaults of all options changes the start")
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        try:
            task.make(1, no_such_option=1.0).close()
        except InvalidSettings:
            return
        raise AssertionError(f"{task.name}: an unknown option is not refused.")


def check_gymnasium(task: Task) -> None:
    """The environment passes Gymnasium's own checker, and equals the batch."""
    from gymnasium.utils.env_checker import check_env

    from diffclone.tasks.environment import TaskEnv

    env = TaskEnv(task)
    with warnings.catch_warnings(), closing(env):
        for message in HARMLESS:
            warnings.filterwarnings("ignore", message=f".*{message}")
        check_env(env, skip_render_check=True)
    with closing(TaskEnv(task)) as env, closing(task.make(1)) as batch:
        obs, _ = env.reset(seed=3)
        batch.reset(FIRST, [np.random.default_rng(3)])
        require(np.array_equal(obs, batch.observe(FIRST)[0]), task, "reset(seed=3) differs from the batch's")
        for act in random_actions(batch, 0, 10, 1):
            obs, reward, ended, _, info = env.step(act[0])
            outcome = batch.step(FIRST, act)
            same = (reward, ended, info["success"]) == (outcome.reward[0], outcome.ended[0], outcome.success[0])
            same = same and np.array_equal(obs, batch.observe(FIRST)[0])
            require(bool(same), task, "a step through Gymnasium differs from the batch's")


def check_rendering(task: Task) -> None:
    """Images, if the task renders any, are (height, width, 3) bytes, and rendering changes nothing."""
    with closing(task.make(1)) as env:
        env.reset(FIRST, generators(1))
        before = env.observe(FIRST)
        try:
            image = env.render(0)
        except CannotRender:
            return
        require(image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3, task, "an image is not RGB bytes")
        require(len(np.unique(image.reshape(-1, 3), axis=0)) > 1, task, "an image has a single colour")
        copy = image.copy()
        require(np.array_equal(env.observe(FIRST), before), task, "rendering changes the observation")
        env.step(FIRST, random_actions(env, 0, 1))
        require(np.array_equal(image, copy), task, "a step changes an earlier image")


def check_expert(task: Task) -> None:
    """The expert, if there is one, acts within its horizon and has demonstrations to show."""
    if task.make_expert is None:
        return
    expert = task.expert()
    with closing(task.make(1, **expert.env_options)) as env:
        expert.set_environment(env)
        for k in range(EXPERT_TRIES):
            rng = np.random.default_rng([START_SEEDS["demonstrations"], k])
            episode = run_episode(env, expert, rng, expert.horizon)
            require(len(episode.act) > 0, task, "the expert ends an episode without a step")
            shapes = {act.shape for act in episode.act}
            require(shapes == {(task.act_size,)}, task, f"the expert's actions have the shapes {shapes}")
            if expert.accept_episode(len(episode.act), success=episode.success):
                return
    raise AssertionError(f"{task.name}: the expert accepts none of {EXPERT_TRIES} episodes.")


def check_demonstrations(task: Task) -> None:
    """The demonstrations, if there are any, have the sizes and bounds of the task."""
    try:
        demos = task.demonstrations()
    except InvalidSettings:
        return
    sizes = demos.obs_size, demos.act.shape[1]
    require(sizes == (task.obs_size, task.act_size), task, f"the demonstrations have the sizes {sizes}")
    require(demos.num_episodes == task.episodes, task, f"there are {demos.num_episodes} demonstrations")
    require(bool(np.isfinite(demos.obs).all() and np.isfinite(demos.act).all()), task, "a number is not finite")
    if (bounds := demos.action_bounds) is not None:
        with closing(task.make(1)) as env:
            same = np.array_equal(bounds[0], env.act_low) and np.array_equal(bounds[1], env.act_high)
        require(same, task, "the demonstrations have other action bounds than the environment")


CHECKS: tuple[Callable[[Task], None], ...] = (
    check_sizes,
    check_observations,
    check_seeds,
    check_rows,
    check_options,
    check_gymnasium,
    check_rendering,
    check_expert,
    check_demonstrations,
)


def require(condition: bool, task: Task, message: str) -> None:  # noqa: FBT001
    """Raise `AssertionError` with the task's name."""
    if not condition:
        raise AssertionError(f"{task.name}: {message}.")


def generators(count: int) -> list[np.random.Generator]:
    """Return one random generator per row."""
    return [np.random.default_rng(row) for row in range(count)]


def random_actions(env: BatchEnv, seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Return uniform actions within the bounds, or within ±1 where there is no bound."""
    low = np.where(np.isfinite(env.act_low), env.act_low, -1.0)
    high = np.where(np.isfinite(env.act_high), env.act_high, 1.0)
    return np.random.default_rng(seed).uniform(low, high, (*shape, len(low))).astype(np.float32)


def compare(task: Task, which: str, a: BatchEnv, b: BatchEnv, *outcomes: Outcome) -> None:
    """Require that row 0 of two batches is the same."""
    values: list[Any] = [(o.reward[0], o.success[0], o.ended[0]) for o in outcomes]
    same = np.array_equal(a.observe(FIRST), b.observe(FIRST)) and (not values or values[0] == values[1])
    require(same, task, f"{which} differs from a new one with the same seed and actions")
