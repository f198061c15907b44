"""Arguments that several commands share."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from diffclone.cli.console import bars, print_message
from diffclone.cli.sources import is_bundled, load_setting, unknown_data
from diffclone.data import AnyDemonstrations, Demonstrations
from diffclone.data.formats import ReadOptions, describe, has_format_prefix
from diffclone.data.formats.options import NO_OPTIONS, parse_bounds, to_flag
from diffclone.errors import InvalidSettings
from diffclone.experiments.task_settings import find_setting
from diffclone.files import home_folder
from diffclone.fit import open_demonstrations
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.tasks.collected import collect_once
from diffclone.tasks.options import parse_options

DATA_HELP = """Name of a task or a task setting, for its demonstrations; or your own demonstrations: .npz or a folder of
them, .csv, .parquet, .pt, robomimic or D4RL .hdf5, .zarr, minari:ID, lerobot:FOLDER, a Hugging Face dataset."""
RUN_HELP = "Folder of a run, made by `diffclone train`; or of one of its policies, RUN/policy or RUN/snapshots/UPDATE."
DEVICE_HELP = "Device to use: cpu, cuda, cuda:1, mps, or auto for a CUDA GPU if there is one."

Data = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA", help=DATA_HELP)]
RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help=RUN_HELP)]
TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK", help="Name of a task.")]
Device = Annotated[str, tyro.conf.arg(help=DEVICE_HELP)]
Bounds = Annotated[str | None, tyro.conf.arg(metavar="LOW,HIGH")]


@dataclass(frozen=True)
class ReadArguments:
    """How to read a file of demonstrations."""

    obs_keys: tuple[str, ...] = ()
    """Arrays or columns that form the observation, in this order; 'obs_*' stands for all that match."""
    action_keys: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--action-key"])] = ()
    """Arrays or columns that form the action, in this order."""
    episode_key: str | None = None
    """Array or column with the number of the episode of each step."""
    filter_key: str | None = None
    """Subset of the episodes to read, such as train in a robomimic file."""
    action_bounds: Bounds = None
    """Lowest and highest action: -1,1, or with one number per dimension -1,-2:1,2. By default what the file says."""
    action_kind: Literal["continuous"] | None = None
    """Read integer actions as numbers. Without this they are refused, since they are probably discrete."""

    def options(self) -> ReadOptions:
        """Return the options of `read`. A name may also contain several, separated by commas."""
        return ReadOptions(
            obs_keys=tuple(name for entry in self.obs_keys for name in entry.split(",")),
            action_keys=tuple(name for entry in self.action_keys for name in entry.split(",")),
            episode_key=self.episode_key,
            filter_key=self.filter_key,
            action_bounds=None if self.action_bounds is None else parse_bounds(self.action_bounds),
            action_kind=self.action_kind,
        )


Reading = Annotated[ReadArguments, tyro.conf.arg(name="")]


def find_demonstrations(
    data: str, task: str | None = None, options: ReadOptions = NO_OPTIONS
) -> tuple[str | None, Demonstrations]:
    """Return the demonstrations of a task or a file, and the name of the task: `task`, or what the file says."""
    found, demos = open_demonstrations_of(data, task, options, None)
    assert isinstance(demos, Demonstrations)
    return found, demos


def open_demonstrations_of(
    data: str, task: str | None, options: ReadOptions, memory: str | None
) -> tuple[str | None, AnyDemonstrations]:
    """Return the same. A file that does not fit into `memory` is opened to be read in blocks."""
    if is_bundled(data):
        if unused := [to_flag(name) for name in options.given if name != "action_bounds"]:
            raise InvalidSettings(
                f"{', '.join(unused)}: for files of your own; {data} is a task with its own demonstrations."
            )
        if data in TASKS and TASKS[data].collected_on_first_use:
            with bars() as show:
                collect_once(TASKS[data], lambda done, total: show.update(f"collecting {data}", done, total))
        found, demos = (data, TASKS[data].demonstrations()) if data in TASKS else load_setting(data)
        return found, options.apply_bounds(demos)
    if not any(Path(name).exists() for name in (data, data.partition("#")[0])) and not has_format_prefix(data):
        raise unknown_data(data)
    demos = open_demonstrations(data, memory, options)
    if task is not None:
        return find_setting(task).task, demos
    named = demos.meta.get("task")
    return (named if isinstance(named, str) and named in TASKS else None), demos


def absolute_source(data: str) -> str:
    """Return a name for the same demonstrations that is valid in every working directory."""
    prefix, colon, path = data.rpartition(":")
    return prefix + colon + str(Path(path).resolve()) if not is_bundled(data) and Path(path).exists() else data


def parse_values(flag: str, entries: Sequence[str]) -> dict[str, list[float]]:
    """Parse `field=1,2,3`."""
    parsed: dict[str, list[float]] = {}
    for entry in entries:
        name, _, values = entry.partition("=")
        if name in parsed:
            raise InvalidSettings(
                f"{flag} names {name} twice; give all of its values together: {name}=NUMBER,NUMBER,…."
            )
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


def print_contents(source: str, demos: AnyDemonstrations) -> None:
    """Print what was read from a file: its format, and what the demonstrations contain."""
    kind, _, contents = describe(demos).partition(": ")
    print_message(f"{source}: {contents}" if kind == "demonstrations" else f"{source} ({kind}): {contents}")
