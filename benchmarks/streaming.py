"""Training from demonstrations larger than memory: peak memory, and the rate beside that of a training in memory.

python -m benchmarks.streaming --gigabytes 20 --memory 2GB --out docs/records/streaming.jsonl

A folder of npz shards is written to a temporary folder and removed at the end. A new process opens it with `memory` and
trains BC and the diffusion guide of DBC; its peak resident size is that of the whole process. After that, the same
process also reads as many shards into memory as `PART` holds, and runs updates from the stream and from memory in turn:
the ratio is the median over rounds, each of one turn of both, so that other programs disturb both alike. All of the
demonstrations are too large for a training in memory; updates hardly depend on their number.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
import torch
import tyro

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.cli.console import print_json, print_message
from diffclone.data.formats import open_blocks
from diffclone.data.formats.memory import parse_bytes
from diffclone.data.formats.options import NO_OPTIONS
from diffclone.data.streamed import Streamed
from diffclone.fit import FitOptions, fit_with_options, open_session
from diffclone.model import Method, Model
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.settings import to_dict
from diffclone.training import Progress, Stack
from diffclone.training.feed import EVERY
from diffclone.training.shares import Shares

OBS, ACT, STEPS = 40, 10, 1000
"""Sizes of observations and actions, and steps of an episode."""
WIDTH = 256
"""Of all networks."""
SHARD = 64e6
"""Bytes of a shard."""
DIFFERENT = 8
"""Shards with numbers of their own."""
PART = 0.5e9
"""Bytes of demonstrations that are trained on in memory."""


def write_shards(folder: Path, size: float) -> int:
    """Write shards of about `size` bytes in all, and return how many. From `DIFFERENT` on they are copies."""
    count, episodes = max(1, round(size / SHARD)), max(1, int(min(SHARD, size) // (4 * (OBS + ACT) * STEPS)))
    rng, ends = np.random.default_rng(0), np.arange(1, episodes + 1) * STEPS
    mix = rng.standard_normal((OBS, ACT), dtype=np.float32) / OBS**0.5
    for number in range(count):
        path = folder / f"shard-{number}.npz"
        if number >= DIFFERENT:
            shutil.copyfile(folder / f"shard-{number % DIFFERENT}.npz", path)
            continue
        obs = rng.standard_normal((episodes * STEPS, OBS), dtype=np.float32)
        np.savez(path, obs=obs, act=np.tanh(obs @ mix), episode_ends=ends)
    return count


def memory_of_process(name: str) -> int:
    """Return a size of this process from Linux: VmRSS is the resident size now, VmHWM its peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def train_streamed(method: Method[Any], demos: Streamed, members: int) -> dict[str, float]:
    """Train, and return the updates per second of each stage."""
    rates: dict[str, float] = {}

    def progress(now: Progress) -> None:
        rates[now.stage] = now.rate

    fit_with_options(method, demos, FitOptions(seeds=range(members), device="cpu"), progress)
    return rates


def compare_rates(
    method: Method[Any], part: Model[Any], streamed: Streamed, loaded: Demonstrations, members: int, rounds: int
) -> dict[str, Any]:
    """Return the updates per second from the stream and from memory, in turn, and the median of their ratios."""
    options, found = FitOptions(seeds=range(members), device="cpu"), dict[str, list[float]]()
    stack, sources = Stack(tuple(range(members)), {}), {"streamed": streamed, "in memory": loaded}
    trainings: dict[str, Shares] = {}
    for name, demos in sources.items():
        _, session = open_session(method, demos, options)
        rng = Rng(range(members), path="policy")
        trainings[name] = Shares(part, stack, {}, session.data, session.dims, rng)
        trainings[name].run(EVERY)
    for _ in range(rounds):
        for name, updates in trainings.items():
            begun = time.perf_counter()
            updates.run(EVERY)
            found.setdefault(name, []).append(EVERY / (time.perf_counter() - begun))
    for updates in trainings.values():
        updates.close()
    ratios = [ours / theirs for ours, theirs in zip(found["streamed"], found["in memory"], strict=True)]
    return {**{name: median(values) for name, values in found.items()}, "ratio": median(ratios), "ratios": ratios}


