"""Output: messages and progress on stderr, tables and JSON on stdout."""

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from diffclone.cli.table import format_table, wrap

if TYPE_CHECKING:
    from diffclone.training.display import Bars

WIDTH = 80
"""Columns of a table that is not printed in a terminal."""
OPEN: list["Bars"] = []
"""The progress bars that are shown now."""


def print_message(line: str) -> None:
    """Print one line on stderr."""
    for bars in OPEN:
        bars.clear()
    console = Console(stderr=True)
    console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one line of JSON on stdout."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print a table on stdout, and an empty line. `notes` has a line of text for each row, printed below it."""
    console = Console()
    width = console.width if sys.stdout.isatty() else WIDTH
    head, body = format_table(columns, rows, width, notes)
    for line, style in (
        *((line, "bold") for line in [*wrap(title, width), *head]),
        *((line, "") for line in [*body, ""]),
    ):
        console.print(Text(line, style), soft_wrap=True)


@contextmanager
def bars() -> Generator["Bars", None, None]:
    """Yield the progress bars of a command."""
    from diffclone.training.display import open_bars  # imports torch, which `diffclone --help` does not need

    with open_bars() as shown:
        OPEN.append(shown)
        try:
            yield shown
        finally:
            OPEN.remove(shown)
