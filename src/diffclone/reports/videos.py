"""Videos and images of rollouts, embedded in the report."""

import base64
import io
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

MEDIA_TYPES = {
    "mp4": "video/mp4",
    "webm": "video/webm",
    "gif": "image/gif",
    "webp": "image/webp",
    "png": "image/png",
}
"""Accepted file suffixes."""


@final
@dataclass(frozen=True)
class Video:
    """A video or an image of a task."""

    kind: ClassVar[str] = "video"
    task: str
    description: str
    """What happens in it, for readers who cannot see it."""
    media_type: str
    """One of the values of MEDIA_TYPES."""
    content: bytes

    @property
    def address(self) -> str:
        """The content as a data URL."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.content).decode()}"

    @property
    def is_video(self) -> bool:
        """Whether it has controls, unlike an image."""
        return self.media_type.startswith("video/")

    @cached_property
    def still(self) -> str | None:
        """The first frame of an animation as a data URL; the page shows it until the reader points at it."""
        from PIL import Image, UnidentifiedImageError  # comes with matplotlib, which pages need

        if not self.is_animation:
            return None
        buffer = io.BytesIO()
        try:
            with Image.open(io.BytesIO(self.content)) as image:
                image.convert("RGB").save(buffer, "PNG")
        except (UnidentifiedImageError, OSError, ValueError):
            return None
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"

    @property
    def is_animation(self) -> bool:
        """Whether it moves and cannot be paused. Without a still image, the page shows it only after a click."""
        return self.media_type in (MEDIA_TYPES["gif"], MEDIA_TYPES["webp"])
