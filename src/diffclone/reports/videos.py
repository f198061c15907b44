"""Videos and images of rollouts, embedded in the report."""

import base64
from dataclasses import dataclass
from typing import ClassVar, final

MEDIA_TYPES = {"mp4": "video/mp4", "webm": "video/webm", "gif": "image/gif", "png": "image/png"}
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

    @property
    def is_animation(self) -> bool:
        """Whether it moves and cannot be paused. The page shows such an image only after a click."""
        return self.media_type == MEDIA_TYPES["gif"]
