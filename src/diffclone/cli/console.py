"""Output: messages and progress on stderr, tables and JSON on stdout."""

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

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


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout. Cells are broken between words; the first column is kept whole if it is short."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, show_header=any(columns))
    table.show_edge, table.padding = False, (0, 1, 0, 0)
    for k, name in enumerate(columns):
        longest = max([len(row[k]) for row in rows], default=0)
        table.add_column(escape(name), no_wrap=not k and longest <= WIDTH // 3, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table, "")


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
