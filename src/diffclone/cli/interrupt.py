"""Ctrl-C during training."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def between_updates() -> Generator[Callable[[], None], None, None]:
    """Delay Ctrl-C until the yielded function is called between two updates. A second Ctrl-C is not delayed."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    def stop() -> None:
        if received:
            raise KeyboardInterrupt("interrupted. A checkpoint is saved. Run the same command to resume.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
