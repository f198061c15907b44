"""Engines: a mailbox that is replaced, exceptions that cannot be sent, and jobs beside one that is killed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diffclone.cli.sweep import parse_over
from diffclone.errors import InvalidSettings
from diffclone.experiments.executors import cluster
from diffclone.experiments.executors.choose import open_executor
from diffclone.experiments.executors.cluster import BEGUN, RECORD, Mailbox, RayExecutor
from diffclone.experiments.executors.dispatch import Dispatcher, Work
from diffclone.experiments.executors.interface import Callbacks, Event, Needs, WorkerLost
from diffclone.experiments.executors.local import LocalExecutor
from diffclone.experiments.sweep import SweepOptions, configure
from diffclone.methods import BC
from diffclone.records import Record
from executor_jobs import die, fail_unreadably, return_unreadable


def always(value: Any) -> Any:
    """Return a function that returns the value."""

    def call(*_: Any, **__: Any) -> Any:
        return value

    return call


class FakeRay:
    """Enough of Ray for a driver: remote calls run at once, and tasks end when a test says so."""

    exceptions = SimpleNamespace(RayError=OSError, TaskCancelledError=OSError, RayTaskError=OSError)

    def __init__(self) -> None:
        self.ended: dict[str, Any] = {}
        """Results of tasks, by reference."""
        self.submitted: list[tuple[Any, ...]] = []

    def remote(self, what: Any) -> Any:
        made = SimpleNamespace(remote=FakeMailbox if what is Mailbox else self.start)
        return SimpleNamespace(options=always(made))

    def start(self, *arguments: Any) -> str:
        self.submitted.append(arguments)
        return f"task {len(self.submitted)}"

    def wait(self, refs: list[str], **_: Any) -> tuple[list[str], list[str]]:
        return [ref for ref in refs if ref in self.ended], []

    def get(self, value: Any) -> Any:
        return self.ended.get(value, value) if isinstance(value, str) else value

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[Any]:
        return [{"Alive": True, "Resources": {"CPU": 8}}]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "node")

    def cancel(self, ref: str) -> None: ...


class FakeMailbox:
    """The actor, which a test can replace by a new one."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.actor = Mailbox()
        for name in ("put", "take", "stop"):
            setattr(self, name, SimpleNamespace(remote=getattr(self.actor, name)))


def open_fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeRay, RayExecutor, FakeMailbox]:
    ray = FakeRay()
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=always(None))
    monkeypatch.setattr(cluster, "import_ray", always(ray))
    monkeypatch.setattr(cluster.importlib, "import_module", always(strategies))
    monkeypatch.setattr(cluster.importlib.util, "find_spec", always("ray"))
    executor = RayExecutor()
    return ray, executor, cast(Any, executor)._mailbox


def record(name: str) -> Record:
    return Record(name, {}, [], {}, {}, "cpu", 0.0)


def kinds(events: list[Event]) -> list[str]:
    """Return the kinds of the Records."""
    return [event.value[1][0].kind for event in events if event.kind == "message"]


def test_records_that_a_killed_mailbox_lost_arrive_at_the_end_of_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, executor, mailbox = open_fake(monkeypatch)
    executor.submit("a", len, needs=Needs())
    first, second = record("first"), record("second")
    mailbox.actor.put([("a", BEGUN, 1), ("a", RECORD, (1, 0, first))])
    mailbox.restart()
    mailbox.actor.put([("a", RECORD, (1, 1, second))])
    assert kinds(executor.events(0.0)) == ["second"]
    ray.ended["task 1"] = (None, [first, second])
    found = executor.events(0.0)
    assert (kinds(found), found[-1].kind) == (["first"], "finished")


def test_a_late_record_of_a_lost_try_does_not_replace_one_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executor, mailbox = open_fake(monkeypatch)
    executor.submit("a", len, needs=Needs())
    executor.submit("a", len, needs=Needs())
    mailbox.actor.put([("a", BEGUN, 1), ("a", RECORD, (1, 0, record("old")))])
    assert executor.events(0.0) == []
    assert executor.running == 0
    mailbox.actor.put([("a", BEGUN, 2), ("a", RECORD, (2, 0, record("new")))])
    assert kinds(executor.events(0.0)) == ["new"]
    assert executor.running == 1


def test_a_new_mailbox_also_tells_jobs_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executor, mailbox = open_fake(monkeypatch)
    executor.cancel()
    assert mailbox.actor.put([])
    mailbox.restart()
    executor.events(0.0)
    assert mailbox.actor.put([])


def test_an_interrupt_while_jobs_are_submitted_stops_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executor, mailbox = open_fake(monkeypatch)

    def arguments() -> tuple[Any, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Dispatcher(executor, Callbacks([].append)).run([work("a", len), Work("b", len, arguments)])
    assert mailbox.actor.put([])


@pytest.mark.parametrize("on", ["local", "ray"])
def test_no_workers_is_one_line(on: str) -> None:
    with pytest.raises(InvalidSettings, match="at least one worker is needed; 0 were requested"), open_executor(on, 0):
        pass


def test_fields_and_values_of_a_sweep() -> None:
    assert parse_over(["network.width=128,256", "name=a"]) == {"network.width": [128, 256], "name": ["a"]}
    with pytest.raises(InvalidSettings, match=r"--over names network\.width twice"):
        parse_over(["network.width=128", "network.width=256"])
    options = SweepOptions(BC(), {}, (1,))
    assert configure(options, {"network.width": 8}) == replace(BC(), network=replace(BC().network, width=8))
    for name in ("width", "network.size", "network.width.x"):
        with pytest.raises(InvalidSettings, match=f"a field that BC does not have: {name}"):
            configure(options, {name: 8})
    with pytest.raises(InvalidSettings, match=r"a value that its field does not take: network\.width=wide"):
        configure(options, {"network.width": "wide"})


def work(name: str, function: Callable[..., Any], *arguments: Any) -> Work:
    return Work(name, function, lambda: arguments)


def test_jobs_that_wait_are_not_lost_with_one_that_is_always_killed(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("killed", "two", "three", "four", "five")}
    for folder in folders.values():
        folder.mkdir()
    works = [work(name, die, folder, 99 if name == "killed" else 0) for name, folder in folders.items()]
    works += [work("raises", fail_unreadably), work("returns", return_unreadable)]
    done: list[str] = []

    def then(ended: Work, result: Any) -> list[Work]:
        done.append(ended.name)
        return []

    with LocalExecutor(1) as executor:
        failures = Dispatcher(executor, Callbacks([].append), tries=1).run(works, then)
    assert done == ["two", "three", "four", "five"]
    assert {name: type(error) for name, error in failures.items()} == {
        "killed": WorkerLost,
        "raises": RuntimeError,
        "returns": TypeError,
    }
    assert str(failures["raises"]) == "Unreadable: data: line 3"
