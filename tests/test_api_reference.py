"""The API reference has every public name, and says what each class, field, method and parameter on its pages is."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import diffclone
from docs.reference import settings_page

PAGES = sorted((Path(__file__).parents[1] / "docs/api").glob("*.md"))
NAMES = [name for page in PAGES for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)]
OPTIONAL = ("gymnasium", "uvicorn", "starlette", "httptools")
"""Packages that some of the modules need."""
FEWEST = 10
"""Characters of a docstring that says something."""


def find(name: str) -> Any:
    """Return the module, class or function on a page."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in OPTIONAL:
            pytest.skip(f"{error.name} is not installed")
        module, _, attribute = name.rpartition(".")
        found = importlib.import_module(module)
        return getattr(found, attribute)


def public_parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a class or function, or those that a module defines."""
    if not inspect.ismodule(value):
        yield value.__qualname__, value
        return
    for name, part in vars(value).items():
        own = getattr(part, "__module__", None) == value.__name__
        if own and not name.startswith("_") and (inspect.isclass(part) or inspect.isfunction(part)):
            yield name, part


def described_fields(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the public fields in the body of a class with the text under them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    for line, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and not line.target.id.startswith("_"):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            yield line.target.id, str(text)


def inherited_fields(kind: type[Any]) -> dict[str, str]:
    """Return the fields of a class and of its bases in this package, each with the first text that it has."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("diffclone."):
            for name, text in described_fields(base):
                found[name] = found.get(name) or text
    return found


def methods(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines."""
    for name, part in vars(kind).items():
        if not name.startswith("_"):
            inner = part.__func__ if isinstance(part, classmethod | staticmethod) else part
            if inspect.isfunction(inner) or isinstance(inner, property | cached_property):
                yield name, inner


def test_every_setting_has_a_default_and_a_meaning() -> None:
    page = settings_page()
    rows = [row.strip("| ").split(" | ", 2) for row in page.splitlines() if row.startswith("| `")]
    assert len(rows) > 100
    assert not [row for row in rows if len(row) < 3 or len(row[2]) < FEWEST]
    assert {row[1] for row in rows if row[0] == "`activation`"} == {"`tanh`"}
    assert "One of `linear`, `exponential`, `constant`." in page
    assert re.search(r"^\| `features` \| `32` \|", page, re.MULTILINE), "the settings of the encoder"


def test_every_public_name_is_on_a_page() -> None:
    assert len(NAMES) == len(set(NAMES)) > 60
    values = {name: find(name) for name in NAMES}
    for name in diffclone.__all__:
        value = getattr(diffclone, name)
        listed = any(value is other or value.__module__ == other_name for other_name, other in values.items())
        assert listed, f"{name} is on no page of docs/api"


@pytest.mark.parametrize("name", NAMES)
def test_classes_fields_and_methods_say_what_they_are(name: str) -> None:
    missing: list[str] = []
    for label, part in public_parts(find(name)):
        texts = {label: part.__doc__ or ""}
        if inspect.isclass(part):
            texts |= {f"{label}.{field}": text for field, text in inherited_fields(part).items()}
            texts |= {f"{label}.{method}": value.__doc__ or "" for method, value in methods(part)}
        missing += [place for place, text in texts.items() if len(text) < FEWEST]
    assert not missing


@pytest.mark.parametrize("name", [name for name in NAMES if name.rpartition(".")[2].islower()])
def test_functions_say_what_their_parameters_are(name: str) -> None:
    function = find(name)
    if not inspect.isfunction(function):
        pytest.skip("a module")
    text = inspect.getdoc(function) or ""
    parameters = list(inspect.signature(function).parameters)
    assert [p for p in parameters if not re.search(rf"\b{p}\b", text)] == []
