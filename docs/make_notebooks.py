"""Make notebooks from tutorials, so that both have one source: `docs/tutorials/NAME.md` → `docs/notebooks/NAME.ipynb`.

prose               Markdown cells, one for each section and between code; links lead on from the notebook's folder
```python           a code cell; a last line `print(NAME)` becomes `NAME`, which a notebook shows as a table
```sh               a code cell with `!` before each command
other blocks        stay in the Markdown

Notebooks have no outputs: they would change with the machine, and a test executes every notebook.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
NOTEBOOKS = ("first-policy", "other-data", "monitor")
"""Tutorials that have a notebook."""
CODE = re.compile(r"^```(python|sh)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)(?=[)#])")
SECTION = re.compile(r"^(?=## )", re.MULTILINE)
NOTE = (
    "This notebook is made from the tutorial [{title}](../tutorials/{name}.md). Lines that begin with `!` are commands "
    "of a shell: start Jupyter in the environment in which diffclone is installed."
)


def make_notebook(name: str) -> str:
    """Return the text of a tutorial's notebook."""
    title, _, page = (DOCS / f"tutorials/{name}.md").read_text(encoding="utf-8").partition("\n")
    page = "".join(part for part in re.split(r"(?<=\n\n)", page) if f"notebooks/{name}.ipynb" not in part)
    cells: list[tuple[str, str]] = []
    prose, *rest = CODE.split(page)
    for language, code, after in zip(["", *rest[::3]], ["", *rest[1::3]], [prose, *rest[2::3]], strict=True):
        if language:
            cells.append(("code", to_python(code) if language == "python" else to_commands(code)))
        cells += [("markdown", move_links(part.strip())) for part in SECTION.split(after) if part.strip()]
    note = NOTE.format(title=title.removeprefix("# "), name=name)
    cells[0] = "markdown", f"{title}\n\n{cells[0][1]}\n\n{note}"
    return write(cells)


def to_python(code: str) -> str:
    """Return a block of Python as a cell."""
    return re.sub(r"^print\((\w+)\)$(?!\n)", r"\1", code.rstrip("\n"), flags=re.MULTILINE)


def to_commands(code: str) -> str:
    """Return a block of commands as a cell. The lines of one command end in a backslash."""
    return re.sub(r"(?<!\\\n)^(?=[^\s#])", "!", code.rstrip("\n"), flags=re.MULTILINE)


def move_links(text: str) -> str:
    """Return prose of a tutorial with links that work in the folder of notebooks."""

    def target(match: re.Match[str]) -> str:
        path = posixpath.normpath(f"tutorials/{match[1]}")
        made = {f"tutorials/{name}.md": f"{name}.ipynb" for name in NOTEBOOKS}
        return made.get(path) or posixpath.relpath(path, "notebooks")

    return LINK.sub(target, text)


def write(cells: list[tuple[str, str]]) -> str:
    """Return cells as a file in Jupyter's format 4.5, as Jupyter writes it."""
    found: list[dict[str, Any]] = []
    for k, (kind, text) in enumerate(cells):
        cell = {"cell_type": kind, "id": f"cell-{k}", "metadata": {}, "source": text.splitlines(keepends=True)}
        found.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def update_notebooks(*, check: bool) -> list[Path]:
    """Write the notebooks that differ from their tutorials, unless `check`; return them."""
    texts = {DOCS / f"notebooks/{name}.ipynb": make_notebook(name) for name in NOTEBOOKS}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in [] if check else stale:
        path.write_text(texts[path], encoding="utf-8")
    return stale
