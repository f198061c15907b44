"""Show how far a training is: a bar in a terminal or a notebook, a line every few seconds elsewhere.

    guide × 3  ━━━━━━━━────  64 %  1 min 20 s left  L_DM 0.0213
    guide × 3: 15,000 of 23,436, 1 min 20 s left, L_DM 0.0213

A line is never wider than the terminal, whatever the losses are: values that do not fit are left out. Reports are only
written, so that a training is the same with and without them.
"""

import html
import importlib
import os
import shutil
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, final

from diffclone.training.loop import Progress
from diffclone.training.time_left import TimeLeft, format_time

WIDTH, WIDEST = 80, 120
"""Columns of a log, and the largest number that is used of a terminal."""
LABEL, BAR = 26, 12
"""Columns of a label, and of a bar."""
REFRESH = 0.1
"""Seconds between two drawings of a bar."""
FIRST_LINE, LAST_LINE, GROWTH = 5.0, 10.0, 1.3
"""Seconds to the first line of a log, the longest time between two, and how fast the time between them grows."""

Style = Literal["terminal", "notebook", "lines"]


@final
@dataclass
class Stage:
    """What is known of a stage."""

    label: str
    total: int
    begun: float
    done: int = 0
    values: Sequence[str] = ()
    left: float | None = None

    @property
    def finished(self) -> bool:
        """Whether everything is done."""
        return self.done >= self.total

    def bar(self, width: int = WIDTH) -> str:
        """Return a line with a bar."""
        full = round(BAR * min(1.0, self.done / max(1, self.total)))
        percent = f"{100 * self.done // max(1, self.total):>3} %"
        left = [] if self.left is None else [f"{format_time(self.left)} left"]
        parts = [shorten(self.label, LABEL), "━" * full + "─" * (BAR - full), percent, *left, *self.values]
        return join(parts, "  ", width)

    def line(self, width: int = WIDTH) -> str:
        """Return a line of a log."""
        if self.finished:
            parts = [f"{self.total:,} in {format_time(time.monotonic() - self.begun)}"]
        else:
            left = [] if self.left is None else [f"{format_time(self.left)} left"]
            parts = [f"{self.done:,} of {self.total:,}", *left]
        label = shorten(self.label, max(LABEL, width - len(f": {', '.join(parts)}")))
        return join([f"{label}: {parts[0]}", *parts[1:], *self.values], ", ", width)


