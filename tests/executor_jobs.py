"""Jobs for tests of engines. Worker processes import this module, which therefore imports little."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from diffclone.experiments.executors.interface import Callbacks
from diffclone.records import Record


def add(values: Any, number: int, callbacks: Callbacks) -> int:
    callbacks.on_record(Record(f"first {number}", {}, [], {}, {}, "cpu", 0.0))
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 0
    callbacks.on_count("cores", int(os.environ["OMP_NUM_THREADS"]), cores)
    return int(values.sum()) + number


def fail(callbacks: Callbacks) -> None:
    raise ArithmeticError("no member has finite weights")


def unpicklable(callbacks: Callbacks) -> Any:
    return lambda: None


class Unreadable(Exception):
    """Pickles, but its constructor takes more than the text that unpickling passes."""

    def __init__(self, path: Path, line: int):
        super().__init__(f"{path}: line {line}")


def fail_unreadably(callbacks: Callbacks) -> None:
    raise Unreadable(Path("data"), 3)


def return_unreadable(callbacks: Callbacks) -> Unreadable:
    return Unreadable(Path("data"), 3)


def die(folder: Path, times: int, callbacks: Callbacks) -> int:
    """Kill the worker at the first `times` tries."""
    tries = len(list(folder.iterdir()))
    (folder / str(tries)).touch()
    callbacks.on_count("tries", tries, times)
    if tries < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


def wait_for_stop(callbacks: Callbacks) -> None:
    callbacks.on_count("began", 0, 1)
    try:
        while True:
            callbacks.check_stop()
            time.sleep(0.01)
    finally:
        callbacks.on_record(Record("stopped", {}, [], {}, {}, "cpu", 0.0))


def fill_memory(size: int, callbacks: Callbacks) -> int:
    filled = b"1" * size
    time.sleep(60)
    return len(filled)
