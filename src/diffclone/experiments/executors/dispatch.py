"""Submit jobs to an engine, pass on what they report, and do those again that are lost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

from diffclone.experiments.executors.interface import Callbacks, Event, Executor, JobCounts, Needs, WorkerLost

TRIES = 3
"""How often a job is begun that is lost each time."""
POLL_SECONDS = 0.2


@final
@dataclass(frozen=True)
class Work:
    """A job."""

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...] | None]
    """Called at each try, since part of the job may be done; None if nothing is left to do."""
    needs: Needs = Needs()


@final
class Dispatcher:
    """Runs jobs with an engine."""

    def __init__(self, executor: Executor, callbacks: Callbacks, tries: int = TRIES):
        self.executor, self.callbacks, self.tries = executor, callbacks, tries
        self.active: dict[str, Work] = {}
        self.begun: dict[str, int] = {}
        """Tries of each job."""
        self.done = 0
        self.failures: dict[str, BaseException] = {}
        self.counts: JobCounts | None = None

    def run(
        self, works: Iterable[Work], then: Callable[[Work, Any], Iterable[Work]] = lambda work, result: ()
    ) -> dict[str, BaseException]:
        """Run jobs, and those that `then` returns when one has finished. Return why jobs failed, by name."""
        try:
            for work in works:
                self.submit(work)
            while self.active:
                self.callbacks.check_stop()
                for event in self.executor.events(POLL_SECONDS):
                    work = self.active.get(event.job)
                    if work is not None and self.handle(event, work):
                        for more in then(work, event.value):
                            self.submit(more)
                self.report()
        except BaseException:
            self.stop()
            raise
        return self.failures

    def submit(self, work: Work) -> None:
        """Begin a job."""
        arguments = work.arguments()
        if arguments is None:
            self.done += 1
            return
        self.active[work.name] = work
        self.begun[work.name] = self.begun.get(work.name, 0) + 1
        self.executor.submit(work.name, work.function, *arguments, needs=work.needs)

    def handle(self, event: Event, work: Work) -> bool:
        """Return whether the job has finished."""
        if event.kind == "message":
            name, values = event.value
            getattr(self.callbacks, name)(*values)
            return False
        del self.active[work.name]
        if event.kind == "finished":
            self.done += 1
            return True
        if event.kind == "failed":
            self.failures[work.name] = event.value
        elif self.begun[work.name] < self.tries:
            self.submit(work)
        else:
            self.failures[work.name] = WorkerLost(
                f"{work.name} was lost {self.tries} times ({event.value}). Finished results are kept; run the same "
                "command to try it again."
            )
        return False

    def report(self) -> None:
        """Pass on how many jobs there are, if that has changed."""
        running = min(self.executor.running, len(self.active))
        counts = JobCounts(running, len(self.active) - running, self.done, len(self.failures))
        if counts != self.counts:
            self.counts = counts
            self.callbacks.on_jobs(counts)

    def stop(self) -> None:
        """Tell all jobs to stop, and pass on what they still report. They save their state first."""
        self.executor.cancel()
        while self.executor.running:
            for event in self.executor.events(POLL_SECONDS):
                if event.kind == "message":
                    name, values = event.value
                    getattr(self.callbacks, name)(*values)


def raise_first(failures: dict[str, BaseException]) -> None:
    """Raise the first failure, if there is one."""
    for error in failures.values():
        raise error
