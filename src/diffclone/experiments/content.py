"""What a number is of. Records are found by what they say, not by a key: those of plain commands count as well."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from diffclone.errors import DiffcloneError
from diffclone.experiments.choices import Options, method_of
from diffclone.experiments.material import Material, identity_of
from diffclone.experiments.specification import DataChanges, Measurement, TableCell, Variant
from diffclone.methods import METHODS
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import from_dict, to_dict

NOTHING = DataChanges()
"""Nothing is done to the demonstrations."""


@final
@dataclass(frozen=True)
class Content:
    """What identifies a number, less how many seeds and episodes it is of."""

    kind: str
    """Of the Record."""
    settings: Mapping[str, Any] | None
    """Of the method, with what varies within a stack put in; none where nothing was trained."""
    data: Mapping[str, Any]
    """The identity of the demonstrations."""
    about: Mapping[str, Any]
    """Task and options, or what was measured."""
    quick: bool

    @property
    def key(self) -> str:
        """To compare by."""
        return json.dumps([self.kind, self.settings, self.data, self.about, self.quick], sort_keys=True)


def cell_content(cell: TableCell, options: Options, material: Material) -> Content:
    """Of a number of a table."""
    about = {"task": cell.variant.task, "options": dict(cell.options), "starts": "evaluation", "protocol": "fixed"}
    settings, data = arm_content(cell.variant, cell.select, options, material)
    return Content("evaluation", settings, data, about, options.quick)


def measure_content(experiment: str, measure: Measurement, options: Options, material: Material) -> Content:
    """Of something else that is measured."""
    about = {"experiment": experiment, "label": measure.label, "measure": plain(dict(measure.settings))}
    if measure.variant is None:
        return Content(measure.kind, None, material.identity(measure.task or "", NOTHING), about, options.quick)
    settings, data = arm_content(measure.variant, measure.select, options, material)
    return Content(measure.kind, settings, data, about, options.quick)


def arm_content(
    arm: Variant, where: Mapping[str, float], options: Options, material: Material
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and demonstrations."""
    method = to_dict(method_of(arm, options.source, quick=options.quick))
    return plain({**method, **where}), material.identity(arm.task, arm.data)


def content_of(record: Record) -> Content | None:
    """What a Record says that it is of; nothing where it is of several things at once."""
    members = record.members
    varied = {key: value for key, value in (members[0] if members else {}).items() if key != "seed"}
    if any({k: v for k, v in member.items() if k != "seed"} != varied for member in members):
        return None
    results = record.results
    data = identity_of(record.data)
    if record.kind == "evaluation" or results.get("what") == "evaluation":
        about = {key: results.get(key) for key in ("task", "options", "starts", "protocol")}
        settings = filled(json.dumps(record.settings))
        kind = "evaluation"
    elif "label" in results:
        about = {key: results.get(key) for key in ("experiment", "label", "measure")}
        method = record.settings.get("method")
        settings = None if method is None else filled(json.dumps(method))
        kind = str(results.get("what", record.kind))
        if method is not None and settings is None:
            return None
        return Content(kind, None if settings is None else {**settings, **varied}, data, about, record.quick)
    else:
        return None
    return None if settings is None else Content(kind, {**settings, **varied}, data, about, record.quick)


@cache
def filled(settings: str) -> dict[str, Any] | None:
    """Settings of an older version, with the fields that came later at their defaults; none if they fit no method."""
    try:
        method: Method[Any] = from_dict(METHODS, json.loads(settings))
    except (DiffcloneError, TypeError, StopIteration):
        return None
    return plain(to_dict(method))


def plain(value: Any) -> Any:
    """As JSON would give it back."""
    return json.loads(json.dumps(value))


@final
class Found:
    """Records by content, the best of each first: most seeds, then most episodes, then the newest."""

    def __init__(self, records: Iterable[Record]):
        self.done: dict[str, list[Record]] = {}
        self.failed: dict[str, list[Record]] = {}
        for record in records:
            content = content_of(record)
            if content is not None:
                (self.failed if record.kind == "failure" else self.done).setdefault(content.key, []).append(record)
        for found in self.done.values():
            found.sort(key=lambda r: (len(r.members), episodes(r), r.when), reverse=True)

    def best(self, content: Content) -> Record | None:
        """Whatever its size."""
        found = self.done.get(content.key)
        return found[0] if found else None

    def suffices(self, content: Content, seeds: Sequence[int], least: int) -> bool:
        """Whether there is one with all these seeds and as many episodes."""
        return any(
            episodes(record) >= least and {*seeds} <= {member["seed"] for member in record.members}
            for record in self.done.get(content.key, [])
        )

    def reason(self, content: Content) -> str | None:
        """Why the latest try failed, if one did."""
        found = self.failed.get(content.key)
        return None if not found else str(max(found, key=lambda r: r.when).results["reason"])


def episodes(record: Record) -> int:
    """A member, as played; 0 where nothing was."""
    return int(record.results.get("episodes") or 0)
