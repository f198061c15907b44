"""Options given by name: the known ones are a constructor's keywords, and a wrong one is named with them."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from diffclone.errors import InvalidSettings

KINDS = {float: "a number", bool: "true or false", int: "a whole number"}


def check_options(owner: str, make: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, if `make` takes them; a default says what kind of value an option has, and none that any will do."""
    known = {
        name: parameter.default
        for name, parameter in inspect.signature(make).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise InvalidSettings(f"{owner} has no option {name!r}; it has {', '.join(known) or 'none'}.")
        wanted = type(known[name])
        checked[name] = float(value) if wanted is float and type(value) is int else value
        if known[name] is not None and type(checked[name]) is not wanted:
            kind = KINDS.get(wanted, "text")
            raise InvalidSettings(f"the option {name} of {owner} is {kind}; it was given {value!r}.")
    return checked


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` from a command line: true, false, a number, or text."""
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
