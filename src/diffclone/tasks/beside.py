"""Episodes of two policies side by side, from the same start."""

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
LAST = 15
"""Frames for which the end of the longest episode stays."""
COLOURS = {"": (30, 30, 30), "solved": (0, 110, 60), "not solved": (170, 40, 30)}
"""Colours of the text, by the outcome that it ends with. All have a contrast of more than 5 with white."""


def join_episodes(names: Sequence[str], episodes: Sequence[RenderedEpisode], *, with_outcome: bool) -> list[Image]:
    """Return the frames of one picture with a panel per episode, under its name.

    With `with_outcome` the text says how an episode ended, once it has. Shorter episodes keep their last frame.
    """
    length = max(len(episode.frames) for episode in episodes)
    joined: list[Image] = []
    for k in range(length + LAST):
        panels: list[Image] = []
        for name, episode in zip(names, episodes, strict=True):
            frame = episode.frames[min(k, len(episode.frames) - 1)]
            ended = with_outcome and k >= len(episode.frames)
            outcome = ("solved" if episode.success else "not solved") if ended else ""
            panels.append(np.concatenate([draw_text(name, outcome, frame.shape[1]), frame]))
        gap = np.full((len(panels[0]), GAP, 3), 255, np.uint8)
        joined.append(np.concatenate([part for panel in panels for part in (gap, panel)][1:], axis=1))
    return joined


def draw_text(name: str, outcome: str, width: int) -> Image:
    """Return a line of text on white, (BAR, width, 3)."""
    pillow = import_pillow()
    image = pillow.Image.new("RGB", (width, BAR), (255, 255, 255))
    font = pillow.ImageFont.load_default(size=BAR // 2)
    text = f"{name}: {outcome}" if outcome else name
    pillow.ImageDraw.Draw(image).text((width / 2, BAR / 2), text, COLOURS[outcome], font, anchor="mm")
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
