"""Run environments that need the Python interpreter in several processes. A row stays in one process."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import Rows

POLL_SECONDS = 5.0
"""An idle process checks this often whether its parent still exists."""


def default_processes(count: int) -> int:
    """Return one process per eight rows, at most one per core; a single one where processes are not forked."""
    return max(1, min(count // 8, len(os.sched_getaffinity(0)))) if sys.platform == "linux" else 1


@final
class Processes:
    """Copies of an object, one per process. Copy r mod n serves row r; with n = 1 no process is started."""

    def __init__(self, served: Any, count: int):
        """Fork `count` processes, as PyTorch's data loaders do: forking copies nothing and imports nothing."""
        self.served = served
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        fork: Any = multiprocessing.get_context("fork") if count > 1 else None
        for _ in range(count if count > 1 else 0):
            ours, theirs = multiprocessing.Pipe()
            process = fork.Process(target=_serve, args=(served, theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def call(self, name: str, rows: Rows, *values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Call a method with rows and arrays of one entry per row; it returns arrays of one entry per row."""
        if not self._pipes or not len(rows):
            return getattr(self.served, name)(rows, *values)
        shares = [np.flatnonzero(rows % len(self._pipes) == k) for k in range(len(self._pipes))]
        # A process without rows is not called: an array of no entries has no shape of an entry.
        busy = [(pipe, share) for pipe, share in zip(self._pipes, shares, strict=True) if len(share)]
        for pipe, share in busy:
            pipe.send((name, rows[share], *(value[share] for value in values)))
        results = [pipe.recv() for pipe, _ in busy]
        for result in results:
            if isinstance(result, Exception):
                raise result
        order = np.concatenate(shares).argsort()
        return tuple(np.concatenate(parts)[order] for parts in zip(*results, strict=True))

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()
            pipe.close()
        self._pipes, self._processes = [], []


def _serve(served: Any, pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    while True:
        while not pipe.poll(POLL_SECONDS):
            if os.getppid() != parent:
                return
        request = pipe.recv()
        if request is None:
            return
        name, rows, *values = request
        try:
            pipe.send(getattr(served, name)(rows, *values))
        except Exception as error:  # the parent raises it
            pipe.send(error)
