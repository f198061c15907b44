"""How long a deployed policy takes: microseconds an action in a process, and milliseconds an answer over HTTP.

OMP_NUM_THREADS=1 python benchmarks/serving.py                        two tables
OMP_NUM_THREADS=1 python benchmarks/serving.py --json --out FILE      also a Record, appended to FILE

The policy is BC's with Maze's sizes (6 numbers seen, 2 forces) and three hidden layers of 256; weights are those of a
single update, since how long a call takes does not depend on them. In a process it is called as a robot would, one
observation at a time: `Policy`, the ONNX export by onnxruntime on one thread, and the NumPy export by
`diffclone.deploy.runtime` take turns of a fifth of a second, and each has the median of its turns.

Over HTTP the server is a process of its own. Clients keep their connections and ask again as soon as they are answered,
1, 4 or 16 at once; they live in one other process and share one core of it, so that a time is what a client sees with
its own work in it. The first tenth of the answers is not counted.
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

TURN = 0.2
"""Seconds of a turn, about."""
CLIENTS = (1, 4, 16)
METHOD = BC(training=Training(updates=1), network=Network(width=256, depth=3))

Observations = npt.NDArray[np.float32]


def actors(policy: Policy, folder: Path) -> dict[str, Callable[[Any], Any]]:
    """The same policy, called in three ways."""
    export(policy, folder / "policy.onnx", "onnx")
    export(policy, folder / "policy.npz", "numpy")
    onnx = load_onnx(folder / "policy.onnx")
    return {
        "Policy (torch)": policy,
        "ONNX (onnxruntime)": lambda obs: onnx(obs[None])[0],
        "diffclone.deploy.runtime (NumPy)": runtime.load(folder / "policy.npz"),
    }


def turn(act: Callable[[Any], Any], observations: Observations) -> float:
    """Microseconds an action, over observations that are shown one by one."""
    calls, begun, passed = 0, time.perf_counter(), 0.0
    for obs in itertools.cycle(observations):
        act(obs)
        calls, passed = calls + 1, time.perf_counter() - begun
        if passed >= TURN:
            break
    return 1e6 * passed / calls


def in_process(
    playing: dict[str, Callable[[Any], Any]],
    observations: Observations,
    rounds: int,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    """Median microseconds an action."""
    times: dict[str, list[float]] = {name: [] for name in playing}
    for done in range(rounds + 1):
        for name, act in playing.items():
            taken = turn(act, observations)
            if done:  # the first turn warms up
                times[name].append(taken)
        progress(done, rounds)
    return {name: float(np.median(found)) for name, found in times.items()}


def serve_policy(folder: str, ports: Any) -> None:
    """What the other process does."""
    torch.set_num_threads(1)
    asyncio.run(serve(Server(Policy.load(folder)), "127.0.0.1", 0, ports.put))


def request(kind: str, obs: Observations) -> bytes:
    """As bytes, made before the clock runs."""
    np.save(file := io.BytesIO(), obs)
    body = file.getvalue() if kind == NPY else json.dumps({"observation": obs.tolist()}).encode()
    head = f"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def client(port: int, requests: list[bytes], until: float) -> list[float]:
    """Seconds of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times: list[float] = []
    for sent in itertools.cycle(requests):
        begun = time.perf_counter()
        if begun > until:
            break
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
        times.append(time.perf_counter() - begun)
    writer.close()
    return times


async def at_load(port: int, kind: str, clients: int, seconds: float, observations: Observations) -> dict[str, float]:
    """Percentiles over the answers to all clients, and answers a second."""
    requests, begun = [request(kind, obs) for obs in observations[:100]], time.perf_counter()
    found = await asyncio.gather(*(client(port, requests, begun + seconds) for _ in range(clients)))
    counted = np.concatenate([times[len(times) // 10 :] for times in found])
    percentiles = {f"p{p}": 1e3 * float(np.percentile(counted, p)) for p in (50, 95, 99)}
    return percentiles | {"answers_per_second": sum(map(len, found)) / seconds}


def over_http(
    policy: Policy, folder: Path, seconds: float, observations: Observations, progress: Callable[[int, int], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """By encoding and number of clients."""
    policy.save(folder / "policy")
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=serve_policy, args=(str(folder / "policy"), ports), daemon=True)
    process.start()
    found: dict[str, dict[str, dict[str, float]]] = {}
    try:
        port = ports.get(timeout=60)
        loads = [(kind, clients) for kind in (JSON, NPY) for clients in CLIENTS]
        for done, (kind, clients) in enumerate(loads):
            name = {JSON: "JSON", NPY: "npy"}[kind]
            found.setdefault(name, {})[str(clients)] = asyncio.run(at_load(port, kind, clients, seconds, observations))
            progress(done + 1, len(loads))
    finally:
        process.terminate()
        process.join()
    return found


@dataclass(frozen=True)
class Serving:
    """Time a deployed policy."""

    rounds: int = 15
    """Turns of each way to act in a process."""
    seconds: float = 5.0
    """Of each load over HTTP."""
    json: bool = False
    """Print the Record instead of tables."""
    out: Path | None = None
    """A file of Records to append to."""

    def run(self) -> None:
        """Do it."""
        begun, load = time.monotonic(), os.getloadavg()[0]
        if os.environ.get("OMP_NUM_THREADS") != "1":
            sys.exit("NumPy must be on one thread too: OMP_NUM_THREADS=1 python benchmarks/serving.py")
        torch.set_num_threads(1)
        demos = TASKS["maze"].demonstrations()
        observations, policy = demos.obs.astype(np.float32), fit(METHOD, demos, device="cpu")
        with tempfile.TemporaryDirectory() as name, bars() as show:
            folder = Path(name)
            microseconds = in_process(
                actors(policy, folder),
                observations,
                self.rounds,
                lambda done, total: show.update("in a process", done, total),
            )
            http = over_http(
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
            seconds=time.monotonic() - begun,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json({"results": record.results, "device": record.device, "seconds": record.seconds})
            return
        rows = [[name, f"{taken:.1f}"] for name, taken in microseconds.items()]
        print_table(f"In a process, median of {self.rounds} turns", ["called by", "µs an action"], rows)
        rows = [
            [name, clients, *(f"{found[p]:.2f}" for p in ("p50", "p95", "p99")), f"{found['answers_per_second']:.0f}"]
            for name, loads in http.items()
            for clients, found in loads.items()
        ]
        print_table("Over HTTP", ["body", "clients", "p50, ms", "p95, ms", "p99, ms", "answers/s"], rows)
        if load > 0.5:
            print_message(f"Something else was running (load {load:.1f}): these numbers are not worth much.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Serving, prog="python benchmarks/serving.py").run()
