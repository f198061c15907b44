"""Arguments that several commands share."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.data import Demonstrations
from diffclone.data.formats import has_format_prefix
from diffclone.errors import InvalidSettings
from diffclone.files import home_folder
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options

DATA_HELP = """Name of a task, for its bundled demonstrations; or your own demonstrations: .npz, .pt, robomimic or D4RL
.hdf5, .zarr, minari:ID, lerobot:FOLDER."""
DEVICE_HELP = "Device to use: cpu, cuda, cuda:1, mps, or auto for a CUDA GPU if there is one."

Data = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA", help=DATA_HELP)]
RunFolder = Annotated[
    tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="Folder of a run, made by `diffclone train`.")
]
TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK", help="Name of a task.")]
Device = Annotated[str, tyro.conf.arg(help=DEVICE_HELP)]


def find_demonstrations(data: str, task: str | None = None) -> tuple[str | None, Demonstrations]:
    """Return the demonstrations of a task or a file, and the name of the task: `task`, or what the file says."""
    if data in TASKS:
        return data, TASKS[data].demonstrations()
    if not Path(data).exists() and not Path(data).suffix and not has_format_prefix(data):
        TASKS[data]  # raises an error that names the nearest task
    demos = Demonstrations.load(data)
    if task is not None:
        return TASKS[task].name, demos
    named = demos.meta.get("task")
    return (named if isinstance(named, str) and named in TASKS else None), demos


def absolute_source(data: str) -> str:
    """Return a name for the same demonstrations that is valid in every working directory."""
    prefix, colon, path = data.rpartition(":")
    return prefix + colon + str(Path(path).resolve()) if data not in TASKS and Path(path).exists() else data


def parse_values(flag: str, entries: Sequence[str]) -> dict[str, list[float]]:
    """Parse `field=1,2,3`."""
    parsed: dict[str, list[float]] = {}
    for entry in entries:
        name, _, values = entry.partition("=")
        try:
            parsed[name] = [float(value) for value in values.split(",")]
        except ValueError:
            parsed[name] = [math.nan]
        if not all(map(math.isfinite, parsed[name])):
            raise InvalidSettings(f"{flag} takes FIELD=NUMBER,NUMBER,…; it was given {entry!r}.")
    return parsed


def choose_members(policy: Policy, where: Mapping[str, Sequence[float]]) -> Policy:
    """Return the members whose fields have one of these values."""
    chosen = [
        m
        for m, member in enumerate(policy.members)
        if all(member.get(name) in values for name, values in where.items())
    ]
    if not chosen:
        fields = ", ".join(policy.members[0])
        raise InvalidSettings(f"no member has {dict(where)}; members differ in {fields}.")
    return policy.choose(chosen)


def guide_cache() -> Path:
    """Return the folder of trained guides."""
    if chosen := os.environ.get("DIFFCLONE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or home_folder("DIFFCLONE_CACHE") / ".cache") / "diffclone" / "guides"


def expert_options(options: tuple[str, ...], weights: Path | None) -> dict[str, Any]:
    """Return the keywords of `Task.expert`."""
    return parse_options(options) | ({} if weights is None else {"weights": weights})
