"""Ctrl-C during training."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def between_updates() -> Generator[Callable[[], None], None, None]:
    """Hold back Ctrl-C until the yielded function is called, between two updates; a second Ctrl-C is not held back."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def stop() -> None:
        if asked:
            raise KeyboardInterrupt("interrupted. The checkpoint is kept; the same command goes on from there.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
