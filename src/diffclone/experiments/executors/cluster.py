"""Jobs on a Ray cluster: https://docs.ray.io. Ray is imported when an address is opened.

A job is one Ray task. Its messages go through a mailbox, an actor on the driver's node, which also tells jobs to stop.
(Streaming generators would do the same, but the Ray Client, ray://HOST:PORT, has none.) If Ray kills the mailbox, when
memory is short, a new one replaces it; a task therefore returns its Records again at its end. Ray itself retries no
job: the driver knows which Records of a job it has, and submits the rest again (`dispatch.py`).
"""

import importlib
import importlib.util
import os
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, final
from urllib.parse import urlsplit

from diffclone.errors import DiffcloneError, DiffcloneWarning, MissingPackage, install_command
from diffclone.experiments.executors.interface import MESSAGES, Callbacks, Event, Executor, Needs
from diffclone.records import Record, versions

BEGUN, RECORD = "begun", "record"
CONNECT_SECONDS = 5.0
FLUSH_SECONDS = 1.0
"""How often a job sends its progress. Records are sent at once."""


class ClusterError(DiffcloneError, RuntimeError):
    """A Ray cluster that does not answer, is full or was lost."""


def import_ray() -> Any:
    """Return Ray, with its usage statistics turned off unless the user has turned them on."""
    if importlib.util.find_spec("ray") is None:
        raise MissingPackage(f"--on ray needs the package ray. Try: {install_command('ray')}.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return importlib.import_module("ray")


def connect(address: str | None) -> Any:
    """Connect to a cluster and return Ray.

    None is the cluster of RAY_ADDRESS, else one that `ray start` has started on this machine, else a new one.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address not in (None, "auto", "local"):
        check_address(address)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except Exception as error:  # a node that does not start in time raises just that
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ClusterError(f"cannot use Ray at {address or 'this machine'}: {reason}") from None
    return ray


def check_address(address: str) -> None:
    """Raise an error if nothing listens at HOST:PORT; Ray itself would try for a long time."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        where = (parts.hostname, parts.port or (10001 if parts.scheme == "ray" else 6379))
        with socket.create_connection(where, CONNECT_SECONDS):
            return
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error}). Check `ray status` on its head node, or use --on local."
        ) from None


