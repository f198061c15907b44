"""Settings as JSON values, and back.

A settings object is a frozen dataclass. A method or a guide is stored with its class as `type`: the registered name, or
`module:Class` for a class that is not registered. Reading settings never imports a module that they name.

Settings identify runs, checkpoints and Records, so equal settings must read the same in every version. A field that was
added later is therefore left out while it has the value that its absence means (`added`).
"""

import dataclasses
import math
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from diffclone.errors import InvalidSettings, UnknownName
from diffclone.registry import Registry


def added(absent: Any, *, default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """Return a field that files of older versions lack. They mean the value `absent`, which is also the default if none
    is given.
    """
    value = absent if default is dataclasses.MISSING else default
    return dataclasses.field(default=value, metadata={"absent": absent, **metadata})


def _is_absent(value: Any, field: "dataclasses.Field[Any]") -> bool:
    return (
        "absent" in field.metadata
        and type(value) is type(field.metadata["absent"])
        and value == field.metadata["absent"]
    )


LARGEST = {
    "width": 2**16,
    "depth": 1000,
    "latent": 2**16,
    "steps": 100_000,
    "draws": 10_000,
    "calls": 100_000,
    "horizon": 1000,
    "history": 1000,
    "modes": 10_000,
    "batch": 2**20,
    "counter_examples": 2**16,
    "samples": 2**20,
    "walks": 2**20,
    "blocks": 1000,
}
"""The largest values of fields that give sizes. Anything larger is an error, and could fill the memory of a machine."""


def to_dict(value: Any) -> Any:
    """Return a settings object as plain values."""
    if isinstance(value, tuple):
        return [to_dict(item) for item in cast(tuple[Any, ...], value)]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    present = {field.name: (getattr(value, field.name), field) for field in dataclasses.fields(value)}
    fields = {name: to_dict(item) for name, (item, field) in present.items() if not _is_absent(item, field)}
    registry = _find_registry(type(value))
    return fields if registry is None else {"type": _type_name(type(value), registry), **fields}


def from_dict(kind: Any, values: Any, path: str = "") -> Any:
    """Return the settings object that `to_dict` made `values` of.

    `kind` is a dataclass, or the registry that has the `type` of the values. Values that do not fit the fields of the
    class raise `InvalidSettings`; its message names the field, after `path`.
    """
    return _convert(kind.subclass_of if isinstance(kind, Registry) else kind, values, path)


def set_values(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings with other values; a dot separates the names of nested fields, as in "training.lr"."""
    changed = dict(settings)
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        changed[outer] = set_values(changed[outer], {inner: value}) if dot else value
    return changed


LONGEST_VALUE = 100
"""Characters of a value in a message about two values that differ."""
SYMBOLS = {
    "training.lr": "lr",
    "training.weight_decay": "weight decay",
    "coefficient": "λ",
    "away": "κ",
    "state_noise": "state noise",
    "counter_examples": "counter-examples",
}
"""Short names of fields in tables."""


def describe_method(name: str) -> str:
    """Return the name of a method as text: "BC", "flow matching"."""
    return name.upper() if len(name) <= 3 else name.replace("-", " ")


def describe_values(values: Mapping[str, int | float]) -> str:
    """Return the values of some fields as text: "lr 0.001, λ 3"."""
    return ", ".join(f"{SYMBOLS.get(name, name)} {value:g}" for name, value in values.items())


def check_types(settings: Any, path: str = "") -> None:
    """Refuse values that do not have the type of their field, here and in the settings of the fields."""
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, place = getattr(settings, field.name), _join(path, field.name)
        converted = _convert(hints[field.name], value, place)
        if dataclasses.is_dataclass(converted):
            if converted is not value:  # made of a dict
                raise InvalidSettings(f"{place} must be {type(converted).__name__}(…); it is {_shorten(value)}.")
            check_types(value, place)


def check_sizes(settings: Any, path: str = "") -> None:
    """Refuse sizes that are too large to be meant, and NaN or infinity, here and in the settings of the fields."""
    for field in dataclasses.fields(settings):
        value, place = getattr(settings, field.name), _join(path, field.name)
        if dataclasses.is_dataclass(value):
            check_sizes(value, place)
        elif isinstance(value, float) and not math.isfinite(value):
            raise InvalidSettings(f"{place} must be a finite number; it is {value}.")
        elif isinstance(value, int) and value > LARGEST.get(field.name, value):
            raise InvalidSettings(
                f"{place} is {value}; it can be at most {LARGEST[field.name]}, "
                "since larger values can fill the memory of a machine."
            )


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Return where two JSON values differ, as `path: a != b`. A key that is absent equals one that is null."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        keys = [*a, *(key for key in b if key not in a)]
        return [d for k in keys for d in differences(a.get(k), b.get(k), _join(path, k))]
    return [] if a == b else [f"{path}: {_shorten(a)} != {_shorten(b)}"]


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _find_registry(cls: type[Any]) -> Registry[Any] | None:
    return next((r for r in Registry.of_classes if issubclass(cls, cast(type, r.subclass_of))), None)


def _type_name(cls: type[Any], registry: Registry[Any]) -> str:
    try:
        return registry.name_of(cls)
    except UnknownName:
        return f"{cls.__module__}:{cls.__qualname__}"


def _find_class(registry: Registry[Any], name: str) -> type[Any]:
    """Return the class that settings name as their `type`, without importing its module."""
    module, colon, qualname = name.partition(":")
    if not colon:
        try:
            return registry[name]
        except UnknownName as error:
            raise UnknownName(f"{error} Import the module that registers {name!r} if it is your own.") from None
    for cls in registry.values():
        if (cls.__module__, cls.__qualname__) == (module, qualname):
            return cls
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # not getattr, which may import
    if isinstance(found, type) and issubclass(found, cast(type, registry.subclass_of)):
        return found
    raise UnknownName(
        f"the {registry.kind} {qualname} of the module {module} is not loaded. A file cannot make this program import "
        f"a module: import {module} first, or register the class."
    )


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Return a JSON value as an object of the type `hint`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_to_union(args, value, path)
    if origin is Literal and not any(value == known and type(value) is type(known) for known in args):
        raise _wrong(hint, value, path)
    if origin is tuple:
        return _convert_to_tuple(hint, value, path)
    cls: Any = origin or hint
    if cls is Any or not isinstance(cls, type):
        return value
    if dataclasses.is_dataclass(cls) and isinstance(value, cls):
        return value
    if dataclasses.is_dataclass(cls) or cls in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(hint, value, path)
        values = dict(cast(Mapping[str, Any], value))
        if dataclasses.is_dataclass(cls):
            return _build(cls, values, path)
        return {key: _convert(args[1], item, _join(path, key)) for key, item in values.items()} if args else values
    allowed = (float, int) if cls is float else cls
    if not isinstance(value, allowed) or (isinstance(value, bool) and cls is not bool):
        raise _wrong(hint, value, path)
    return value


def _convert_to_union(hints: Sequence[Any], value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        hints = [hint for hint in hints if dataclasses.is_dataclass(get_origin(hint) or hint)] or hints
        if len(hints) == 1:  # its own message is the better one
            return _convert(hints[0], value, path)
    for hint in hints:
        try:
            return _convert(hint, value, path)
        except InvalidSettings:
            continue
    raise _wrong(Union[tuple(hints)], value, path)  # noqa: UP007


def _convert_to_tuple(hint: Any, value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(hint, value, path)
    items, hints = cast(Sequence[Any], value), get_args(hint)
    if hints[1:] == (...,):
        hints = hints[:1] * len(items)
    if len(hints) != len(items):
        raise _wrong(hint, value, path)
    return tuple(_convert(h, item, f"{path}[{k}]") for k, (h, item) in enumerate(zip(hints, items, strict=True)))


def _build(cls: type[Any], values: dict[str, Any], path: str) -> Any:
    """Return an object of a dataclass or, if the values have a `type`, of the class that it names."""
    if registry := _find_registry(cls):
        name = values.pop("type", None)
        if isinstance(name, str):
            found = _find_class(registry, name)
            if not issubclass(found, cls):
                raise InvalidSettings(f"{_join(path, 'type')} must name a {cls.__name__}; it is {name!r}.")
            cls = found
        elif name is not None or cls is registry.subclass_of:
            raise InvalidSettings(f"{_join(path, 'type')} must be the name of a {registry.kind}; it is {name!r}.")
    if upgrade := getattr(cls, "upgrade_settings", None):  # for files of older versions
        values = cast(dict[str, Any], upgrade(values))
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    if unknown := sorted(set(values) - set(fields)):
        raise InvalidSettings(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(fields)}.")
    values = {n: f.metadata["absent"] for n, f in fields.items() if "absent" in f.metadata} | values
    required = [n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [name for name in required if name not in values]:
        raise InvalidSettings(f"{path or cls.__name__} lacks {', '.join(missing)}.")
    hints = get_type_hints(cls)
    built = {name: _convert(hints[name], value, _join(path, name)) for name, value in values.items()}
    try:
        settings = cls(**built)
    except Exception as error:  # what a class says of values of the right types
        raise InvalidSettings(f"{path or cls.__name__}: {str(error).split(chr(10))[0]}") from error
    check_sizes(settings, path)
    return settings


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else str(key)


def _wrong(hint: Any, value: Any, path: str) -> InvalidSettings:
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return InvalidSettings(f"{path or 'the value'} must be {_describe(hint)}; it is {shown}.")


def _describe(hint: Any) -> str:
    """Return a type as a person would say it of JSON."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, map(_describe, args)))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is tuple:
        return f"a list, each {_describe(args[0])}" if args[1:] == (...,) else f"a list of {len(args)}"
    cls: Any = origin or hint
    if dataclasses.is_dataclass(cls):
        return f"an object with the settings of {cast(type, cls).__name__}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", types.NoneType: "null"}
    return names.get(cls, "an object" if cls in (dict, Mapping) else "")
