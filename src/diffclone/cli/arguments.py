"""Arguments that several commands share: demonstrations, members, paths, settings flags."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.data import Demonstrations
from diffclone.data.formats import has_format_prefix
from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]


def find_demonstrations(data: str, task: str | None) -> tuple[str | None, Demonstrations]:
    """Bundled ones by a task's name, or whatever `Demonstrations.load` reads; and their task, if that is known."""
    if data in TASKS:
        return data, TASKS[data].demonstrations()
    if not Path(data).exists() and not Path(data).suffix and not has_format_prefix(data):
        TASKS[data]  # neither a file nor a task: the nearest task is named
    demos = Demonstrations.load(data)
    name = task or demos.meta.get("task")
    return (None if name is None else TASKS[name].name), demos


def absolute_source(data: str) -> str:
    """Return a name for the same demonstrations that is valid in every working directory."""
    prefix, colon, path = data.rpartition(":")
    return prefix + colon + str(Path(path).resolve()) if data not in TASKS and Path(path).exists() else data


def parse_values(flag: str, entries: Sequence[str]) -> dict[str, list[float]]:
    """`field=1,2,3` to its values."""
    parsed: dict[str, list[float]] = {}
    for entry in entries:
        name, _, values = entry.partition("=")
        try:
            parsed[name] = [float(value) for value in values.split(",")]
        except ValueError:
            raise InvalidSettings(f"{flag} takes FIELD=NUMBER,NUMBER,…; it was given {entry!r}.") from None
    return parsed


def choose_members(policy: Policy, where: Mapping[str, Sequence[float]]) -> Policy:
    """The members whose fields have one of these values."""
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
    """Where trained guides are kept."""
    if chosen := os.environ.get("DIFFCLONE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffclone" / "guides"


def expert_options(options: tuple[str, ...], weights: Path | None) -> dict[str, Any]:
    """As `Task.expert` takes them."""
    return parse_options(options) | ({} if weights is None else {"weights": weights})
