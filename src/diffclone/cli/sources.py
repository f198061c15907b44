"""Find what the arguments of a command name: a policy, the place where it acts, bundled demonstrations."""

import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile, InvalidSettings, UnknownName
from diffclone.evaluation import is_environment_id
from diffclone.experiments.task_settings import TASK_SETTINGS, find_setting
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training.runs import Run


@final
@dataclass(frozen=True)
class Place:
    """Where a policy acts: a task or a Gymnasium environment, with options."""

    name: str
    """Name of a task, or a Gymnasium id."""
    options: Mapping[str, Any]
    """Options of the environment, those of a task setting."""


@final
@dataclass(frozen=True)
class PolicySource:
    """The folder of a policy: of a run, of a snapshot of a run, or one that `Policy.save` wrote."""

    folder: Path
    """The folder with config.json; that of the run for a policy of a run."""
    run: Run | None = None
    snapshot: int | None = None
    """Update of the snapshot; None: the trained policy."""

    def load(self, device: str = "cpu") -> Policy:
        """Read the policy, with its guide if it belongs to a run."""
        if self.run is None:
            return Policy.load(self.folder, device=device)
        return self.run.policy(device) if self.snapshot is None else self.run.snapshot(self.snapshot, device)

    def evaluations(self) -> list[Record]:
        """Return the Records of the policy's evaluations."""
        if self.run is None or not self.run.records.exists():
            return []
        records = [record for record in Record.read_all(self.run.records) if record.kind == "evaluation"]
        return [record for record in records if record.results.get("snapshot") == self.snapshot]

    def place(self, policy: Policy) -> Place | None:
        """Return where the policy was trained to act; None if its data do not say so."""
        meta: Any = policy.data.get("meta") or {}
        task = meta.get("task") if self.run is None else self.run.identity()["task"]
        if isinstance(task, str) and task in TASKS:
            setting: Any = meta.get("setting")
            same = isinstance(setting, str) and setting in TASK_SETTINGS and TASK_SETTINGS[setting].task == task
            return find_place(setting if same else task)
        env = meta.get("environment")
        return Place(env, {}) if is_registered(env) else None


def find_policy(path: Path, snapshot: int | None = None) -> PolicySource:
    """Return the policy that a folder contains: a run, `RUN/policy`, `RUN/snapshots/UPDATE`, or a saved policy."""
    folder = path if path.name not in ("", "..") else path.resolve()
    if not (folder / "run.json").exists() and (folder / "config.json").exists():
        for run, update in ((folder.parent, None), (folder.parent.parent, folder.name)):
            inside = folder.name == "policy" if update is None else folder.parent.name == "snapshots"
            if inside and (run / "run.json").exists():
                if update is not None and not update.isdecimal():
                    raise InvalidFile(f"{path} is no snapshot: {update!r} is not the number of an update.")
                if update is not None and snapshot not in (None, int(update)):
                    raise InvalidSettings(
                        f"{path} is the snapshot of update {update}; leave out --snapshot {snapshot}."
                    )
                return PolicySource(run, Run(run), snapshot if update is None else int(update))
        if snapshot is not None:
            raise InvalidFile(f"--snapshot is for the folder of a run; {path} is a single policy.")
        return PolicySource(folder)
    if folder.is_file():
        raise InvalidFile(f"{path} is a file. Give the folder of a run; an exported policy belongs to one.")
    if not folder.exists():
        raise InvalidFile(f"{path} is not a run: there is no such folder{suggest_path(path)}")
    return PolicySource(folder, Run(folder), snapshot)


def choose_place(source: PolicySource, policy: Policy, task: str | None, env: str | None) -> Place:
    """Return the place that the flags --task and --env name, or the one that the policy was trained for."""
    place = named_place(task, env) or source.place(policy)
    if place is None:
        raise InvalidSettings(
            f"{source.folder} was trained on a file of no known task; add --env ID for a Gymnasium environment, such "
            "as --env Pendulum-v1, or --task NAME for a bundled task."
        )
    return place


def named_place(task: str | None, env: str | None) -> Place | None:
    """Return the place that the flags --task and --env name; None without them."""
    if task is not None and env is not None:
        raise InvalidSettings("--task and --env exclude each other; choose one.")
    if env is not None:
        if env not in TASKS and not is_environment_id(env):
            near = nearest(env, registered_ids())
            hint = (
                f"; did you mean {near}?" if near else ". An ID is Pendulum-v1, or package:Name-v0 to import a package."
            )
            raise InvalidSettings(f"{env} is no Gymnasium environment{hint}")
        return Place(env, {})
    if task is not None and task not in TASKS and task not in TASK_SETTINGS and is_environment_id(task):
        raise InvalidSettings(f"{task} is no bundled task. For a Gymnasium environment use --env {task}.")
    return None if task is None else find_place(task)


def find_place(name: str) -> Place:
    """Return a task, or the task of a setting with its options."""
    setting = find_setting(name)
    return Place(setting.task, setting.make_task_options())


def is_registered(env: object) -> bool:
    """Return whether this is the id of a Gymnasium environment that is known without importing another package."""
    return isinstance(env, str) and env in registered_ids()


def registered_ids() -> list[str]:
    """Return the ids of the Gymnasium environments that are known without importing another package."""
    if importlib.util.find_spec("gymnasium") is None:
        return []
    import gymnasium

    return list(gymnasium.registry)


def is_bundled(data: str) -> bool:
    """Return whether this names bundled demonstrations: of a task or of a task setting."""
    return data in TASKS or data in TASK_SETTINGS


def load_setting(name: str) -> tuple[str, Demonstrations]:
    """Return the task and the demonstrations of a task setting. Their metadata name the setting, for `evaluate`."""
    setting = TASK_SETTINGS[name]
    demos = setting.load_demonstrations()
    return setting.task, replace(demos, meta={**demos.meta, "setting": name})


def unknown_data(data: str) -> UnknownName | InvalidFile:
    """Return the error for demonstrations that are neither a file nor bundled."""
    path = Path(data)
    hint, near = nearest_path(path), nearest(data, (*TASKS, *TASK_SETTINGS))
    if hint and not (near and similarity(data, near) > max(similarity(data, hint), similarity(data, Path(hint).stem))):
        return InvalidFile(f"no such file: {data}; did you mean {hint}?")
    if path.suffix or path.name != data:
        return InvalidFile(f"no such file: {data}.")
    hint = f"; did you mean the task {near!r}?" if near else "."
    return UnknownName(f"no file and no task is named {data!r}{hint} Tasks: {', '.join(sorted(TASKS))}.")


def suggest_path(path: Path) -> str:
    """Return the end of a message about a path that does not exist."""
    hint = nearest_path(path)
    return f"; did you mean {hint}?" if hint else ". Make one with: diffclone train."


def nearest_path(path: Path) -> str | None:
    """Return the most similar path that exists in the same folder, with or without its ending."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return None
    by_name = {Path(name).stem: name for name in names} | {name: name for name in names}
    near = nearest(path.name, by_name)
    return None if near is None else str(path.with_name(by_name[near]))


def similarity(a: str, b: str) -> float:
    """Return how similar two names are, from 0 to 1."""
    return difflib.SequenceMatcher(None, a, b).ratio()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar name."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)
