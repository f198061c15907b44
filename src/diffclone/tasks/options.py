"""Options passed by name. A constructor's keywords and their defaults define which options exist and their types."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from diffclone.errors import InvalidSettings

KINDS = {float: "a number", bool: "true or false", int: "a whole number"}


def check_options(owner: str, make: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options if `make` accepts them.

    An option must have the type of its default; a default of None accepts any value. If `make` takes `**keywords`,
    other options are not checked.
    """
    parameters = inspect.signature(make).parameters.values()
    known = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    checked = dict(options)
    for name, value in options.items():
        if name not in known:
            if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
                continue
            raise InvalidSettings(f"{owner} has no option {name!r}; it has {', '.join(known) or 'none'}.")
        wanted = type(known[name])
        checked[name] = float(value) if wanted is float and type(value) is int else value
        if known[name] is not None and type(checked[name]) is not wanted:
            kind = KINDS.get(wanted, "text")
            raise InvalidSettings(f"the option {name} of {owner} is {kind}; it was given {value!r}.")
    return checked


def check_not_negative(**options: float) -> None:
    """Refuse negative values and NaN."""
    for name, value in options.items():
        if not value >= 0:
            raise InvalidSettings(f"{name} must not be negative; it is {value}.")


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` arguments of the command line; a value is true, false, a number or text."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSettings(f"an option is NAME=VALUE; it was given {text!r}.")
        try:
            options[name] = value == "true" if value in ("true", "false") else json.loads(value)
        except ValueError:
            options[name] = value
    return options
