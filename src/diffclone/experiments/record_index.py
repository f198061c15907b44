"""Find Records by what they contain: the method's settings, the demonstrations, and what was evaluated or measured.

Records of plain `diffclone train` and `diffclone evaluate` are found as well.
"""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidSettings
from diffclone.experiments.presets import variant_method
from diffclone.experiments.specification import DataChanges, Measurement, RunOptions, TableCell, Variant
from diffclone.guides import GUIDES, DiffusionGuide
from diffclone.methods import DBC, METHODS
from diffclone.records import Record
from diffclone.settings import from_dict, set_values, to_dict
from diffclone.tasks import TASKS
from diffclone.training.members import replace_fields

QUICK_PAIRS = 128
"""The most pairs that a quick run generates."""


@final
@dataclass(frozen=True)
class ResultIdentity:
    """What a result was computed from, without the number of seeds and episodes."""

    kind: str
    """The kind of Record."""
    settings: Mapping[str, Any] | None
    """Settings of the method, with the values of varied fields; None if nothing was trained."""
    data: Mapping[str, Any]
    """The identity of the demonstrations."""
    about: Mapping[str, Any]
    """Task and environment options, or what was measured."""
    quick: bool

    @property
    def key(self) -> str:
        """A string that is equal for equal identities."""
        return json.dumps([self.kind, self.settings, self.data, self.about, self.quick], sort_keys=True)


@final
class RecordIndex:
    """Records by identity."""

    def __init__(self, records: Iterable[Record]):
        self.finished: dict[str, list[Record]] = {}
        self.failed: dict[str, list[Record]] = {}
        for record in records:
            if (identity := identify_record(record)) is not None:
                index = self.failed if record.kind == "failure" else self.finished
                index.setdefault(identity.key, []).append(record)

    def best(self, identity: ResultIdentity) -> Record | None:
        """Return the Record with the most seeds, then the most episodes, then the newest."""
        found = self.finished.get(identity.key, [])
        return max(found, key=lambda r: (len(r.members), count_episodes(r), r.when), default=None)

    def covers(self, identity: ResultIdentity, seeds: Sequence[int], episodes: int) -> bool:
        """Return whether a Record has all these seeds and at least this many episodes."""
        return any(
            count_episodes(record) >= episodes and {*seeds} <= {member["seed"] for member in record.members}
            for record in self.finished.get(identity.key, [])
        )

    def failure_reason(self, identity: ResultIdentity) -> str | None:
        """Return why the latest attempt failed, if one did."""
        latest = max(self.failed.get(identity.key, []), key=lambda r: r.when, default=None)
        return None if latest is None else str(latest.results["reason"])


def count_episodes(record: Record) -> int:
    """Return the number of episodes per member; 0 if none were run."""
    return int(record.results.get("episodes") or 0)


def identify_cell(cell: TableCell, options: RunOptions) -> ResultIdentity:
    """Return the identity of a score."""
    about = {"task": cell.variant.task, "options": dict(cell.options), "starts": "evaluation", "protocol": "fixed"}
    settings, data = identify_variant(cell.variant, cell.select, options)
    return ResultIdentity("evaluation", settings, data, about, options.quick)


def identify_measurement(experiment: str, measurement: Measurement, options: RunOptions) -> ResultIdentity:
    """Return the identity of a measurement."""
    about = {"experiment": experiment, "label": measurement.label, "measure": as_json(dict(measurement.settings))}
    if measurement.variant is None:
        settings, data = None, identify_data(measurement.task_name, DataChanges(), options)
    else:
        settings, data = identify_variant(measurement.variant, measurement.select, options)
    return ResultIdentity(measurement.kind, settings, data, about, options.quick)


