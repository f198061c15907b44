import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import inspect
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

from diffclone import Demonstrations
from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.evaluation import evaluate_expert
from diffclone.records import Record
from diffclone.tasks import BUNDLED, TASKS, Task, register_with_gymnasium
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Doubles, Outcome, Rows
from diffclone.tasks.environment import TaskEnv
from diffclone.tasks.experts import EXPERT_RECORDS
from diffclone.testing.tasks import CHECKS, check_task

ASSETS = Path(str(importlib.resources.files("diffclone.assets")))
ONE: Rows = np.zeros(1, dtype=np.int64)

every_task = pytest.mark.parametrize("task", [pytest.param(task, id=task.name) for task in BUNDLED])


# The contract.


@every_task
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_task_passes_the_contract_checks(task: Task, check: Callable[[Task], None]) -> None:
    task.make(1).close()  # warnings of other packages when they are imported do not count
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(task)


class Counter(BatchEnv):
    """Adds up its actions; the variants below break one rule each."""

    def __init__(self, count: int, *, start_noise: float = 1.0):
        self.count, self.act_low, self.act_high = count, -np.ones(2), np.ones(2)
        self.start_noise, self.sums, self.steps = start_noise, np.zeros((count, 2)), np.zeros(count)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        self.sums[rows] = [self.start_noise * rng.normal(size=2) for rng in rngs]
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        self.sums[rows] += act
        self.steps[rows] += 1
        return Outcome(self.sums[rows].sum(1), self.sums[rows, 0] > 2, self.steps[rows] >= 30)

    def observe(self, rows: Rows) -> Doubles:
        return self.sums[rows]


class WrongSize(Counter):
    def observe(self, rows: Rows) -> Doubles:
        return self.sums[rows, :1]


class NoCopy(Counter):
    def observe(self, rows: Rows) -> Doubles:
        return self.sums[rows[0] : rows[-1] + 1] if len(rows) else self.sums[:0]


class Memory(Counter):
    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        old = self.sums[rows]
        super().reset(rows, rngs)
        self.sums[rows] += 0.01 * old


class Crosstalk(Counter):
    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        self.sums += 0.01 * len(rows)
        return super().step(rows, act)


class NotANumber(Counter):
    def observe(self, rows: Rows) -> Doubles:
        return np.where(self.sums[rows] > 2, np.nan, self.sums[rows])


class GreyImages(Counter):
    def render(self, row: int) -> npt.NDArray[np.uint8]:
        return np.zeros((8, 8, 3), dtype=np.uint8)


COUNTER = Task("counter", "Add up.", obs_size=2, act_size=2, horizon=40, metric="return", make_batch=Counter)


def test_a_users_task_passes_the_contract_checks() -> None:
    check_task(COUNTER)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (WrongSize, r"counter: three rows are observed as \(3, 1\), not \(3, 2\)"),
        (NoCopy, "counter: changing an observation changes the environment"),
        (Memory, "counter: a row that was used before differs from a new one"),
        (Crosstalk, "counter: a step changes rows it does not name"),
        (NotANumber, "counter: an observation is not finite"),
        (GreyImages, "counter: an image has a single colour"),
    ],
)
def test_a_broken_task_fails_the_contract_checks(batch: type[BatchEnv], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_task(replace(COUNTER, make_batch=batch))


# Gymnasium.


@every_task
def test_gymnasium_makes_a_task_with_its_sizes_and_horizon(task: Task) -> None:
    assert task.gymnasium_id is not None
    env, batch = gym.make(task.gymnasium_id), task.make(1)
    obs_space, act_space = env.observation_space, env.action_space
    assert isinstance(obs_space, gym.spaces.Box)
    assert isinstance(act_space, gym.spaces.Box)
    assert env.spec is not None
    assert env.spec.max_episode_steps == task.horizon
    assert obs_space.shape == (task.obs_size,)
    assert np.array_equal(act_space.low, batch.act_low)
    assert np.array_equal(act_space.high, batch.act_high)
    for made in (env, batch):
        made.close()


@every_task
def test_other_seeds_give_other_starts(task: Task) -> None:
    with_noise: dict[str, Any] = {"start_noise": 0.1} if task.name == "spiral" else {}  # Spiral has none by default
    env = TaskEnv(task, **with_noise)
    assert not np.array_equal(env.reset(seed=5)[0], env.reset(seed=6)[0])
    env.close()


def test_render_mode_is_rgb_array_or_none() -> None:
    with pytest.raises(InvalidSettings, match="render_mode must be 'rgb_array' or None; it is 'human'"):
        TaskEnv("spiral", render_mode="human")
    env = gym.make("diffclone/Spiral-v0")
    env.reset(seed=0)
    assert env.unwrapped.render() is None
    env.close()


def test_a_registered_task_is_known_to_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "_entries", {**TASKS})
    task = replace(COUNTER, gymnasium_id="tests/Counter-v0")
    TASKS.register("counter")(task)
    register_with_gymnasium([task])
    env = gym.make("tests/Counter-v0")
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, dtype=np.float32))[2:4] for _ in range(30)]
    assert ends == [(False, False)] * 29 + [(True, False)]
    env.close()
    del gym.registry["tests/Counter-v0"]


