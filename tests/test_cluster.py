"""A real Ray cluster: lost nodes, workers and drivers, a full object store, the Ray Client and a sweep."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from diffclone.experiments.executors.cluster import ClusterError, RayExecutor, connect
from diffclone.experiments.executors.dispatch import Dispatcher, Work
from diffclone.experiments.executors.interface import Callbacks, Needs, WorkerLost
from diffclone.records import Record
from executor_jobs import add, die, fail, fill_memory, wait_for_stop
from faults.lost_nodes import run

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _small_cluster(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:  # pyright: ignore[reportUnusedFunction]
    """Let `connect` start a new cluster, whose workers find the modules of the tests; leave none behind."""
    import ray

    paths = [str(Path(__file__).parent), *sys.path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.setenv("RAY_ADDRESS", "local")
    yield
    ray.shutdown()


def work(name: str, function: Callable[..., Any], *arguments: Any) -> Work:
    return Work(name, function, lambda: arguments, Needs())


def test_a_killed_node_and_a_killed_driver_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS")
    found = run(["gradient-field", "expert-term"], "spiral,maze,bc,dbc", tmp_path)
    assert (found["exit_code"], found["driver_killed"]) == (0, True)
    assert found["equal"] == found["expected"] > 4
    assert (found["missing"], found["twice"], found["different"], found["failures"]) == (0, 0, 0, 0)


def test_results_messages_failures_lost_workers_and_a_stop(tmp_path: Path) -> None:
    records: list[Record] = []
    results: dict[str, Any] = {}

    def then(ended: Work, result: Any) -> list[Work]:
        results[ended.name] = result
        return []

    with RayExecutor() as executor:
        shared = executor.share(np.arange(4))
        works = [work("one", add, shared, 1), work("bad", fail), work("lost", die, tmp_path, 1)]
        failures = Dispatcher(executor, Callbacks(records.append)).run(works, then)
        assert {name: type(error) for name, error in failures.items()} == {"bad": ArithmeticError}
        assert results == {"one": 7, "lost": 1}
        assert [record.kind for record in records] == ["first 1"]
        (error,) = Dispatcher(executor, Callbacks(records.append), 2).run([work("x", die, tmp_path, 99)]).values()
        assert isinstance(error, WorkerLost)
        assert str(error).startswith("x was lost 2 times (its worker died).")

        def stop() -> None:
            if executor.running:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Dispatcher(executor, Callbacks(records.append, check_stop=stop)).run([work("a", wait_for_stop)])
        assert records[-1].kind == "stopped"


def test_a_worker_that_runs_out_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()
    monkeypatch.setenv("RAY_memory_usage_threshold", str(round(memory.percent / 100 + 0.08, 3)))
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    with RayExecutor() as executor:
        works = [work("big", fill_memory, int(0.12 * memory.total))]
        (error,) = Dispatcher(executor, Callbacks([].append), 2).run(works).values()
    assert str(error).startswith("big was lost 2 times (its worker ran out of memory).")


def test_a_full_object_store_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "0.0001")  # the disk is fuller than that
    monkeypatch.setenv("RAY_object_store_memory", "80000000")
    with RayExecutor() as executor, pytest.raises(ClusterError, match="object store is full: it cannot hold"):
        _ = [executor.share(np.ones(10**9 // 8)) for _ in range(8)]


def test_an_address_that_does_not_answer_takes_seconds() -> None:
    with socket.socket() as server:  # accepts connections and says nothing
        server.bind(("127.0.0.1", 0))
        server.listen()
        begun = time.monotonic()
        with pytest.raises(ClusterError, match=r"cannot use Ray at ray://127\.0\.0\.1"):
            connect(f"ray://127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - begun < 60


def sweep(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a small sweep in its own process: Ray Tune pickles a class that the type checks of the tests wrap."""
    over = ["--over", "network.width=8,32", "training.lr=0.001,0.0003"]
    flags = ["spiral", *over, "--snapshots", "32", "64", "--seeds", "2", "--device", "cpu", "--out", str(folder)]
    command = [sys.executable, "-m", "diffclone", "sweep", *flags, "--json", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_sweep_resumes_and_chooses(tmp_path: Path) -> None:
    results: list[Any] = []
    for _ in range(2):
        done = sweep(tmp_path / "out")
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
    assert results[0] == results[1], "nothing is repeated"
    records = Record.read_all(tmp_path / "out" / "records.jsonl")
    tried = [(*record.results["sweep"].values(), record.results["snapshot"]) for record in records]
    assert len(set(tried)) == len(tried) == results[0]["records"]
    assert {(width, lr) for width, lr, _ in tried} == {(w, lr) for w in (8, 32) for lr in (0.001, 0.0003)}
    assert len(tried) < 8, "ASHA stopped some at the first snapshot"
    assert results[0]["method"]["network"]["width"] == results[0]["chosen"]["network.width"]
    assert (tmp_path / "out" / "run" / "policy" / "config.json").exists()
    other = sweep(tmp_path / "out", "--method", "dbc")
    assert other.returncode == 2
    assert "holds another sweep" in other.stderr


def test_ctrl_c_ends_a_sweep_that_the_same_command_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    flags = ["spiral", "--over", "network.width=8,16", "--snapshots", "32", "3000", "--seeds", "1", "--device", "cpu"]
    command = [sys.executable, "-m", "diffclone", "sweep", *flags, "--keep", "1", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "records.jsonl").exists() and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.strip().splitlines()[-1] == "diffclone: interrupted. Run the same command to resume."
    assert not (folder / "run").exists(), "nothing is chosen among some of the trials"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tried = {(*r.results["sweep"].values(), r.results["snapshot"]) for r in Record.read_all(folder / "records.jsonl")}
    assert tried == {(width, update) for width in (8, 16) for update in (32, 3000)}, "--keep 1 continues all"
    assert (folder / "run" / "policy" / "config.json").exists()
