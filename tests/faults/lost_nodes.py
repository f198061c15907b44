"""Run quick experiments on a Ray cluster of three local nodes, kill a node and the driver, and compare the Records.

    python tests/faults/lost_nodes.py gradient-field expert-term --only maze,spiral
    python tests/faults/lost_nodes.py all --reference FOLDER --record FILE

prints JSON: how many Records a run in one process has, and how many of them the run on the cluster has with the same
numbers ("equal"), not at all ("missing"), more than once ("twice") or with other numbers ("different"). Measurements of
time are compared by what they are about. `--reference` is the folder of an earlier run in one process.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diffclone.experiments.record_keys import TIMED, content_key
from diffclone.records import Record

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_raylet_start_wait_time_s", "200")  # for a busy machine
NODES = 3
STORE = 80_000_000
"""Bytes of each node's object store."""


def key(record: Record) -> str:
    """Return what must be equal."""
    return f"{record.kind} {record.results['label']}" if record.kind in TIMED else content_key(record)


def compare(expected: Sequence[Record], found: Sequence[Record]) -> dict[str, int]:
    """Count the Records that are equal, missing, there twice, and those that were not expected."""
    wanted, got = Counter(map(key, expected)), Counter(map(key, found))
    return {
        "expected": len(expected),
        "equal": sum((wanted & got).values()),
        "missing": sum((wanted - got).values()),
        "twice": sum(count - 1 for count in got.values() if count > 1),
        "different": sum(count for name, count in got.items() if name not in wanted),
        "failures": sum(record.kind == "failure" for record in found),
    }


@contextmanager
def open_cluster(nodes: int = NODES, cpus: int = 1) -> Generator[Any, None, None]:
    """Yield a cluster of local nodes with one CPU each, and its nodes after the head."""
    cluster = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": cpus, "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        others = [cluster.add_node(num_cpus=cpus, object_store_memory=STORE) for _ in range(nodes - 1)]
        yield cluster, others
    finally:
        cluster.shutdown()


def read(folder: Path) -> list[Record]:
    """Return the Records in a folder. The driver may be writing the last line."""
    path = folder / "records.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [Record(**json.loads(line)) for line in lines]


def start(arguments: Sequence[str], folder: Path, address: str | None = None) -> subprocess.Popen[bytes]:
    """Start a driver."""
    on = ["--on", "ray"] if address else []
    command = [sys.executable, "-m", "diffclone", "reproduce", *arguments, "--quick", "--device", "cpu", "--no-cache"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"RAY_ADDRESS": address} if address else {})}
    log = (folder.parent / f"{folder.name}.log").open("ab")
    return subprocess.Popen([*command, *on, "--json", "--out", str(folder)], env=environment, stdout=log, stderr=log)


def wait_for(count: int, folder: Path, driver: subprocess.Popen[bytes]) -> None:
    """Wait until there are so many Records, or the driver has ended."""
    while len(read(folder)) < count and driver.poll() is None:
        time.sleep(0.2)


def run_with_losses(arguments: Sequence[str], folder: Path, expected: int) -> dict[str, Any]:
    """Run on a cluster; kill a node after a third of the Records, and the driver after two thirds."""
    begun, drivers = time.monotonic(), 1
    with open_cluster() as (cluster, nodes):
        driver = start(arguments, folder, cluster.address)
        wait_for(expected // 3, folder, driver)
        at_node = len(read(folder))
        cluster.remove_node(nodes[-1], allow_graceful=False)
        wait_for(2 * expected // 3, folder, driver)
        at_driver = len(read(folder))
        driver.send_signal(signal.SIGKILL)
        killed = driver.wait() == -signal.SIGKILL
        while True:
            driver = start(arguments, folder, cluster.address)
            drivers += 1
            if driver.wait() == 0 or drivers > 4:
                break
    return {
        "nodes": NODES,
        "records_before_node_was_killed": at_node,
        "records_before_driver_was_killed": at_driver,
        "driver_killed": killed,
        "drivers": drivers,
        "exit_code": driver.returncode,
        "seconds": round(time.monotonic() - begun, 1),
    }


def run(names: Sequence[str], only: str, folder: Path, reference: Path | None = None) -> dict[str, Any]:
    """Run experiments in one process and on the cluster, and compare."""
    arguments, alone, begun = [*names, *(["--only", only] if only else [])], reference or folder / "alone", time.time()
    if reference is None:
        assert start(arguments, alone).wait() == 0, (folder / "alone.log").read_text()
    expected = read(alone)
    seconds = {} if reference else {"seconds_in_one_process": round(time.time() - begun, 1)}
    report = run_with_losses(arguments, folder / "cluster", len(expected))
    return {"experiments": list(names), "only": only} | report | seconds | compare(expected, read(folder / "cluster"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--record", type=Path, help="append a Record to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        begun = time.monotonic()
        found = run(arguments.names, arguments.only, Path(temporary), arguments.reference)
    print(json.dumps(found))
    if arguments.record:
        seconds = time.monotonic() - begun
        Record("scale", {"what": "lost nodes"}, [], {}, found, "cpu", seconds, quick=True).append_to(arguments.record)
    sys.exit(0 if found["equal"] == found["expected"] and not found["twice"] and not found["different"] else 1)


if __name__ == "__main__":
    main()