def test_importing_tasks_imports_neither_mujoco_nor_torch() -> None:
    code = "import sys, diffclone.tasks; print({'torch', 'mujoco', 'Box2D', 'pygame', 'imageio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Options.


WRONG: list[tuple[str, Any, str]] = [
    ("colour", 1.0, "the task '.*' has no option 'colour'; it has "),
    ("start_noise", "much", "start_noise of .* is a number; it was given 'much'"),
    ("start_noise", True, "start_noise of .* is a number; it was given True"),
    ("start_noise", -1.0, r"start_noise must not be negative; it is -1\.0"),
    ("goal_noise", -0.5, r"goal_noise must not be negative; it is -0\.5"),
    ("end_on_success", 1.0, r"end_on_success of .* is true or false; it was given 1\.0"),
    ("repeat", 0, "at least one step; repeat is 0"),
    ("repeat", 1.5, r"repeat of .* is a whole number; it was given 1\.5"),
]


@every_task
def test_a_wrong_option_is_one_line(task: Task) -> None:
    known = inspect.signature(task.make_batch).parameters
    tried = [wrong for wrong in WRONG if wrong[0] == "colour" or wrong[0] in known]
    assert len(tried) > 1
    assert task.gymnasium_id is not None
    for name, value, message in tried:
        with pytest.raises(InvalidSettings, match=message) as error:
            task.make(1, **{name: value})
        assert "\n" not in str(error.value)
        with pytest.raises(InvalidSettings, match=message):
            gym.make(task.gymnasium_id, **{name: value})


# Demonstrations.


def starts_of(demos: Demonstrations, env: BatchEnv) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.float32]]]:
    """Yield each episode with row 0 of the environment at its start. Starts that were not accepted are skipped."""
    tried = 0
    for obs, act in demos.episodes():
        while True:
            assert tried < demos.meta["episodes_tried"], "no start is that of this episode"
            env.reset(ONE, [np.random.default_rng([START_SEEDS["demonstrations"], demos.meta["seed"], tried])])
            tried += 1
            if agree(env.observe(ONE), obs[:1]):
                break
        yield obs, act


def agree(seen: npt.NDArray[Any], recorded: npt.NDArray[Any]) -> bool:
    """Compare to a thousandth; images may differ slightly in fonts and rounding on another machine."""
    error = np.abs(seen - recorded.astype(np.float64))
    return bool(error.mean(1).max() < 1 if recorded.dtype == np.uint8 else error.max() < 1e-3)


@every_task
def test_recorded_actions_repeat_the_recorded_episode(task: Task) -> None:
    made_with, here = task.demonstrations().meta["versions"]["mujoco"], importlib.metadata.version("mujoco")
    if made_with != here:
        pytest.skip(f"made with MuJoCo {made_with}; {here} solves contacts differently")
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
def test_demonstrations_have_provenance(task: Task) -> None:
    demos = task.demonstrations()
    assert demos.lengths.max() <= task.expert().horizon
    assert demos.action_bounds is not None
    assert demos.meta["task"] == task.name
    assert demos.meta["expert"] == type(task.expert()).__name__
    assert isinstance(demos.meta["seed"], int)
    assert demos.meta["episodes_tried"] >= task.episodes
    assert {"python", "numpy", "diffclone"} <= demos.meta["versions"].keys()
    assert demos.meta["command"].startswith(f"diffclone collect {task.name} ")


