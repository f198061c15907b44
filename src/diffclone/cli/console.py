"""Output: messages and progress on stderr, tables and JSON on stdout."""

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table

if TYPE_CHECKING:
    from diffclone.training import Progress as TrainingProgress

CONSOLE = Console(stderr=True, width=None if sys.stderr.isatty() else 120)


def print_message(line: str) -> None:
    """Print one line on stderr."""
    CONSOLE.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one line of JSON on stdout."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout."""
    table = Table(*columns, title=escape(title), title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@final
class Bars:
    """One progress bar per stage."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._bars: dict[str, Any] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Move a bar, or add it."""
        if name not in self._bars:
            self._progress.start()  # not earlier, so that an error before the first bar is a single line
            self._bars[name] = self._progress.add_task(name, total=total, note=note)
        self._progress.update(self._bars[name], completed=done, note=note)

    def training(self, name: str, now: "TrainingProgress") -> None:
        """Move the bar of a stage of training."""
        losses = "  ".join(f"{key} {values.mean():.4f}" for key, values in now.losses.items() if key != "loss")
        note = f"{now.rate:.0f}/s, {now.execution}  {losses}" if now.losses else f"{now.execution} (about 30 s)"
        self.update(f"{name}: {now.stage} × {now.members}", now.update, now.updates, note)


@contextmanager
def bars() -> Generator[Bars, None, None]:
    """Yield the progress bars of a command."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)),  # shortened first
    )
    progress = Progress(*columns, console=CONSOLE, refresh_per_second=4, expand=True)
    try:
        yield Bars(progress)
    finally:
        if progress.tasks:
            progress.stop()
