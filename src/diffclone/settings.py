"""Settings as JSON and back: a settings object is the config, and a line of JSON is the object."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from diffclone.errors import InvalidSettings
from diffclone.registry import Registry


def to_dict(value: Any, *registries: Registry[Any]) -> Any:
    """A settings object as plain values; an object of a registered class carries its name as `type`."""
    if isinstance(value, tuple):
        return list(value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {f.name: to_dict(getattr(value, f.name), *registries) for f in dataclasses.fields(value)}
    for registry in registries:
        if type(value) in registry.values():
            return {"type": registry.name_of(type(value)), **fields}
    return fields


def from_dict(cls: Any, values: Mapping[str, Any], *registries: Registry[Any]) -> Any:
    """The inverse of `to_dict`. `cls` may be a base class where the values carry a `type`."""
    values = dict(values)
    if name := values.pop("type", None):
        base = get_origin(cls) or cls
        registry = next(r for r in registries if all(issubclass(entry, base) for entry in r.values()))
        cls = registry[name]
    hints = get_type_hints(cls)
    if unknown := sorted(set(values) - set(hints)):
        raise InvalidSettings(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(hints)}.")
    for key, value in values.items():
        if isinstance(value, Mapping):
            settings = next((t for t in get_args(hints[key]) if dataclasses.is_dataclass(t)), hints[key])
            values[key] = from_dict(settings, value, *registries)
        elif isinstance(value, list):
            values[key] = tuple(value)
    return cls(**values)


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as `path: a != b`."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        keys = [*a, *(key for key in b if key not in a)]
        return [d for k in keys for d in differences(a.get(k), b.get(k), f"{path}.{k}" if path else str(k))]
    return [] if a == b else [f"{path}: {a} != {b}"]
