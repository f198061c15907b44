"""Ctrl-C: at once while the command starts, between two updates while it trains."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn


def leave_on_ctrl_c() -> None:
    """Let Ctrl-C end the process directly, until `raise_on_ctrl_c` is called.

    Nothing is written while modules are imported, and some packages catch every exception there, KeyboardInterrupt too.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job of a shell ignores it
        signal.signal(signal.SIGINT, _leave)


def raise_on_ctrl_c() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def between_updates() -> Generator[Callable[[], None], None, None]:
    """Delay Ctrl-C until the yielded function is called between two updates. A second Ctrl-C is not delayed."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        _print("\nStopping after this update. Press Ctrl-C again to stop at once.")

    def stop() -> None:
        if received:
            raise KeyboardInterrupt("interrupted. A checkpoint is saved. Run the same command to resume.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(*_: Any) -> NoReturn:
    _print("diffclone: interrupted.")
    os._exit(130)


def _print(line: str) -> None:
    """Write to stderr without its buffer, which the interrupted code may be using."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode())
