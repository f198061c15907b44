"""Episodes of two policies from the same starts: one start side by side, or several starts in a grid."""

from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from diffclone.errors import MissingPackage, install_command
from diffclone.tasks.batch import Image
from diffclone.tasks.rendering import RenderedEpisode

BAR, GAP = 36, 4
"""Pixels: the height of the line of text above a panel, and the white space between panels."""
LABEL, LINE, TEXT = 124, 26, 17
"""Pixels of a grid: the width of the names on its left, and the heights of a line and of its letters."""
GRID_WIDTH, COLUMNS = 960, 6
"""Pixels of a grid, unless another width is given, and its largest number of panels in a line."""
LAST, LAST_OF_GRID = 15, 50
"""Frames for which the end of the longest episode stays. A grid has more to read."""
COLOURS = {"": (30, 30, 30), "solved": (0, 110, 60), "not solved": (170, 40, 30)}
"""Colours of the text, by the outcome that it ends with. All have a contrast of more than 5 with white."""
WHITE = (255, 255, 255)


def join_episodes(names: Sequence[str], episodes: Sequence[RenderedEpisode], *, with_outcome: bool) -> list[Image]:
    """Return the frames of one picture with a panel per episode, under its name.

    With `with_outcome` the text says how an episode ended, once it has. Shorter episodes keep their last frame.
    """
    length = max(len(episode.frames) for episode in episodes)
    joined: list[Image] = []
    for k in range(length + LAST):
        panels: list[Image] = []
        for name, episode in zip(names, episodes, strict=True):
            outcome = describe_outcome(episode) if with_outcome and k >= len(episode.frames) else ""
            frame = frame_at(episode, k)
            text = f"{name}: {outcome}" if outcome else name
            line = draw_lines([text], frame.shape[1], BAR, colour=COLOURS[outcome], size=BAR // 2)
            panels.append(np.concatenate([line, frame]))
        joined.append(join_row(panels))
    return joined


def join_grid(
    names: Sequence[Sequence[str]],
    rows: Sequence[Sequence[RenderedEpisode]],
    starts: Sequence[int],
    *,
    with_outcome: bool,
    width: int = GRID_WIDTH,
) -> list[Image]:
    """Return the frames of one picture with a panel per policy and start. All episodes play at once.

    Each policy has lines of at most six panels, in the order of the starts; `names` has the texts on their left. An
    episode that has ended keeps its last frame, and the bar below it says how it ended: solved or not, or its return.
    With `with_outcome` the number of solved starts is on the left.
    """
    columns = min(COLUMNS, len(starts))
    wide = (width - LABEL) // columns - GAP
    frames = [[[resize(frame, wide) for frame in episode.frames] for episode in row] for row in rows]
    joined: list[Image] = []
    for k in range(max(len(episode) for row in frames for episode in row) + LAST_OF_GRID):
        parts: list[Image] = []
        for texts, row, images in zip(names, rows, frames, strict=True):
            panels = [
                np.concatenate(
                    [own[min(k, len(own) - 1)], draw_end(episode, k, start, wide, with_outcome=with_outcome)]
                )
                for episode, own, start in zip(row, images, starts, strict=True)
            ]
            panels += [np.full_like(panels[0], 255)] * (-len(panels) % columns)
            lines = [join_row(panels[first : first + columns]) for first in range(0, len(panels), columns)]
            block = join_column(lines, GAP)
            solved = sum(episode.success for episode in row if k >= len(episode.frames))
            counts = [f"solved {solved} of {len(row)}"] if with_outcome else []
            parts.append(join_row([draw_lines([*texts, *counts], LABEL, len(block)), block]))
        picture = join_column(parts, 3 * GAP)
        even = picture[: len(picture) // 2 * 2]  # videos need even numbers
        joined.append(np.pad(even, ((0, 0), (0, width - even.shape[1]), (0, 0)), constant_values=255))
    return joined


def draw_end(episode: RenderedEpisode, k: int, start: int, width: int, *, with_outcome: bool) -> Image:
    """Return the bar below a panel: the start, and how the episode ended once it has at frame k."""
    text = f"start {start}"
    if k < len(episode.frames):
        return draw_lines([text], width, LINE)
    if not with_outcome:
        return draw_lines([f"{text}: return {episode.returns:.0f}"], width, LINE)
    outcome = describe_outcome(episode)
    return draw_lines([f"{text}: {outcome}"], width, LINE, colour=WHITE, background=COLOURS[outcome])


def describe_outcome(episode: RenderedEpisode) -> str:
    """Return whether the task was solved, in words."""
    return "solved" if episode.success else "not solved"


def frame_at(episode: RenderedEpisode, k: int) -> Image:
    """Return the frame at step k, or the last one."""
    return episode.frames[min(k, len(episode.frames) - 1)]


def join_row(panels: Sequence[Image]) -> Image:
    """Return images of one height beside each other, with white gaps."""
    gap = np.full((len(panels[0]), GAP, 3), 255, np.uint8)
    return np.concatenate([part for panel in panels for part in (gap, panel)][1:], axis=1)


def join_column(rows: Sequence[Image], gap: int) -> Image:
    """Return images of one width below each other, with white gaps."""
    space = np.full((gap, rows[0].shape[1], 3), 255, np.uint8)
    return np.concatenate([part for row in rows for part in (space, row)][1:])


def draw_lines(
    lines: Sequence[str],
    width: int,
    height: int,
    *,
    colour: tuple[int, int, int] = COLOURS[""],
    background: tuple[int, int, int] = WHITE,
    size: int = TEXT,
) -> Image:
    """Return lines of text in the middle of an image, (height, width, 3). Lines that are too wide are made smaller."""
    pillow = import_pillow()
    image = pillow.Image.new("RGB", (width, height), background)
    draw = pillow.ImageDraw.Draw(image)
    for k, line in enumerate(lines):
        font = pillow.ImageFont.load_default(size=size)
        if (wide := draw.textlength(line, font)) > width:
            font = pillow.ImageFont.load_default(size=max(6, int(size * width / wide)))
        middle = height / 2 + (k - (len(lines) - 1) / 2) * 1.4 * size
        draw.text((width / 2, middle), line, colour, font, anchor="mm")
    return np.asarray(image)


def resize(frame: Image, width: int) -> Image:
    """Return an image of another width and the same proportions."""
    height = round(frame.shape[0] * width / frame.shape[1] / 2) * 2  # videos need even numbers
    return np.asarray(import_pillow().Image.fromarray(frame).resize((width, height)))


def import_pillow() -> Any:
    """Return the package that draws texts and resizes images."""
    try:
        return SimpleNamespace(**{name: import_module(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont")})
    except ImportError:
        raise MissingPackage(f"changing images needs pillow. Try: {install_command('render')}.") from None