def shorten(text: str, width: int) -> str:
    """Return text of at most `width` characters, without its middle if it is longer: the end names the stage."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def join(parts: Sequence[str], separator: str, width: int) -> str:
    """Return as many of the parts, from the first on, as fit into a line."""
    line = ""
    for part in parts:
        longer = f"{line}{separator}{part}" if line else shorten(part, width)
        if len(longer) > width:
            break
        line = longer
    return line


@final
class Bars:
    """Shows stages one after the other, or several at once where several processes train."""

    def __init__(self, style: Style, stream: Any = None):
        self.style, self.given = style, stream
        self.stages: dict[str, Stage] = {}
        """The stages that have not ended."""
        self.ended: set[str] = set()
        self.time_left = TimeLeft()
        self.drawn = 0.0
        """When a bar was drawn; 0 if there is none in the last line."""
        self.handles: dict[str, Any] = {}
        self.last = time.monotonic()
        """When the last report came."""
        self.line_at, self.interval = self.last + FIRST_LINE, FIRST_LINE

    @property
    def stream(self) -> Any:
        """Where to write; stderr may be replaced at any time."""
        return self.given or sys.stderr

    def plan(self, seconds: Mapping[str, float]) -> None:
        """Use the expected seconds of all stages, as "NAME: STAGE", for the time left."""
        self.time_left = TimeLeft(seconds)

    def update(self, label: str, done: int, total: int, note: str = "") -> None:
        """Report how much of a stage is done."""
        self.show(label, done, total, [part for part in note.split("  ") if part])

    def training(self, name: str, now: Progress) -> None:
        """Report a stage of training."""
        values = [f"{key} {losses.mean():.3g}" for key, losses in now.losses.items() if key != "loss"]
        values += [f"{now.rate:.3g}/s", now.execution] if now.losses else [f"{now.execution} (about 30 s)"]
        stage = f"{name}: {now.stage}" if name else now.stage
        label = stage if now.members == 1 else f"{stage} × {now.members}"
        self.last = max(self.last, time.monotonic() - now.seconds)  # what came before the stage is not counted
        self.show(label, now.update, now.updates, values, stage)

    def show(self, label: str, done: int, total: int, values: Sequence[str], stage_name: str = "") -> None:
        """Report a stage with values that are shown if there is room."""
        if label in self.ended:
            if done >= total:
                return
            self.ended.remove(label)
        now = time.monotonic()
        stage = self.stages.setdefault(label, Stage(label, total, self.last))
        self.last = now
        stage.done, stage.total, stage.values = done, total, values
        stage.left = None if stage.finished else self.time_left.report(stage_name or label, done, total)
        if stage.finished:
            self.end(stage)
        elif self.style == "lines":
            self._log(stage, now)
        elif now - self.drawn >= (REFRESH if len(self.stages) == 1 else 1.0):
            self.drawn = now
            self._draw(stage)

    def end(self, stage: Stage) -> None:
        """Leave one line about a stage."""
        stage.left = None  # no time is left of a stage that ended early either
        del self.stages[stage.label]
        self.ended.add(stage.label)
        if self.style == "terminal":
            self._write(f"\r{stage.line(self._width())}\x1b[K\n")
            self.drawn = 0.0
        elif self.style == "notebook":
            self._show(stage, stage.line())
            self.handles.pop(stage.label)
        elif stage.finished and time.monotonic() - stage.begun >= FIRST_LINE:
            self._write(stage.line() + "\n")

    def close(self) -> None:
        """Leave one line about each stage that has not ended."""
        for stage in list(self.stages.values()):
            self.end(stage)

    def clear(self) -> None:
        """Make room for a message. The next report draws the bar again."""
        if self.style == "terminal" and self.drawn:
            self._write("\r\x1b[K")
            self.drawn = 0.0

    def _log(self, stage: Stage, now: float) -> None:
        if now < self.line_at:
            return
        self._write(stage.line() + "\n")
        self.line_at, self.interval = now + self.interval, min(LAST_LINE, GROWTH * self.interval)

    def _draw(self, stage: Stage) -> None:
        if self.style == "terminal":
            self._write(f"\r{stage.bar(self._width())}\x1b[K")
        else:
            self._show(stage, stage.bar(WIDEST))

    def _show(self, stage: Stage, text: str) -> None:
        """Show a stage in a notebook, in place of what was shown of it."""
        shown = NotebookLine(text, stage.done, stage.total)
        if stage.label in self.handles:
            self.handles[stage.label].update(shown)
        else:
            show: Any = importlib.import_module("IPython.display").display
            self.handles[stage.label] = show(shown, display_id=True)

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError, AttributeError):
            columns = 0
        return min(WIDEST, (columns or shutil.get_terminal_size((WIDTH, 24)).columns) - 1)

    def _write(self, text: str) -> None:
        try:
            text.encode(self.stream.encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            text = text.translate(str.maketrans("━─×…", "#-x.")).encode("ascii", "replace").decode()
        self.stream.write(text)
        self.stream.flush()


@final
@dataclass(frozen=True)
class NotebookLine:
    """A line that a notebook shows with a bar of its own."""

    text: str
    done: int
    total: int

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        text = html.escape(self.text.translate(str.maketrans("", "", "━─")))
        return f'<progress value="{self.done}" max="{self.total}"></progress> <code>{text}</code>'


def find_style() -> Style:
    """Return how progress can be shown here."""
    if "IPython" in sys.modules:
        shell = importlib.import_module("IPython").get_ipython()
        if type(shell).__name__ == "ZMQInteractiveShell" or "google.colab" in str(type(shell)):
            return "notebook"
    terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return "terminal" if terminal else "lines"


@contextmanager
def open_bars(style: Style | None = None) -> Generator[Bars, None, None]:
    """Yield a display of progress on stderr, and end its last line."""
    bars = Bars(style or find_style())
    try:
        yield bars
    finally:
        bars.close()


@contextmanager
def choose_bars(*, progress: bool | None) -> Generator[Bars | None, None, None]:
    """Yield the display that an option `progress` asks for, or None.

    Args:
        progress: None for a bar in a terminal and in a notebook and nothing elsewhere, True for lines where a bar
            cannot be shown, False for nothing.
    """
    style = find_style()
    if progress is False or (progress is None and style == "lines"):
        yield None
    else:
        with open_bars(style) as bars:
            yield bars
