"""Measure the latency of a deployed policy: microseconds per action in one process, milliseconds over HTTP.

OMP_NUM_THREADS=1 python -m benchmarks.serving                        print two tables
OMP_NUM_THREADS=1 python -m benchmarks.serving --json --out FILE      print JSON and append a Record to FILE
OMP_NUM_THREADS=1 python -m benchmarks.serving --soak 600             1,000 requests per second for 10 minutes
OMP_NUM_THREADS=1 python -m benchmarks.serving --soak 60 --hostile    the same beside slow and hostile clients

The policy is BC with the sizes of Maze (observation 6, action 2) and three hidden layers of 256 units, trained for one
update because the latency does not depend on the weights. In one process, `Policy`, the ONNX export in onnxruntime on
one thread and the NumPy export in `diffclone.deploy.runtime` alternate in rounds of 0.2 s, one observation per call;
the result is the median over rounds.

Over HTTP, the servers (http_servers.py) run at the same time, each in its own process, and are measured in turns.
1, 16, 64 or 256 clients keep their connections and send the next request when they have a response (http_load.py).
"""

import asyncio
import itertools
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from benchmarks.http_load import Observations, be_hostile, measure_load, measure_soak, summarise_loads
from benchmarks.http_servers import BODIES, NPY, available, running
from diffclone import BC, Network, Policy, Training, fit
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.deploy import runtime
from diffclone.deploy.export import export, load_onnx
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS

ROUND_SECONDS = 0.2
CLIENTS = (1, 16, 64, 256)
METHOD = BC(training=Training(updates=1), network=Network(width=256, depth=3))


def load_policies(policy: Policy, folder: Path) -> dict[str, Callable[[Any], Any]]:
    """Return the policy in three forms."""
    export(policy, folder / "policy.onnx", "onnx")
    export(policy, folder / "policy.npz", "numpy")
    onnx = load_onnx(folder / "policy.onnx")
    return {
        "Policy (torch)": policy,
        "ONNX (onnxruntime)": lambda obs: onnx(obs[None])[0],
        "diffclone.deploy.runtime (NumPy)": runtime.load(folder / "policy.npz"),
    }


def time_round(act: Callable[[Any], Any], observations: Observations) -> float:
    """Return the microseconds per action."""
    calls, start, passed = 0, time.perf_counter(), 0.0
    for obs in itertools.cycle(observations):
        act(obs)
        calls, passed = calls + 1, time.perf_counter() - start
        if passed >= ROUND_SECONDS:
            break
    return 1e6 * passed / calls