def measure(folder: Path, memory: int, members: int, updates: int, rounds: int) -> dict[str, Any]:
    """Train from a folder within `memory`, and compare rates. This is to be called in a new process."""
    baseline, begun = memory_of_process("VmRSS"), time.perf_counter()
    demos = open_blocks(folder, NO_OPTIONS, memory)
    assert isinstance(demos, Streamed), "all of the demonstrations fit into memory"
    opened = time.perf_counter() - begun
    demos.summary  # noqa: B018
    summarised = time.perf_counter() - begun - opened
    training = Training(updates=updates)
    guide = DiffusionGuide(training=training, width=WIDTH)
    short: dict[str, Any] = {
        "bc": BC(training=training, network=Network(width=WIDTH, depth=2)),
        "dbc": DBC(training=training, network=Network(width=WIDTH, depth=2), guide=guide),
    }
    rates = {name: train_streamed(method, demos, members) for name, method in short.items()}
    peak = memory_of_process("VmHWM")
    shards = sorted(folder.glob("*.npz"))[: max(1, int(PART // SHARD))]
    loaded = Demonstrations.load(shards[0])
    for shard in shards[1:]:
        loaded = loaded.joined(Demonstrations.load(shard))
    compared = {
        "bc": compare_rates(short["bc"], short["bc"], demos, loaded, members, rounds),
        "guide": compare_rates(short["dbc"], guide, demos, loaded, members, rounds),
    }
    return {
        "pairs": demos.num_steps,
        "bytes": demos.num_steps * demos.row_bytes,
        "peak": peak,
        "baseline": baseline,
        "open_seconds": opened,
        "summary_seconds": summarised,
        "training_rates": rates,
        "compared": compared,
        "methods": {name: to_dict(method) for name, method in short.items()},
    }


@final
@dataclass(frozen=True)
class Streaming:
    """Train from demonstrations that are larger than memory, and compare with a training in memory."""

    gigabytes: float = 20.0
    """Size of the demonstrations."""
    memory: str = "2GB"
    """Memory that the process may use."""
    members: int = 2
    updates: int = 512
    """Updates of each stage."""
    rounds: int = 7
    folder: Path | None = None
    """Where the temporary folder is made."""
    out: Path | None = None
    """File to append a Record to."""

    def run(self) -> None:
        """Write the demonstrations, measure in a new process, and remove them."""
        begun, load = time.perf_counter(), os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="diffclone-streaming-", dir=self.folder) as name:
            count = write_shards(Path(name), self.gigabytes * 1e9)
            written = time.perf_counter() - begun
            print_message(f"{count} shards of {self.gigabytes:g} GB written in {written:.0f} s")
            arguments = [name, parse_bytes(self.memory), self.members, self.updates, self.rounds]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.streaming", "measure", json.dumps(arguments)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        results = {"write_seconds": written, **json.loads(done.stdout.splitlines()[-1])}
        machine = {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "system": platform.system()}
        record = Record(
            kind="benchmark",
            settings={
                "benchmark": "streaming",
                "memory": parse_bytes(self.memory),
                "members": self.members,
                "methods": results.pop("methods"),
                "machine": {**machine, "load_before": load},
            },
            members=[],
            data={"gigabytes": self.gigabytes, "obs": OBS, "act": ACT, "shards": count},
            results=results,
            device="cpu",
            seconds=time.perf_counter() - begun,
            quick=self.gigabytes < 20,
        )
        if self.out is not None:
            record.append_to(self.out)
        print_json(results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        folder, *rest = json.loads(sys.argv[2])
        sys.stdout.write(json.dumps(measure(Path(folder), *rest)) + "\n")
    else:
        tyro.cli(Streaming, prog="python -m benchmarks.streaming").run()
