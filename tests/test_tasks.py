import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import inspect
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env

from diffclone import Demonstrations
from diffclone.errors import CannotRender, InvalidSettings, MissingPackage
from diffclone.records import Record
from diffclone.tasks import TASKS, Task
from diffclone.tasks.batch import BatchEnv, Rows
from diffclone.tasks.expert import COLLECT_SEEDS
from diffclone.tasks.expert_scores import BUNDLED, score_expert
from diffclone.tasks.spiral import SpiralEnv

ASSETS = Path(str(importlib.resources.files("diffclone.assets")))
ONE: Rows = np.zeros(1, dtype=np.int64)

Doubles = npt.NDArray[np.float64]

every_task = pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in TASKS.items()])


def random_actions(env: BatchEnv, seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(env.act_low, env.act_high, (*shape, len(env.act_low))).astype(np.float32)


def generators(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(row) for row in range(count)]


def options_of(task: Task) -> dict[str, Any]:
    """What may be said to its environments, with their defaults."""
    env = task.make(1)
    env.close()
    parameters = inspect.signature(type(env)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def varied(task: Task) -> dict[str, Any]:
    """Options with which starts differ: Spiral's are all the same unless it is asked."""
    return {"start_noise": 0.1} if task.name == "spiral" else {}


def play(task: Task, seed: int) -> tuple[Doubles, list[tuple[float, bool, bool, bool]]]:
    """Observations and outcomes of one short episode of random actions through Gymnasium."""
    env = gym.make(task.gymnasium_id, **varied(task))
    env.action_space.seed(seed)
    seen, outcomes = [env.reset(seed=seed)[0]], list[tuple[float, bool, bool, bool]]()
    for _ in range(60):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        seen.append(obs)
        outcomes.append((float(reward), terminated, truncated, info["success"]))
        if terminated or truncated:
            break
    env.close()
    return np.array(seen), outcomes


# Environments.


def can_draw(task: Task) -> bool:
    env = gym.make(task.gymnasium_id, render_mode="rgb_array")
    env.reset(seed=0)
    try:
        env.render()
    except CannotRender:
        return False
    finally:
        env.close()
    return True


@every_task
def test_gymnasiums_own_checker_is_content(task: Task) -> None:
    env = gym.make(task.gymnasium_id)  # what its packages say when they are imported is not ours to judge
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for harmless in ("minimum value is -infinity", "maximum value is infinity", "render modes", "unwrapped"):
            warnings.filterwarnings("ignore", message=f".*{harmless}")
        check_env(env.unwrapped, skip_render_check=not can_draw(task))
    env.close()


@every_task
def test_the_same_seed_and_actions_give_the_same_episode(task: Task) -> None:
    (first, outcomes), (again, outcomes_again), (other, _) = (play(task, seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert outcomes == outcomes_again
    assert not np.array_equal(first[0], other[0])


@every_task
def test_a_used_row_begins_like_a_fresh_one(task: Task) -> None:
    used, fresh = task.make(1), task.make(1)
    used.reset(ONE, [np.random.default_rng(1)])
    for act in random_actions(used, 0, 12, 1):
        used.step(ONE, act)
    for env in (used, fresh):
        env.reset(ONE, [np.random.default_rng(2)])
    for act in random_actions(used, 1, 12, 1):
        ours, theirs = used.step(ONE, act), fresh.step(ONE, act)
        assert (ours.reward[0], ours.success[0], ours.ended[0]) == (
            theirs.reward[0],
            theirs.success[0],
            theirs.ended[0],
        )
        assert np.array_equal(used.observe(ONE), fresh.observe(ONE))
    for env in (used, fresh):
        env.close()


@every_task
def test_sizes_and_spaces_agree(task: Task) -> None:
    env, batch = gym.make(task.gymnasium_id), task.make(3)
    obs_space, act_space = env.observation_space, env.action_space
    assert isinstance(obs_space, gym.spaces.Box)
    assert isinstance(act_space, gym.spaces.Box)
    assert env.spec is not None
    assert env.spec.max_episode_steps == task.horizon
    assert obs_space.shape == (task.obs_size,)
    assert act_space.shape == (task.act_size,)
    assert np.array_equal(act_space.low, batch.act_low)
    assert np.array_equal(act_space.high, batch.act_high)
    assert env.reset(seed=0)[0].shape == (task.obs_size,)
    batch.reset(np.arange(3), generators(3))
    assert batch.observe(np.arange(3)).shape == (3, task.obs_size)
    assert batch.count == 3
    batch.close()
    env.close()


@every_task
def test_observations_are_finite_and_keep_their_numbers(task: Task) -> None:
    env, batch = gym.make(task.gymnasium_id), task.make(2)
    env.action_space.seed(0)
    seen = [env.reset(seed=0)[0]]
    seen += [env.step(env.action_space.sample())[0] for _ in range(10)]
    batch.reset(np.arange(2), generators(2))
    for act in random_actions(batch, 0, 10, 2):
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
    count, steps = 5, 25
    together, alone = task.make(count), [task.make(1) for _ in range(count)]
    everyone = np.arange(count)
    together.reset(everyone, generators(count))
    for env, rng in zip(alone, generators(count), strict=True):
        env.reset(ONE, [rng])
    act, chosen = random_actions(together, 1, steps, count), np.random.default_rng(2).random((steps, count)) < 0.6
    for step in range(steps):
        rows = np.random.default_rng(step).permutation(np.flatnonzero(chosen[step]))  # some rows, in any order
        still = np.setdiff1d(everyone, rows)
        before = together.observe(still)
        outcome = together.step(rows, act[step, rows])
        assert np.array_equal(together.observe(still), before)
        assert len(outcome.reward) == len(outcome.success) == len(outcome.ended) == len(rows)
        for place, row in enumerate(rows):
            single = alone[row].step(ONE, act[step, [row]])
            assert outcome.reward[place] == pytest.approx(single.reward[0], abs=1e-12)
            assert (outcome.success[place], outcome.ended[place]) == (single.success[0], single.ended[0])
            np.testing.assert_allclose(together.observe(rows)[place], alone[row].observe(ONE)[0], rtol=0, atol=1e-12)
    for env in (together, *alone):
        env.close()


@every_task
def test_one_picture_shows_something_and_moves_nothing(task: Task) -> None:
    env = gym.make(task.gymnasium_id, render_mode="rgb_array")
    before = env.reset(seed=0)[0]
    try:
        picture: Any = env.render()
    except CannotRender as fault:
        pytest.skip(str(fault))
    finally:
        env.close()
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    assert min(picture.shape[:2]) >= 64
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10
    seen, env = picture.copy(), gym.make(task.gymnasium_id, render_mode="rgb_array")
    assert np.array_equal(env.reset(seed=0)[0], before)
    env.step(env.action_space.sample() * 0)
    assert np.array_equal(picture, seen)  # what was handed out is the caller's
    env.close()


# Options.


WRONG: list[tuple[str, Any, str]] = [
    ("colour", 1.0, "has no option 'colour'; it has "),
    ("start_noise", "much", "start_noise of .* is a number; it was given 'much'"),
    ("start_noise", True, "start_noise of .* is a number; it was given True"),
    ("start_noise", -1.0, r"noise must not be negative.* -1\.0"),
    ("goal_noise", -0.5, r"noise must not be negative.* -0\.5"),
    ("end_on_success", 1.0, r"end_on_success of .* is true or false; it was given 1\.0"),
    ("repeat", 0, "at least one step; repeat is 0"),
    ("repeat", 1.5, r"repeat of .* is a whole number; it was given 1\.5"),
]


@every_task
def test_a_wrong_option_is_one_line(task: Task) -> None:
    tried = [wrong for wrong in WRONG if wrong[0] == "colour" or wrong[0] in options_of(task)]
    assert len(tried) > 1
    for name, value, message in tried:
        refuses(task, name, value, message)


def refuses(task: Task, name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as fault:
        task.make(1, **{name: value})
    assert "\n" not in str(fault.value)
    with pytest.raises(InvalidSettings, match=message):
        gym.make(task.gymnasium_id, **{name: value})


@every_task
def test_every_option_can_be_said(task: Task) -> None:
    defaults = options_of(task)
    env = task.make(2, **defaults)
    env.reset(np.arange(2), generators(2))
    usual = task.make(2)
    usual.reset(np.arange(2), generators(2))
    assert np.array_equal(env.observe(np.arange(2)), usual.observe(np.arange(2)))
    for made in (env, usual):
        made.close()


def test_render_modes_are_two() -> None:
    with pytest.raises(InvalidSettings, match="render_mode may be rgb_array or none; it is 'human'"):
        SpiralEnv(render_mode="human")
    env = gym.make("diffclone/Spiral-v0")
    env.reset(seed=0)
    assert env.unwrapped.render() is None
    env.close()


# Demonstrations.


def starts_of(demos: Demonstrations, env: BatchEnv) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.float32]]]:
    """Each episode, with row 0 of the environment put where it began: tries that were not kept are passed over."""
    tried = 0
    for obs, act in demos.episodes():
        while True:
            assert tried < demos.meta["episodes_tried"], "no try begins like this episode"
            env.reset(ONE, [np.random.default_rng([COLLECT_SEEDS, demos.meta["seed"], tried])])
            tried += 1
            if agree(env.observe(ONE), obs[:1]):
                break
        yield obs, act


def agree(seen: npt.NDArray[Any], recorded: npt.NDArray[Any]) -> bool:
    """Numbers to a thousandth; of pictures, fonts and rounding may differ a little elsewhere."""
    error = np.abs(seen - recorded.astype(np.float64))
    return bool(error.mean(1).max() < 1 if recorded.dtype == np.uint8 else error.max() < 1e-3)


@every_task
def test_recorded_actions_lead_where_they_led_the_expert(task: Task) -> None:
    made_with, here = task.demonstrations().meta["versions"]["mujoco"], importlib.metadata.version("mujoco")
    if made_with != here:
        pytest.skip(f"made with MuJoCo {made_with}; {here} solves contacts otherwise")
    env, whole = task.make(1, **task.expert().env_options), task.metric == "success"
    for _, (obs, act) in zip(range(5), starts_of(task.demonstrations(), env), strict=False):
        seen, success = list[Doubles](), False
        for action in act if whole else act[:50]:
            seen.append(env.observe(ONE)[0])
            success = bool(env.step(ONE, action[None]).success[0])
        assert agree(np.array(seen[:50]), obs[:50])
        assert success or not whole
    env.close()


@every_task
def test_demonstrations_fit_the_task(task: Task) -> None:
    demos, env = task.demonstrations(), task.make(1)
    assert demos.num_episodes == task.episodes
    assert demos.obs.shape[1:] == (task.obs_size,)
    assert demos.act.shape[1:] == (task.act_size,)
    assert demos.lengths.max() <= task.expert().horizon
    assert demos.action_bounds is not None
    assert np.array_equal(demos.action_bounds[0], env.act_low)
    assert np.array_equal(demos.action_bounds[1], env.act_high)
    assert np.isfinite(demos.obs).all()
    assert np.isfinite(demos.act).all()
    env.close()


@every_task
def test_demonstrations_say_where_they_come_from(task: Task) -> None:
    meta = task.demonstrations().meta
    assert meta["task"] == task.name
    assert meta["expert"] == type(task.expert()).__name__
    assert isinstance(meta["seed"], int)
    assert meta["episodes_tried"] >= task.episodes
    assert {"python", "numpy", "diffclone"} <= meta["versions"].keys()
    assert meta["command"].startswith(f"diffclone collect {task.name} ")


def test_assets_are_those_of_the_checksums() -> None:
    listed = dict(line.split(maxsplit=1)[::-1] for line in (ASSETS / "CHECKSUMS").read_text().splitlines())
    listed = {name.removeprefix("*"): digest for name, digest in listed.items()}
    kinds = (".npz", ".safetensors", ".jsonl")
    found = {path.relative_to(ASSETS).as_posix(): path for path in ASSETS.rglob("*") if path.suffix in kinds}
    assert listed.keys() == found.keys()
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == listed


def test_everything_bundled_is_there() -> None:
    trained = ("hand-rotate", "cheetah", "walker", "ant-reach")
    wanted = {f"{name}.npz" for name in TASKS} | {f"experts/{name}.safetensors" for name in trained}
    missing = sorted(name for name in wanted | {"experts.jsonl"} if not (ASSETS / name).exists())
    assert missing == []


# Experts.


@every_task
def test_an_experts_wrong_option_is_one_line(task: Task) -> None:
    with pytest.raises(InvalidSettings, match=f"the expert of '{task.name}' has no option 'colour'; it has noise"):
        task.expert(colour=1.0)
    with pytest.raises(InvalidSettings, match=r"the option noise of .* is a number; it was given 'much'"):
        task.expert(noise="much")


def test_every_expert_has_one_record() -> None:
    records = Record.read_all(BUNDLED)
    assert sorted(record.results["task"] for record in records) == sorted(TASKS)
    assert all(record.kind == "expert" and not record.quick for record in records)
    assert all(record.results["episodes"] >= 100 for record in records)


@pytest.mark.slow
@every_task
def test_an_expert_scores_what_its_record_says(task: Task) -> None:
    (record,) = (record for record in Record.read_all(BUNDLED) if record.results["task"] == task.name)
    told, found = record.results, score_expert(task, task.expert(), record.results["episodes"]).results
    assert record.settings["expert"] == type(task.expert()).__name__
    low, high = told["success_interval" if task.metric == "success" else "return_interval"]
    score = found["success_rate" if task.metric == "success" else "mean_return"]
    assert low <= score <= high
    if task.name in ("maze", "fetch-pick", "spiral"):  # programs, and little that amplifies a rounding
        for name in ("success_rate", "mean_return", "mean_length"):
            assert found[name] == pytest.approx(told[name], rel=1e-6)


@pytest.mark.parametrize("name", ["fetch-pick", "hand-rotate"])
@pytest.mark.parametrize("package", [None, "here"])
def test_a_missing_model_is_one_line(
    name: str, package: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TASKS[name].make(1).close()
    find, spec = importlib.util.find_spec, None
    if package is not None:
        spec = ModuleSpec(package, None, origin=str(tmp_path / "__init__.py"))

    def find_spec(module: str) -> ModuleSpec | None:
        return spec if module == "gymnasium_robotics" else find(module)

    monkeypatch.setattr("diffclone.tasks.simulation.importlib.util.find_spec", find_spec)
    with pytest.raises(MissingPackage, match=rf"the task '{name}' needs .*(not installed|is missing)") as fault:
        TASKS[name].make(1)
    assert "\n" not in str(fault.value)