def measure_in_process(
    policies: dict[str, Callable[[Any], Any]],
    observations: Observations,
    rounds: int,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    """Return the median microseconds per action of each form."""
    times: dict[str, list[float]] = {name: [] for name in policies}
    for done in range(rounds + 1):
        for name, act in policies.items():
            microseconds = time_round(act, observations)
            if done:  # the first round is a warm-up
                times[name].append(microseconds)
        progress(done, rounds)
    return {name: float(np.median(values)) for name, values in times.items()}


def measure_http(
    policy: Policy, observations: Observations, turns: int, seconds: float, progress: Callable[[int, int], None]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the measurements by server, body and number of clients."""
    names = available()
    loads = [(clients, name, body) for clients in CLIENTS for name in names for body in BODIES[name]]
    found: dict[tuple[int, str, str], list[Any]] = {load: [] for load in loads}
    with running(policy, names) as servers:
        for done, load in enumerate(loads * turns):
            clients, name, body = load
            port, _ = servers[name]
            found[load].append(asyncio.run(measure_load(port, body, clients, seconds, observations)))
            progress(done + 1, len(loads) * turns)
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for (clients, name, body), measured in found.items():
        kind = "npy" if body == NPY else "JSON"
        results.setdefault(name, {}).setdefault(kind, {})[str(clients)] = summarise_loads(measured, seconds)
    return results


def soak(policy: Policy, observations: Observations, seconds: float, rate: float, *, hostile: bool) -> dict[str, Any]:
    """Send requests at a fixed rate from 16 clients, beside hostile ones if asked for."""
    with running(policy, ["diffclone"]) as servers:
        port, pid = servers["diffclone"]
        enemy = multiprocessing.get_context("spawn").Process(
            target=be_hostile, args=(port, policy.dims.obs), daemon=True
        )
        if hostile:
            enemy.start()
            time.sleep(10)  # it imports torch with this module
        try:
            return asyncio.run(measure_soak(port, pid, rate, 16, seconds, observations)) | {"hostile": hostile}
        finally:
            if hostile:
                enemy.terminate()
                enemy.join()


@dataclass(frozen=True)
class Serving:
    """Measure the latency of a deployed policy."""

    rounds: int = 15
    """Rounds in one process."""
    turns: int = 3
    """Turns of each server over HTTP."""
    seconds: float = 3.0
    """Duration of each turn."""
    soak: float = 0.0
    """Seconds of a constant load on the server, instead of everything else."""
    rate: float = 1000.0
    """Requests per second of the constant load."""
    hostile: bool = False
    """Beside the constant load: a client that pipelines, clients with 60,000 and 4,096 rows, and 64 slow clients."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Path | None = None
    """File to which the Record is appended."""

    def run(self) -> None:
        """Run the benchmark."""
        start, load = time.monotonic(), os.getloadavg()[0]
        if os.environ.get("OMP_NUM_THREADS") != "1":
            sys.exit("NumPy must use one thread: OMP_NUM_THREADS=1 python -m benchmarks.serving")
        torch.set_num_threads(1)
        demos = TASKS["maze"].demonstrations()
        observations, policy = demos.obs.astype(np.float32), fit(METHOD, demos, device="cpu")
        results = self.measure_soak(policy, observations) if self.soak else self.measure(policy, observations)
        record = Record(
            kind="benchmark",
            settings={
                "benchmark": "soak" if self.soak else "serving",
                "task": "maze",
                "rounds": self.rounds,
                "turns": self.turns,
                "seconds": self.soak or self.seconds,
                "threads": torch.get_num_threads(),
                "method": to_dict(METHOD),
            },
            members=[],
            data=policy.data,
            results=results | {"load_before": load},
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - start,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json({"results": record.results, "device": record.device, "seconds": record.seconds})
        elif self.soak:
            print_table("Constant load", ["", "value"], [[name, str(value)] for name, value in results["soak"].items()])
        else:
            self.print_tables(results)
        if load > 0.5:
            print_message(f"Other processes were running (load average {load:.1f}): do not use these numbers.")

    def measure_soak(self, policy: Policy, observations: Observations) -> dict[str, Any]:
        """Return the results of the constant load."""
        return {"soak": soak(policy, observations, self.soak, self.rate, hostile=self.hostile)}

    def measure(self, policy: Policy, observations: Observations) -> dict[str, Any]:
        """Return the results in one process and over HTTP."""
        with tempfile.TemporaryDirectory() as name, bars() as show:
            policies = load_policies(policy, Path(name))
            microseconds = measure_in_process(
                policies, observations, self.rounds, lambda done, total: show.update("in one process", done, total)
            )
            servers = measure_http(
                policy,
                observations,
                self.turns,
                self.seconds,
                lambda done, total: show.update("over HTTP", done, total),
            )
        return {"microseconds": microseconds, "servers": servers}

    def print_tables(self, results: dict[str, Any]) -> None:
        """Print the two tables."""
        rows = [[name, f"{value:.1f}"] for name, value in results["microseconds"].items()]
        print_table(f"In one process, median of {self.rounds} rounds", ["policy", "µs per action"], rows)
        names = {"p50": "p50, ms", "p99": "p99, ms", "max": "max, ms", "per_second": "responses/s"}
        rows = [
            [server, kind, clients, *(f"{load[name]:.2f}" if name in load else "refused" for name in names)]
            for server, kinds in results["servers"].items()
            for kind, loads in kinds.items()
            for clients, load in loads.items()
        ]
        print_table("Over HTTP", ["server", "body", "clients", *names.values()], rows)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Serving, prog="python -m benchmarks.serving").run()