def identify_variant(
    variant: Variant, select: Mapping[str, float], options: RunOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the selected members, and the identity of their demonstrations."""
    method = replace_fields(variant_method(variant, options), select)
    return as_json(to_dict(method)), identify_data(variant.task, variant.data, options)


def identify_record(record: Record) -> ResultIdentity | None:
    """Return the identity of a Record; None if its members differ in more than the seed, or it is of another kind.

    Evaluations of snapshots have none: their training ended later.
    """
    varied = [{key: value for key, value in member.items() if key != "seed"} for member in record.members] or [{}]
    if any(fields != varied[0] for fields in varied) or "snapshot" in record.results:
        return None
    kind = str(record.results.get("what", record.kind))  # a failure names the kind of the intended Record
    if kind == "evaluation":
        names, method = ("task", "options", "starts", "protocol"), record.settings
    elif "label" in record.results:
        names, method = ("experiment", "label", "measure"), record.settings.get("method")
    else:
        return None
    settings = None
    if method is not None:
        settings = complete_settings("method", json.dumps(set_values(method, varied[0])))
        if settings is None:
            return None
    about = {name: record.results.get(name) for name in names}
    return ResultIdentity(kind, settings, identify_record_data(record.data), about, record.quick)


@cache
def complete_settings(kind: str, settings: str) -> dict[str, Any] | None:
    """Return the settings of a method or guide with the fields of this version; None if it has no such settings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DiffcloneWarning)  # settings that no longer exist are replaced by others
            return as_json(to_dict(from_dict({"method": METHODS, "guide": GUIDES}[kind], json.loads(settings))))
    except (DiffcloneError, DiffcloneWarning):
        return None


def as_json(value: Any) -> Any:
    """Return the value as JSON would read it back: tuples become lists, keys become strings."""
    return json.loads(json.dumps(value))


def load_demonstrations(task: str, changes: DataChanges, options: RunOptions) -> Demonstrations:
    """Return the demonstrations of a task with the changes, but without generated pairs."""
    demos = read_demonstrations(task, options.files.get(task))
    if changes.fraction < 1:
        demos = demos.subsample(changes.fraction)
    return demos.with_action_noise(changes.action_noise) if changes.action_noise else demos


DEMONSTRATIONS: dict[tuple[str, str | None], Demonstrations] = {}
"""Demonstrations that this process has read or was sent, by task and file."""


def read_demonstrations(task: str, file: str | None) -> Demonstrations:
    """Read a file, or the bundled demonstrations, once per process."""
    if (task, file) not in DEMONSTRATIONS:
        loaded = TASKS[task].demonstrations() if file is None else Demonstrations.load(file)
        DEMONSTRATIONS[task, file] = loaded
    return DEMONSTRATIONS[task, file]


def identify_data(task: str, changes: DataChanges, options: RunOptions) -> dict[str, Any]:
    """Return the fingerprint of the demonstrations, or how their generated pairs are made."""
    demos = load_demonstrations(task, changes, options)
    if not changes.generated:
        return {"fingerprint": demos.fingerprint}
    guide = to_dict(generating_guide(task, options))
    made = {"guide": guide, "seed": 0, "demonstrations": demos.fingerprint}
    return {"generated": as_json(made), "steps": count_generated(demos, changes, options)}


def identify_record_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a Record's demonstrations, as `identify_data` does."""
    joined = data.get("meta", {}).get("joined") or [{}]
    generated, steps = joined[-1].get("meta", {}).get("generated"), joined[-1].get("steps")
    if "generated" in data:  # a failure
        generated, steps = data["generated"], data["steps"]
    if generated is None:
        return {"fingerprint": data.get("fingerprint")}
    guide = complete_settings("guide", json.dumps(generated["guide"]))
    return {"generated": {**generated, "guide": guide}, "steps": steps}


def generating_guide(task: str, options: RunOptions) -> DiffusionGuide:
    """Return the diffusion model that generates pairs."""
    method = variant_method(Variant(task, "dbc"), options)
    if not isinstance(method, DBC) or not isinstance(method.guide, DiffusionGuide):
        raise InvalidSettings(f"pairs of {task} cannot be generated: its DBC preset has no diffusion model.")
    return method.guide


def count_generated(demos: Demonstrations, changes: DataChanges, options: RunOptions) -> int:
    """Return the number of pairs to generate."""
    count = round(changes.generated * demos.num_steps)
    return min(count, QUICK_PAIRS) if options.quick else count