class Mailbox:
    """An actor: keeps messages of jobs until the driver takes them."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, Any]] = []
        self.stopped = False

    def put(self, messages: list[tuple[str, str, Any]]) -> bool:
        """Add messages; return whether jobs should stop."""
        self.messages += messages
        return self.stopped

    def take(self) -> list[tuple[str, str, Any]]:
        """Return all messages and forget them."""
        taken, self.messages = self.messages, []
        return taken

    def stop(self) -> None:
        """Tell jobs to stop."""
        self.stopped = True


class RayExecutor(Executor):
    """A Ray cluster."""

    sees_files = False

    def __init__(self, address: str | None = None):
        already = importlib.util.find_spec("ray") is not None and import_ray().is_initialized()
        self.ray, self._owned = connect(address), not already
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        node = strategies.NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": node}
        self._mailbox = self.ray.remote(Mailbox).options(**options).remote()
        self._task = self.ray.remote(run_there)
        self._refs: dict[Any, str] = {}
        self._begun: set[str] = set()
        self._cancelled = False
        self._tries: dict[str, int] = {}
        """How often each job was submitted: messages of an earlier try may still arrive."""
        self._records: dict[str, set[int]] = {}
        """The numbers of the Records that have arrived from the latest try of each job."""
        self._warned: set[Needs] = set()

    def share(self, value: Any) -> Any:
        """Put the value into the object store."""
        try:
            return self.ray.put(value)
        except (self.ray.exceptions.ObjectStoreFullError, self.ray.exceptions.OutOfDiskError):
            raise ClusterError(
                "Ray's object store is full: it cannot hold the demonstrations. Nothing was lost; start the cluster "
                "with a larger --object-store-memory, or free disk space, and run the same command again."
            ) from None

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any, needs: Needs) -> None:
        """Queue a job."""
        self.check_needs(needs)
        options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_retries": 0, "name": job}
        options |= {"memory": needs.memory} if needs.memory else {}
        known = versions().get("diffclone")
        self._tries[job] = self._tries.get(job, 0) + 1
        about = (job, self._tries[job], known, needs.cpus)
        ref = self._task.options(**options).remote(self._mailbox, *about, function, *arguments)
        self._refs[ref] = job
        self._records[job] = set()

    def check_needs(self, needs: Needs) -> None:
        """Warn if no node has enough for a job: an autoscaler may add one, otherwise the job waits forever."""
        if needs in self._warned:
            return
        self._warned.add(needs)
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= value for name, value in wanted.items()) for node in nodes):
            text = f"{needs.cpus:g} CPUs, {needs.gpus:g} GPUs and {needs.memory / 1e9:g} GB of memory"
            message = f"no node of the Ray cluster has {text}: jobs wait until one joins. --needs changes it."
            warnings.warn(message, DiffcloneWarning, stacklevel=2)

    def events(self, timeout: float) -> list[Event]:
        """Return messages, and the ends of tasks. A Record is in the mailbox before its task ends."""
        errors = self.ray.exceptions
        try:
            refs = list(self._refs)
            if refs:
                self.ray.wait(refs, num_returns=1, timeout=timeout, fetch_local=False)
                ended, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
            else:
                ended = []
                time.sleep(timeout)
            if self._cancelled:
                self._mailbox.stop.remote()  # again: a mailbox that was replaced does not know it
            messages = self.ray.get(self._mailbox.take.remote())
        except (errors.RayError, ConnectionError) as error:
            self._refs, self._begun = {}, set()
            raise ClusterError(
                f"the Ray cluster was lost ({type(error).__name__}). Finished results are kept; run the same command "
                "to resume."
            ) from None
        found: list[Event] = []
        for job, kind, value in messages:
            if kind == BEGUN and value == self._tries[job]:
                self._begun.add(job)
            elif kind == RECORD:
                found += self.new_record(job, *value)
            elif kind != BEGUN:
                found.append(Event(job, "message", value))
        for ref in ended:
            job = self._refs.pop(ref)
            self._begun.discard(job)
            end = self.outcome(job, ref)
            if end.kind == "finished":
                result, records = end.value
                current = self._tries[job]
                found += [e for k, record in enumerate(records) for e in self.new_record(job, current, k, record)]
                end = Event(job, "finished", result)
            found.append(end)
        return found

    def new_record(self, job: str, attempt: int, number: int, record: Record) -> list[Event]:
        """Return the message of a Record, unless it has arrived before or the latest try sends it again."""
        if attempt != self._tries[job] or number in self._records[job]:
            return []
        self._records[job].add(number)
        return [Event(job, "message", ("on_record", (record,)))]

    def outcome(self, job: str, ref: Any) -> Event:
        """Return how a task has ended; the value of one that has finished is its result and all its Records."""
        errors = self.ray.exceptions
        try:
            return Event(job, "finished", self.ray.get(ref))
        except errors.TaskCancelledError as error:
            return Event(job, "failed", error)
        except errors.RayTaskError as error:
            return Event(job, "failed", error.cause if isinstance(error.cause, BaseException) else error)
        except errors.RayError as error:
            reasons = {
                "OutOfMemoryError": "its worker ran out of memory",
                "WorkerCrashedError": "its worker died",
                "NodeDiedError": "its node died",
            }
            return Event(job, "lost", reasons.get(type(error).__name__, type(error).__name__))

    @property
    def running(self) -> int:
        """The number of tasks that have begun."""
        return len(self._begun)

    def cancel(self) -> None:
        """Cancel tasks that wait; set a flag for the others, so that they save their state."""
        self._cancelled = True
        with suppress(Exception):  # a cluster that is lost has nothing to cancel
            self.ray.get(self._mailbox.stop.remote())
            for ref, job in list(self._refs.items()):
                if job not in self._begun:
                    self.ray.cancel(ref)

    def close(self) -> None:
        """Cancel everything, and leave the cluster."""
        with suppress(Exception):
            for ref in self._refs:
                self.ray.cancel(ref, force=True)
            self.ray.kill(self._mailbox)
        self._refs, self._begun = {}, set()
        if self._owned:
            self.ray.shutdown()


# In a worker process:


@final
class Reporter:
    """Sends messages of a job to the mailbox."""

    def __init__(self, mailbox: Any, job: str, attempt: int):
        self.mailbox, self.job, self.attempt = mailbox, job, attempt
        self.ray = importlib.import_module("ray")
        self.latest: dict[str, tuple[str, str, Any]] = {}
        """The latest message of each progress callback: older ones need not be sent."""
        self.records: list[Record] = []
        self.sent = time.monotonic()

    def report(self, name: str, *values: Any) -> None:
        """Send a Record at once, and progress with the next flush."""
        if name == "on_record":
            self.records.append(values[0])
            self.flush([(self.job, RECORD, (self.attempt, len(self.records) - 1, values[0]))])
        else:
            self.latest[name] = (self.job, "message", (name, values))

    def flush(self, messages: list[tuple[str, str, Any]]) -> bool:
        """Send messages, wait until they have arrived, and return whether the job should stop."""
        waiting = [*self.latest.values(), *messages]
        self.latest, self.sent = {}, time.monotonic()
        return self.ray.get(self.mailbox.put.remote(waiting))

    def check_stop(self) -> None:
        """Raise KeyboardInterrupt if the driver wants the job to stop; asks it every second."""
        if time.monotonic() - self.sent >= FLUSH_SECONDS and self.flush([]):
            raise KeyboardInterrupt


def run_there(
    mailbox: Any,
    job: str,
    attempt: int,
    version: str | None,
    cpus: float,
    function: Callable[..., Any],
    *arguments: Any,
) -> Any:
    """Run a job in a worker of the cluster; return its result and all its Records."""
    import torch

    here = versions().get("diffclone")
    if here != version:
        raise ClusterError(f"the driver has diffclone {version} and a worker {here}. Install the same on all nodes.")
    torch.set_num_threads(max(1, int(cpus)))
    reporter = Reporter(mailbox, job, attempt)
    reporter.flush([(job, BEGUN, attempt)])
    callbacks = Callbacks(**{name: partial(reporter.report, name) for name in MESSAGES}, check_stop=reporter.check_stop)
    try:
        return function(*arguments, callbacks), reporter.records
    except KeyboardInterrupt:
        raise ClusterError("the job was stopped") from None