def test_a_task_may_lack_expert_and_demonstrations() -> None:
    with pytest.raises(InvalidSettings, match="the task 'counter' has no expert"):
        COUNTER.expert()
    with pytest.raises(InvalidSettings, match="the task 'counter' has no demonstrations"):
        COUNTER.demonstrations()


def test_assets_match_their_checksums() -> None:
    listed = dict(line.split(maxsplit=1)[::-1] for line in (ASSETS / "CHECKSUMS").read_text().splitlines())
    listed = {name.removeprefix("*"): digest for name, digest in listed.items()}
    kinds = (".npz", ".safetensors", ".jsonl")
    found = {path.relative_to(ASSETS).as_posix(): path for path in ASSETS.rglob("*") if path.suffix in kinds}
    assert listed.keys() == found.keys()
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == listed


def test_no_bundled_file_is_missing() -> None:
    trained = ("hand-rotate", "cheetah", "walker", "ant-reach", "adroit-pen")
    wanted = {f"{task.name}.npz" for task in BUNDLED} | {f"experts/{name}.safetensors" for name in trained}
    missing = sorted(name for name in wanted | {"experts.jsonl"} if not (ASSETS / name).exists())
    assert missing == []


# Experts.


@every_task
def test_a_wrong_option_of_an_expert_is_one_line(task: Task) -> None:
    with pytest.raises(InvalidSettings, match=f"the expert of '{task.name}' has no option 'colour'; it has noise"):
        task.expert(colour=1.0)
    with pytest.raises(InvalidSettings, match=r"the option noise of .* is a number; it was given 'much'"):
        task.expert(noise="much")


def test_every_expert_has_one_record() -> None:
    records = Record.read_all(EXPERT_RECORDS)
    assert sorted(record.results["task"] for record in records) == sorted(task.name for task in BUNDLED)
    assert all(record.kind == "expert" and not record.quick for record in records)
    assert all(record.results["episodes"] >= 100 for record in records)


@pytest.mark.slow
@every_task
def test_an_expert_has_the_score_of_its_record(task: Task) -> None:
    (record,) = (record for record in Record.read_all(EXPERT_RECORDS) if record.results["task"] == task.name)
    recorded, found = record.results, evaluate_expert(task, task.expert(), record.results["episodes"]).results
    assert record.settings["expert"] == type(task.expert()).__name__
    low, high = recorded["success_interval" if task.metric == "success" else "return_interval"]
    score = found["success_rate" if task.metric == "success" else "mean_return"]
    assert low <= score <= high
    if task.name in ("maze", "fetch-pick", "spiral"):  # scripts in simulations that amplify rounding errors little
        for name in ("success_rate", "mean_return", "mean_length"):
            assert found[name] == pytest.approx(recorded[name], rel=1e-6)


# Missing packages.


@pytest.mark.parametrize("name", ["fetch-pick", "hand-rotate"])
@pytest.mark.parametrize("package", [None, "here"])
def test_a_missing_model_is_one_line(
    name: str, package: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, spec = importlib.util.find_spec, None
    if package is not None:
        spec = ModuleSpec(package, None, origin=str(tmp_path / "__init__.py"))

    def find_spec(module: str) -> ModuleSpec | None:
        return spec if module == "gymnasium_robotics" else find(module)

    monkeypatch.setattr("diffclone.tasks.mujoco.importlib.util.find_spec", find_spec)
    with pytest.raises(MissingPackage, match=rf"the task '{name}' needs .*(not installed|is missing)") as error:
        TASKS[name].make(1)
    assert "\n" not in str(error.value)


def test_a_missing_mujoco_is_one_line() -> None:
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "from diffclone.errors import MissingPackage\n"
        "from diffclone.tasks import TASKS\n"
        "try:\n    TASKS['maze'].make(1)\n"
        "except MissingPackage as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the task 'maze' cannot be made (")
    assert done.stdout.endswith(f"{install_command('tasks')}.\n")
    assert done.stdout.count("\n") == 1
