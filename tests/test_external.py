"""Tasks of other packages. Tests that need the packages run in the environment of `make external`, else they skip."""

import importlib.metadata
import json
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import Command, assert_error
from diffclone.errors import CannotRender, MissingPackage
from diffclone.tasks import BUNDLED, EXTERNAL, EXTERNAL_PIXELS, TASKS, Task
from diffclone.tasks.batch import START_SEEDS
from diffclone.tasks.collected import collect_once, demonstrations_path
from diffclone.tasks.mujoco import load_mujoco
from diffclone.testing.tasks import CHECKS

ONE = np.zeros(1, dtype=np.int64)
every_task = pytest.mark.parametrize("task", [*EXTERNAL, *EXTERNAL_PIXELS], ids=lambda task: task.name)


def installed(package: str | None) -> bool:
    try:
        importlib.metadata.version(str(package))
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect into a folder that all tests share and that is removed after them."""
    monkeypatch.setenv("DIFFCLONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def needs(task: Task) -> Task:
    """Skip where the package, or OpenGL for a camera, is missing. Return the task with few demonstrations."""
    if not installed(task.package):
        pytest.skip(f"{task.package} is not installed")
    load_mujoco()  # chooses the renderer, before another package imports MuJoCo
    if task in EXTERNAL_PIXELS:
        try:
            with closing(task.make(1)) as env:
                env.reset_from_seeds(ONE, [0])
        except CannotRender:
            pytest.skip("MuJoCo cannot render")
    return replace(task, episodes=3)


@every_task
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_external_task_passes_the_contract_checks(task: Task, check: Callable[[Task], None]) -> None:
    task = needs(task)
    task.make(1).close()  # warnings of other packages when they are imported do not count
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(task)


FIXED_GOAL = ("metaworld/bin-picking", "metaworld/sweep-into")
"""Tasks in which Meta-World draws the positions of the objects alone."""


@every_task
def test_starts_are_numbered_and_differ_in_objects_and_goal(task: Task) -> None:
    with closing(needs(task).make(1)) as env:
        starts = list[np.ndarray]()
        for seed in (*START_SEEDS.values(), START_SEEDS["evaluation"] + 1, START_SEEDS["evaluation"]):
            env.reset_from_seeds(ONE, [seed])
            starts.append(env.observe(ONE)[0])
    assert np.array_equal(starts[0], starts[-1])
    first = np.array(starts[:-1])
    assert len(np.unique(first, axis=0)) == len(first)
    goal = first if task.name.endswith("-pixels") else first[:, -3:]  # which an image shows
    assert (np.ptp(goal, axis=0) > 0).any() == (task.name not in FIXED_GOAL)


def test_a_camera_shows_what_the_robot_does_not_know_of_itself() -> None:
    task = needs(EXTERNAL_PIXELS[0])
    demos = task.demonstrations()
    assert str(demos.layout) == "image 3 × 64 × 64 and 4 numbers"
    assert demos.meta["observation_keys"] == [["image", 3 * 64 * 64], ["state", 4]]
    first = demos.observe(np.concatenate([[0], demos.episode_ends[:-1]]))
    assert np.ptp(first[:, -4:], axis=0).max() < 0.01
    assert np.ptp(first[:, :-4], axis=0).max() > 100
    assert (first[:, :-4] % 1 == 0).all()


@pytest.mark.parametrize("task", EXTERNAL, ids=lambda task: task.name)  # a camera needs one process
def test_processes_step_the_same_rows(task: Task) -> None:
    task, rows = needs(task), np.arange(4)
    act = np.random.default_rng(0).uniform(-1, 1, (10, 4, task.act_size))
    seen = list[np.ndarray]()
    for processes in (1, 2):
        with closing(task.make(4, processes=processes)) as env:
            env.reset_from_seeds(rows, [5, 6, 7, 8])
            for step in act:
                env.step(rows, step)
            seen.append(env.observe(rows))
    assert np.array_equal(seen[0], seen[1])


@every_task
def test_demonstrations_are_collected_once_and_only_of_successes(task: Task) -> None:
    task = needs(task)
    done = list[int]()
    path = collect_once(task, lambda count, total: done.append(count))
    demos, again = task.demonstrations(), task.demonstrations()
    assert demos.fingerprint == again.fingerprint
    assert demos.num_episodes == 3
    assert demos.meta["task"] == task.name
    assert demos.meta["episodes_tried"] >= 3
    assert demos.meta["versions"][str(task.package)] == importlib.metadata.version(str(task.package))
    when = path.stat().st_mtime_ns
    collect_once(task, lambda count, total: pytest.fail("collected twice"))
    assert path.stat().st_mtime_ns == when
    with closing(task.make(1)) as env:  # recorded actions solve the task from the recorded starts
        act, first = demos.act[: demos.episode_ends[0]], demos.observe(slice(0, 1))[0]
        for tried in range(demos.meta["episodes_tried"]):
            env.reset(ONE, [np.random.default_rng([START_SEEDS["demonstrations"], 0, tried])])
            if np.allclose(env.observe(ONE)[0], first, atol=1e-5):
                break
        outcomes = [env.step(ONE, action[None]) for action in act]
    assert [bool(outcome.success[0]) for outcome in outcomes] == [False] * (len(act) - 1) + [True]


def test_the_name_of_the_file_has_all_that_demonstrations_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffclone.tasks.collected.version", lambda package: {"mujoco": "9.9"}.get(package, "1.2"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    task = next(task for task in EXTERNAL if task.package == "metaworld")
    name = f"{task.name.replace('/', '-')}-{task.episodes}-episodes-metaworld-1.2-mujoco-9.9.npz"
    assert demonstrations_path(task).name == name
    assert demonstrations_path(replace(task, episodes=7)).name != name


OWN_ENVIRONMENT = r"environment of its own.*diffclone\[external\]"
HOW_TO_INSTALL = {
    "metaworld": OWN_ENVIRONMENT,
    "ogbench": OWN_ENVIRONMENT,
    "gymnasium-robotics": r"Try: pip install .*\[tasks\]",
}


@pytest.mark.parametrize("task", [task for task in EXTERNAL if not installed(task.package)], ids=lambda task: task.name)
def test_a_missing_package_is_one_line(task: Task, diffclone: Command, tmp_path: Path) -> None:
    for use in (lambda: task.make(1), task.expert, task.demonstrations):
        with pytest.raises(MissingPackage, match=rf"{task.package}.*{HOW_TO_INSTALL[str(task.package)]}") as e:
            use()
        assert "\n" not in str(e.value)
    assert_error(diffclone("train", task.name, "--out", tmp_path / "run"), str(task.package))


def test_external_tasks_are_listed_apart(diffclone: Command) -> None:
    rows = {row["task"]: row for row in json.loads(diffclone("tasks", "--json").out)}
    assert [rows[task.name]["package"] for task in BUNDLED] == [None] * len(BUNDLED)
    assert {rows[task.name]["package"] for task in EXTERNAL} == set(HOW_TO_INSTALL)
    assert all(rows[task.name]["demonstrations"].endswith("collected on first use") for task in EXTERNAL)
    assert list(rows) == list(TASKS)
    shown = diffclone("tasks")
    assert shown.out.index("Tasks of other packages") > shown.out.index("fetch-pick")
    missing = [package for package in ("metaworld", "ogbench") if not installed(package)]
    assert ("Not installed: " + ", ".join(missing) in shown.err) == bool(missing)
