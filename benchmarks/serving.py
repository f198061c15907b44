"""Measure the latency of a deployed policy: microseconds per action in one process, milliseconds over HTTP.

OMP_NUM_THREADS=1 python -m benchmarks.serving                        print two tables
OMP_NUM_THREADS=1 python -m benchmarks.serving --json --out FILE      print JSON and append a Record to FILE

The policy is BC with the sizes of Maze (observation 6, action 2) and three hidden layers of 256 units, trained for one
update because the latency does not depend on the weights. In one process, `Policy`, the ONNX export in onnxruntime on
one thread and the NumPy export in `diffclone.deploy.runtime` alternate in rounds of 0.2 s, one observation per call;
the result is the median over rounds.

Over HTTP, the server is a process of its own. 1, 4 or 16 clients keep their connections and send the next request as
soon as they have a response. All clients share one process and one core, so a latency includes the client's own work.
The first tenth of the responses is not counted.
"""

import asyncio
import io
import itertools
import json
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
import numpy.typing as npt
import torch
import tyro

from diffclone import BC, Network, Policy, Training, fit
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.deploy import runtime
from diffclone.deploy.export import export, load_onnx
from diffclone.deploy.server import JSON, NPY, Server, serve
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS

ROUND_SECONDS = 0.2
CLIENTS = (1, 4, 16)
METHOD = BC(training=Training(updates=1), network=Network(width=256, depth=3))

Observations = npt.NDArray[np.float32]


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


def serve_policy(folder: str, ports: Any) -> None:
    """Serve in the other process."""
    torch.set_num_threads(1)
    asyncio.run(serve(Server(Policy.load(folder)), "127.0.0.1", 0, ports.put))


def encode_request(content_type: str, obs: Observations) -> bytes:
    """Return the bytes of a request."""
    np.save(file := io.BytesIO(), obs)
    body = file.getvalue() if content_type == NPY else json.dumps({"observation": obs.tolist()}).encode()
    head = (
        f"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def run_client(port: int, requests: list[bytes], until: float) -> list[float]:
    """Return the seconds until each response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times: list[float] = []
    for sent in itertools.cycle(requests):
        start = time.perf_counter()
        if start > until:
            break
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
        times.append(time.perf_counter() - start)
    writer.close()
    return times


async def measure_load(
    port: int, content_type: str, clients: int, seconds: float, observations: Observations
) -> dict[str, float]:
    """Return percentiles of the latency over all clients, and responses per second."""
    requests, start = [encode_request(content_type, obs) for obs in observations[:100]], time.perf_counter()
    times = await asyncio.gather(*(run_client(port, requests, start + seconds) for _ in range(clients)))
    counted = np.concatenate([values[len(values) // 10 :] for values in times])
    percentiles = {f"p{p}": 1e3 * float(np.percentile(counted, p)) for p in (50, 95, 99)}
    return percentiles | {"answers_per_second": sum(map(len, times)) / seconds}


def measure_http(
    policy: Policy, folder: Path, seconds: float, observations: Observations, progress: Callable[[int, int], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the measurements by encoding and number of clients."""
    policy.save(folder / "policy")
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=serve_policy, args=(str(folder / "policy"), ports), daemon=True)
    process.start()
    results: dict[str, dict[str, dict[str, float]]] = {}
    try:
        port = ports.get(timeout=60)
        loads = [(content_type, clients) for content_type in (JSON, NPY) for clients in CLIENTS]
        for done, (content_type, clients) in enumerate(loads):
            name = {JSON: "JSON", NPY: "npy"}[content_type]
            load = asyncio.run(measure_load(port, content_type, clients, seconds, observations))
            results.setdefault(name, {})[str(clients)] = load
            progress(done + 1, len(loads))
    finally:
        process.terminate()
        process.join()
    return results


@dataclass(frozen=True)
class Serving:
    """Measure the latency of a deployed policy."""

    rounds: int = 15
    """Rounds in one process."""
    seconds: float = 5.0
    """Duration of each load over HTTP."""
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
        with tempfile.TemporaryDirectory() as name, bars() as show:
            folder = Path(name)
            microseconds = measure_in_process(
                load_policies(policy, folder),
                observations,
                self.rounds,
                lambda done, total: show.update("in one process", done, total),
            )
            http = measure_http(
                policy,
                folder,
                self.seconds,
                observations,
                lambda done, total: show.update("over HTTP", done, total),
            )
        record = Record(
            kind="benchmark",
            settings={
                "benchmark": "serving",
                "task": "maze",
                "rounds": self.rounds,
                "seconds": self.seconds,
                "threads": torch.get_num_threads(),
                "method": to_dict(METHOD),
            },
            members=[],
            data=policy.data,
            results={"microseconds": microseconds, "http": http, "load_before": load},
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - start,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json({"results": record.results, "device": record.device, "seconds": record.seconds})
            return
        rows = [[name, f"{value:.1f}"] for name, value in microseconds.items()]
        print_table(f"In one process, median of {self.rounds} rounds", ["policy", "µs per action"], rows)
        rows = [
            [name, clients, *(f"{times[p]:.2f}" for p in ("p50", "p95", "p99")), f"{times['answers_per_second']:.0f}"]
            for name, loads in http.items()
            for clients, times in loads.items()
        ]
        print_table("Over HTTP", ["body", "clients", "p50, ms", "p95, ms", "p99, ms", "responses/s"], rows)
        if load > 0.5:
            print_message(f"Other processes were running (load average {load:.1f}): do not use these numbers.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Serving, prog="python -m benchmarks.serving").run()
