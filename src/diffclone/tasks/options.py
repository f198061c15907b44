"""Options given by name: the known ones are a constructor's keywords, and a wrong one is named with them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from diffclone.errors import InvalidSettings


def check_options(owner: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Whether `make` takes these; a default says what kind of value an option has."""
    known = {
        name: parameter.default
        for name, parameter in inspect.signature(make).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    for name, value in options.items():
        if name not in known:
            raise InvalidSettings(f"{owner} has no option {name!r}; it has {', '.join(known) or 'none'}.")
        wanted = type(known[name])
        fits = isinstance(value, int | float) and not isinstance(value, bool) if wanted is float else None
        if not (isinstance(value, wanted) if fits is None else fits) and known[name] is not None:
            kind = {"float": "a number", "bool": "true or false", "int": "a whole number"}.get(wanted.__name__, "text")
            raise InvalidSettings(f"the option {name} of {owner} is {kind}; it was given {value!r}.")


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` from a command line: true, false, a number, or text."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSettings(f"an option is NAME=VALUE; it was given {text!r}.")
        try:
            options[name] = value == "true" if value in ("true", "false") else float(value)
        except ValueError:
            options[name] = value
    return options
