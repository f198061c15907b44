"""Reference pages that are written when the site is built: the help of every command, and all settings."""

import ast
import contextlib
import dataclasses
import inspect
import io
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

from diffclone.cli.main import COMMANDS, main
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Method, Training
from diffclone.nn.encoder import Encoder

INTRODUCTION = """# Settings

Every setting of every method and guide, with its default. A setting is a keyword in Python and a flag on the command
line: `DBC(coefficient=10.0, guide=DiffusionGuide(draws=4))` is `--method dbc --coefficient 10 --guide.draws 4`.

Observations and actions are normalised first, so lengths such as noise are in standard deviations of the
demonstrations unless a line says otherwise. *Stackable* settings may differ between the members of one training
(`vary=`, `--vary`). *Acting* settings can be changed after training (`policy.acting(…)`, `--acting`).

`fit` and `diffclone train` replace defaults of sizes and schedules by values for the data, unless you set them
([Train](../training.md)). The presets `paper` and `release` set all of them.
"""


def command_page(name: str) -> str:
    """Return the page of a command: its summary and its full help."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([name, "--help-all"])
    flags = "\n\nThe settings are those of DBC; others: `--method NAME --help-all`, or [Settings](../api/settings.md)."
    more = flags if name == "train" else ""
    return f"# diffclone {name}\n\n{COMMANDS[name]}{more}\n\n```text\n{printed.getvalue().rstrip()}\n```\n"


def commands_index() -> str:
    """Return the page that lists the commands."""
    rows = [f"| [`diffclone {name}`]({name}.md) | {summary} |" for name, summary in COMMANDS.items()]
    return "\n".join(["# Commands", "", "| command | what it does |", "|---|---|", *rows, ""])


def settings_page() -> str:
    """Return the page of all settings: one table per class."""
    shared = [field.name for field in dataclasses.fields(Method) if field.name != "training"]
    parts = [INTRODUCTION, "## All methods\n", table(Method, shared)]
    nested: dict[str, type[Any]] = {"Training": Training, "Encoder": Encoder}
    for heading, registry in (("Method", METHODS), ("Guide", GUIDES)):
        for name, kind in registry.items():
            if kind.__module__.startswith("diffclone."):
                parts += [
                    f"\n## {heading} `{name}`: {kind.__name__}\n",
                    first_line(kind),
                    "",
                    table(kind, own(kind, shared)),
                ]
                collect_nested(kind, nested)
    for kind in nested.values():
        names = [field.name for field in dataclasses.fields(kind)]
        parts += [f"\n## {kind.__name__}\n", first_line(kind), "", table(kind, names)]
    return "\n".join(parts) + "\n"


def own(kind: type[Any], shared: list[str]) -> list[str]:
    """Return the fields of a class that are not those of all methods."""
    return [field.name for field in dataclasses.fields(kind) if field.name not in shared]


def collect_nested(kind: type[Any], found: dict[str, type[Any]]) -> None:
    """Add the classes of nested settings that have no section of their own."""
    registered = {*METHODS.values(), *GUIDES.values()}
    for field in dataclasses.fields(kind):
        value = field.default
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value) not in registered:
            found.setdefault(type(value).__name__, type(value))
            collect_nested(type(value), found)


def first_line(kind: type[Any]) -> str:
    """Return the first paragraph of the docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def table(kind: type[Any], names: list[str]) -> str:
    """Return the table of some fields."""
    texts, lines = field_texts(kind), ["| setting | default | meaning |", "|---|---|---|"]
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in names:
            marks = [name.capitalize() for name in ("stackable", "acting") if field.metadata.get(name)]
            values = list_values(hints[field.name])
            text = " ".join([texts.get(field.name, ""), *values, *(f"*{mark}.*" for mark in marks)]).strip()
            lines.append(f"| `{field.name}` | {describe(field.default)} | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def list_values(hint: Any) -> list[str]:
    """Return the values that a setting may have in one sentence, if it is one of several names."""
    names = [value for value in get_args(hint) if isinstance(value, str)] if get_origin(hint) is Literal else []
    return [f"One of {', '.join(f'`{name}`' for name in names)}."] if names else []


def field_texts(kind: type[Any]) -> dict[str, str]:
    """Return the docstring under each field, those of base classes included."""
    return {
        name: text for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base) for name, text in parse(base)
    }


def parse(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that a class defines with the docstring under them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    for line, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        match line, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
            case _:
                pass


def describe(value: Any) -> str:
    """Return a default for a table; of nested settings, what differs from the defaults of their class."""
    if value is dataclasses.MISSING:
        return "required"
    if value is None:
        return "none"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return f"`{int(value) if isinstance(value, int) and not isinstance(value, bool) else value}`"
    changed = [
        f"{field.name}={getattr(value, field.name)!r}"
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"`{type(value).__name__}({', '.join(changed)})`"
