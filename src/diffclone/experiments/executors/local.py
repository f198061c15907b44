"""Jobs in processes of this machine: `ProcessPoolExecutor` of the standard library.

Messages come through one pipe with a lock. A worker that is killed breaks the pool, which ends the other workers too; a
new pool with a new pipe then replaces it. The jobs that had begun are lost, the others are submitted again.
"""

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

import torch

from diffclone.experiments.executors.interface import MESSAGES, Callbacks, Event, Executor, Needs

BEGUN = "begun"
JOIN_SECONDS = 10.0
"""How long to wait for the last messages of a pool that broke."""


@final
class SharedFile:
    """A value that is stored in a file, which each worker reads once."""

    def __init__(self, path: Path):
        self.path = path


class LocalExecutor(Executor):
    """A number of worker processes, each with its share of the CPU cores."""

    sees_files = True

    def __init__(self, workers: int):
        self.workers = workers
        self._context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="diffclone-")
        self._shared = 0
        self._open()

    def _open(self) -> None:
        """Start a pool; its processes start when jobs are submitted."""
        self._futures: dict[str, Future[None]] = {}
        self._calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        """The function and arguments of each job that has not ended."""
        self._begun: dict[str, int] = {}
        self._inbox: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        reader, self._writer = self._context.Pipe(duplex=False)
        self._stop = self._context.RawValue("b", 0)  # without a lock, which a killed worker might keep
        shares = [core_share(index, self.workers) for index in range(self.workers)]
        arguments = (self._writer, self._context.Lock(), self._stop, self._context.Value("i", 0), shares)
        self._pool = ProcessPoolExecutor(self.workers, self._context, initializer=start_worker, initargs=arguments)
        self._thread = threading.Thread(target=read_messages, args=(reader, self._inbox), daemon=True)
        self._thread.start()

    def share(self, value: Any) -> Any:
        """Write the value to a temporary file."""
        path = Path(self._folder.name) / str(self._shared)
        self._shared += 1
        path.write_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
        return SharedFile(path)

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any, needs: Needs) -> None:
        """Queue a job. A process that is started for it inherits that Ctrl-C is ignored."""
        main = threading.current_thread() is threading.main_thread()
        self._calls[job] = function, arguments
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
        try:
            self._futures[job] = self._pool.submit(run_here, job, function, arguments)
        except BrokenProcessPool as error:  # `events` notices it
            self._futures[job] = Future()
            self._futures[job].set_exception(error)
        finally:
            if main:
                signal.signal(signal.SIGINT, handler)

    def events(self, timeout: float) -> list[Event]:
        """Return the messages in the pipe; the end of a job is one of them unless its process was lost."""
        found = self._drain(timeout)
        errors = {job: f.exception() for job, f in self._futures.items() if f.done() and not f.cancelled()}
        if any(isinstance(error, BrokenProcessPool) for error in errors.values()):
            self._pool.shutdown(wait=True)
            self._writer.close()  # all other ends are closed too, so that the thread comes to the end of the pipe
            self._thread.join(JOIN_SECONDS)
            found += self._drain(0.0)
            # If none had begun, the workers do not start, and jobs that are submitted again would wait forever.
            all_lost = not self._begun or self._stop.value
            waiting = {} if all_lost else {job: call for job, call in self._calls.items() if job not in self._begun}
            found += [Event(job, "lost", "its process was killed") for job in self._calls if job not in waiting]
            self._open()
            for job, (function, arguments) in waiting.items():
                self.submit(job, function, *arguments, needs=Needs())
            return found
        # A job or a result that cannot be pickled has no message.
        broken = {job: error for job, error in errors.items() if error is not None and job in self._futures}
        for job, error in broken.items():
            self._forget(job)
            found.append(Event(job, "failed", error))
        return found

    def _drain(self, timeout: float) -> list[Event]:
        found: list[Event] = []
        try:
            while True:
                job, kind, value = self._inbox.get(block=not found and timeout > 0, timeout=timeout or None)
                if kind == BEGUN:
                    self._begun[job] = value
                    continue
                if kind != "message":
                    self._forget(job)
                found.append(Event(job, kind, value))  # pyright: ignore[reportArgumentType]
        except queue.Empty:
            return found

    def _forget(self, job: str) -> None:
        self._futures.pop(job, None)
        self._calls.pop(job, None)
        self._begun.pop(job, None)

    @property
    def running(self) -> int:
        """The number of jobs that have begun."""
        return len(self._begun)

    def cancel(self) -> None:
        """Set the flag that `check_stop` of the workers reads."""
        self._stop.value = 1
        for job, future in list(self._futures.items()):
            if future.cancel():
                self._forget(job)

    def close(self) -> None:
        """End the processes."""
        for process in self._begun.values():
            with suppress(OSError):
                os.kill(process, signal.SIGTERM)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._writer.close()
        self._thread.join(JOIN_SECONDS)
        self._folder.cleanup()


