"""What a person sees: progress and tables on stderr, so that stdout stays clean for scripts."""

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from diffclone.statistics import Interval

if TYPE_CHECKING:
    from diffclone.training import Progress as TrainingProgress

CONSOLE = Console(stderr=True, width=None if sys.stderr.isatty() else 120)


def print_message(line: str) -> None:
    """One line for a person."""
    CONSOLE.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One line of JSON for a script, on stdout."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def percent(rate: float) -> str:
    """One decimal."""
    return f"{100 * rate:.1f} %"


def percent_interval(interval: Interval) -> str:
    """Both ends."""
    return f"{100 * interval[0]:.1f} … {100 * interval[1]:.1f}"


@final
class Bars:
    """One bar a stage; each says what is being done and how long it will take."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._bars: dict[str, Any] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Move a bar; it appears when first moved."""
        if name not in self._bars:
            self._progress.start()  # not before there is something to show: a fault is then a single line
            self._bars[name] = self._progress.add_task(name, total=total, note=note)
        self._progress.update(self._bars[name], completed=done, note=note)

    def training(self, name: str, now: "TrainingProgress") -> None:
        """Move the bar of a stage of training."""
        losses = "  ".join(f"{key} {values.mean():.4f}" for key, values in now.losses.items() if key != "loss")
        note = f"{now.rate:.0f}/s, {now.how}  {losses}" if now.losses else f"{now.how} first: half a minute"
        self.update(f"{name}: {now.stage} × {now.members}", now.update, now.updates, note)


@contextmanager
def bars() -> Generator[Bars, None, None]:
    """Bars while something long is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    progress = Progress(*columns, console=CONSOLE, refresh_per_second=4)
    try:
        yield Bars(progress)
    finally:
        if progress.tasks:
            progress.stop()
