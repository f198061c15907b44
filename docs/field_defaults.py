"""An extension of Griffe, which reads the sources for the API reference: a field is shown with its plain default.

`lr: Scalar = stackable(1e-4)` marks a field for the program; a reader wants to know that its default is 1e-4.
"""

from typing import Any

import griffe

MARKS = ("acting", "added", "scoring", "stackable", "Default", "field")
"""Functions whose first argument is the default of a field; "field" is that of dataclasses."""
EMPTY = {"dict": "{}", "list": "[]"}


class FieldDefaults(griffe.Extension):
    """Replaces the calls that mark fields by their defaults."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Change the value of an attribute that was just read."""
        call = attr.value
        if not isinstance(call, griffe.ExprCall) or str(call.function) not in MARKS:
            return
        named = {a.name: a.value for a in call.arguments if isinstance(a, griffe.ExprKeyword)}
        plain = [a for a in call.arguments if not isinstance(a, griffe.ExprKeyword)]
        factory = str(named.get("default_factory", "")).partition("[")[0]
        if str(call.function) == "field":
            plain = [named["default"]] if "default" in named else [EMPTY[factory]] if factory in EMPTY else []
        elif not plain:
            plain = [named["absent"]]
        if plain:
            attr.value = plain[0]
