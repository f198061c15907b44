"""Rollouts of the tasks, held by the page itself."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from diffclone.reports.words import text

MEDIA = {"mp4": "video/mp4", "webm": "video/webm", "gif": "image/gif", "png": "image/png"}


@final
@dataclass(frozen=True)
class Film:
    """A video or a picture of a task."""

    task: str
    about: str
    """What is done in it: said to those who do not see it."""
    media: str
    """One of MEDIA's values."""
    content: bytes

    def to_html(self) -> str:
        """A video plays when asked to; an animation, which cannot be stopped, is shown when asked to."""
        address = f"data:{self.media};base64,{base64.b64encode(self.content).decode()}"
        said = text(f"{self.task}: {self.about}")
        if self.media.startswith("video/"):
            shown = (
                f'<video controls muted loop playsinline preload="metadata" aria-label="{said}" src="{address}">'
                f"{said}</video>"
            )
        else:
            shown = f'<img alt="{said}" src="{address}">'
        if self.media == MEDIA["gif"]:
            shown = f"<details><summary>Show the animation of {text(self.task)}</summary>{shown}</details>"
        return f"<figure>{shown}<figcaption>{said}</figcaption></figure>"


def films_html(films: Sequence[Film]) -> str:
    """Side by side where there is room."""
    return f'<div class="films">{"".join(film.to_html() for film in films)}</div>'