def read_messages(reader: Connection, inbox: "queue.SimpleQueue[tuple[str, str, Any]]") -> None:
    """Move messages from the pipe to a queue, until all processes have closed the pipe."""
    with suppress(EOFError, OSError):
        while True:
            job, kind, content = reader.recv()
            try:
                inbox.put((job, kind, pickle.loads(content)))
            except Exception as error:  # of any class: unpickling calls constructors
                inbox.put((job, "failed", error))


# In a worker process:


class Worker:
    """What a worker process knows."""

    def __init__(self, writer: Connection, lock: Any, stop: Any):
        self.writer, self.lock, self.stop = writer, lock, stop

    def send(self, job: str, kind: str, value: Any) -> None:
        """Send one message to the driver."""
        content = pickle.dumps(value)  # separately, so that the driver knows whose value it is if it cannot read it
        with self.lock:
            self.writer.send((job, kind, content))

    def check_stop(self) -> None:
        """Raise KeyboardInterrupt if the driver wants this process to stop."""
        if self.stop.value:
            raise KeyboardInterrupt


WORKER: list[Worker] = []
"""The worker of this process."""


CoreShare = tuple[int, set[int] | None]


def start_worker(writer: Connection, lock: Any, stop: Any, counter: Any, shares: list[CoreShare]) -> None:
    """Prepare a process: its share of the cores, and its end if the driver is killed."""
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    limit_threads(*shares[index % len(shares)])
    WORKER.append(Worker(writer, lock, stop))
    threading.Thread(target=end_with_driver, daemon=True).start()


def end_with_driver() -> None:
    """Wait for the end of the driver, which may have been killed, and end this process."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)


def run_here(job: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Run a job in a worker process."""
    worker = WORKER[0]

    def report(name: str, *values: Any) -> None:
        worker.send(job, "message", (name, values))

    callbacks = Callbacks(**{name: partial(report, name) for name in MESSAGES}, check_stop=worker.check_stop)
    worker.send(job, BEGUN, os.getpid())
    try:
        worker.check_stop()
        values = [read_shared(a.path) if isinstance(a, SharedFile) else a for a in arguments]
        result = function(*values, callbacks)
    except (Exception, KeyboardInterrupt) as error:
        worker.send(job, "failed", picklable(error))
    else:
        worker.send(job, "finished", result)


def picklable(error: BaseException) -> BaseException:
    """Return the exception, or one with the same text if another process could not read it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@cache
def read_shared(path: Path) -> Any:
    """Read a value of `share`, once per process."""
    return pickle.loads(path.read_bytes())


def core_share(index: int, count: int) -> CoreShare:
    """Return the number of threads of one of several processes, and its CPU cores where the system has a choice."""
    threads = max(1, torch.get_num_threads() // count)
    if sys.platform != "linux":
        return threads, None
    cores = sorted(os.sched_getaffinity(0))
    return threads, {*cores[index::count]} or {cores[index % len(cores)]}


def limit_threads(threads: int, cores: set[int] | None) -> None:
    """Limit this process to its share of the machine: several processes would otherwise use all cores each."""
    if cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, cores)  # MuJoCo starts one thread per core
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of processes that this one starts
    torch.set_num_threads(threads)
