"""What a sweep tries: the method, the values of its fields, and how trials are scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, final

from diffclone.errors import InvalidSettings
from diffclone.experiments.task_settings import find_setting
from diffclone.model import Method
from diffclone.settings import to_dict
from diffclone.training.members import replace_fields


@final
@dataclass(frozen=True, eq=False)
class SweepOptions:
    """What is tried, and how it is scored."""

    method: Method[Any]
    """With the longest training."""
    over: Mapping[str, Sequence[Any]]
    """Values of each field; all combinations are tried."""
    snapshots: tuple[int, ...]
    seeds: tuple[int, ...] = (0, 1)
    task: str | None = None
    """Score by episodes of this task or task setting from validation starts."""
    episodes: int = 20
    reduction: float = 2.0
    """ASHA keeps one of this many trials at each snapshot; 1 keeps all."""


def configure(options: SweepOptions, fields: Mapping[str, Any]) -> Method[Any]:
    """Return the method of a trial."""
    for name in fields:
        if not has_field(options.method, name):
            raise InvalidSettings(f"--over names a field that {type(options.method).__name__} does not have: {name}.")
    try:
        return replace_fields(options.method, fields)
    except (AttributeError, TypeError) as error:
        given = ", ".join(f"{name}={value}" for name, value in fields.items())
        raise InvalidSettings(f"--over gives a value that its field does not take: {given} ({error}).") from None


def has_field(settings: Any, name: str) -> bool:
    """Return whether settings have a field; a dot separates the names of nested fields."""
    outer, dot, inner = name.partition(".")
    known = is_dataclass(settings) and outer in {field.name for field in dataclass_fields(settings)}
    return known and (not dot or has_field(getattr(settings, outer), inner))


def check_options(options: SweepOptions) -> None:
    """Refuse what could only fail in the trials."""
    if options.task is not None:
        find_setting(options.task)
    last, tried = max(options.snapshots), [options.method]
    for name, values in options.over.items():
        methods = [configure(options, {name: value}) for value in values]
        known = [to_dict(method) for method in methods]
        if twice := [str(value) for k, value in enumerate(values) if known[k] in known[:k]]:
            raise InvalidSettings(f"--over gives {name} the value {twice[0]} twice; give each value once.")
        tried += methods
    for method in tried:
        if method.training.updates < last:
            raise InvalidSettings(
                f"the last snapshot is update {last:,}; with training.updates={method.training.updates} a trial ends "
                "before it. Leave training.updates out of --over: a trial trains up to the last of --snapshots."
            )
        if options.task is None and method.chunks.has_memory:
            raise InvalidSettings(
                "without --task, trials are compared by the errors of single actions, which need horizon 1 and history "
                f"1; these have {method.horizon} and {method.history}. Add --task NAME, or set both to 1."
            )
