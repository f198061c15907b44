"""Demonstrations of tasks of other packages: collected with the task's expert on first use, and kept in a cache.

Starts and noise are seeded, so the same versions of the packages give the same demonstrations. Only episodes that the
expert accepts, which are successes, become demonstrations; `meta["episodes_tried"]` counts all.
"""

import os
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from diffclone.errors import InvalidFile, MissingPackage
from diffclone.files import home_folder
from diffclone.records import versions
from diffclone.tasks.experts import collect
from diffclone.tasks.external import how_to_install
from diffclone.tasks.task import Task

SEED = 0


def collect_once(task: Task, progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """Return the file of a task's demonstrations; collect them first if it does not exist."""
    path = demonstrations_path(task)
    if path.exists():
        return path
    expert = task.expert()
    with closing(task.make(1, **expert.env_options)) as env:
        meta = {
            "task": task.name,
            "expert": type(expert).__name__,
            "versions": versions(),
            "command": f"diffclone collect {task.name} --episodes {task.episodes} --seed {SEED}",
        }
        demos = collect(env, expert, task.episodes, seed=SEED, meta=meta, progress=progress)
    with suppress(InvalidFile):  # another process has collected the same demonstrations meanwhile
        demos.save(path)
    return path


def demonstrations_path(task: Task) -> Path:
    """Return the file of a task's demonstrations, whose name has all that they depend on."""
    assert task.package is not None
    try:
        made_with = [f"{task.package}-{version(task.package)}"]
    except PackageNotFoundError:
        raise MissingPackage(
            f"the task {task.name!r} needs the package {task.package}, which is not installed. "
            f"{how_to_install(task.package)}"
        ) from None
    with suppress(PackageNotFoundError):  # a task of another package may not use MuJoCo
        made_with.append(f"mujoco-{version('mujoco')}")
    name = "-".join([task.name.replace("/", "-"), f"{task.episodes}-episodes", *made_with])
    return demonstrations_cache() / f"{name}.npz"


def demonstrations_cache() -> Path:
    """Return the folder of collected demonstrations."""
    if chosen := os.environ.get("DIFFCLONE_CACHE"):
        return Path(chosen) / "demonstrations"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or home_folder("DIFFCLONE_CACHE") / ".cache")
    return caches / "diffclone" / "demonstrations"
