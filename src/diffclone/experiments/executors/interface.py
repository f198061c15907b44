"""What an engine does: it runs functions in other processes and reports what happens to them.

A job is a function that is called with its arguments and, as the last one, with `Callbacks`. What it reports there
arrives in the driver, the process that submits jobs, as messages. Only the driver writes Records.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

from diffclone.errors import DiffcloneError
from diffclone.records import Record
from diffclone.training import Progress


class WorkerLost(DiffcloneError, RuntimeError):
    """A job whose worker ended, several times, before the job was done."""


@final
@dataclass(frozen=True)
class JobCounts:
    """How many jobs there are."""

    running: int = 0
    waiting: int = 0
    done: int = 0
    failed: int = 0


@final
@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while jobs run."""

    on_record: Callable[[Record], None]
    """Called with each new Record."""
    on_training: Callable[[str, Progress], None] = lambda label, progress: None
    on_count: Callable[[str, int, int], None] = lambda label, done, total: None
    """Called with the number of episodes, pairs, … that are done, and their total."""
    check_stop: Callable[[], None] = lambda: None
    """Called between steps. Raises KeyboardInterrupt to stop."""
    on_jobs: Callable[[JobCounts], None] = lambda counts: None
    """Called when a job begins or ends."""


MESSAGES = ("on_record", "on_training", "on_count")
"""The callbacks that a job can call in the driver."""


@final
@dataclass(frozen=True)
class Needs:
    """What a job occupies while it runs. The local engine has one job per worker instead."""

    cpus: float = 1.0
    gpus: float = 0.0
    """A fraction shares a GPU: 0.25 is four jobs per GPU."""
    memory: int = 0
    """Bytes; 0 if unknown."""


@final
@dataclass(frozen=True)
class Event:
    """Something that happened to a job."""

    job: str
    kind: Literal["message", "finished", "failed", "lost"]
    """`lost`: the worker ended or could not be reached, and the job can be submitted again."""
    value: Any
    """The name of a callback and its values; the result; the exception; or why it was lost."""


class Executor(ABC):
    """An engine. All methods are called by the driver, in one thread."""

    sees_files: bool
    """Whether workers are processes of this machine, which read and write the same files."""

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Store a large value once for all jobs; pass the result to `submit` as an argument."""

    @abstractmethod
    def submit(self, job: str, function: Callable[..., Any], *arguments: Any, needs: Needs) -> None:
        """Queue a job. Its name must not be that of a job that is queued or running."""

    @abstractmethod
    def events(self, timeout: float) -> list[Event]:
        """Return what has happened, after at most about `timeout` seconds. Messages of a job come before its end."""

    @property
    @abstractmethod
    def running(self) -> int:
        """The number of jobs that have begun and not ended."""

    @abstractmethod
    def cancel(self) -> None:
        """Drop the jobs that are queued, and tell the running ones to stop; they still report their end."""

    @abstractmethod
    def close(self) -> None:
        """End the workers, at once."""

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
