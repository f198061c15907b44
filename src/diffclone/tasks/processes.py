"""Worlds that need the interpreter, spread over processes: a row lives in one of them for good."""

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import Rows

PATIENCE = 5.0
"""Seconds after which an idle process looks whether there still is someone to serve."""


@final
class Processes:
    """Copies of an object, one a process. Row r lives in copy r modulo their number; a single copy needs no process."""

    def __init__(self, served: Any, count: int):
        """Fork `count` processes, as PyTorch's loaders of data do: a copy costs nothing and imports nothing."""
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
        """Call a method with rows and one entry of each value a row; it answers with arrays of one entry a row."""
        if not self._pipes:
            return getattr(self.served, name)(rows, *values)
        shares = [np.flatnonzero(rows % len(self._pipes) == k) for k in range(len(self._pipes))]
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send((name, rows[share], *(value[share] for value in values)))
        answers = [pipe.recv() for pipe in self._pipes]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        order = np.concatenate(shares).argsort()
        return tuple(np.concatenate(parts)[order] for parts in zip(*answers, strict=True))

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()
            pipe.close()
        self._pipes, self._processes = [], []


def _serve(served: Any, pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to deal with
    while True:
        while not pipe.poll(PATIENCE):
            if os.getppid() != parent:
                return
        asked = pipe.recv()
        if asked is None:
            return
        name, rows, *values = asked
        try:
            pipe.send(getattr(served, name)(rows, *values))
        except Exception as fault:  # whatever it is, the parent raises it
            pipe.send(fault)
