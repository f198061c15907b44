"""Environment steps per second: our batches beside Gymnasium's vector environments, with the same physics and actions.

python -m benchmarks.stepping                        three tasks, a table
python -m benchmarks.stepping --json --out FILE      also appends a Record to FILE

Candidates run in turn, several rounds of random actions each, resets included; the result is the median round. Our
batch is compared with `SyncVectorEnv` and `AsyncVectorEnv` over our single environments, and over those of
Gymnasium-Robotics ("stock") with the same robot. `AsyncVectorEnv` runs with several numbers of processes, of which the
best counts. The ratio is that of our batch to the better of the two classes.
"""

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tyro
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.records import Record
from diffclone.tasks import TASKS, Task

STOCK = {"fetch-pick": "FetchPickAndPlace-v4", "hand-rotate": "HandManipulateBlockRotateZ-v1"}
"""Gymnasium-Robotics' environments of the same robots."""
PROCESSES = (2, 8, 16)
"""Numbers of processes of `AsyncVectorEnv`, one environment each."""
SYNC_ROWS = 16
"""Environments of `SyncVectorEnv`, and rows of actions for Gymnasium's classes per round. `SyncVectorEnv` steps one
environment after the other: with more of them its rate is the same, and making them takes long."""
MAX_STEPS = 50
"""Steps per round. In longer episodes the time for resets is negligible."""

Actions = npt.NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """Environments that are timed."""

    name: str
    rows: int
    step: Callable[[Actions], None]
    """Step all rows once."""
    close: Callable[[], None]

    def time_round(self, actions: Actions) -> float:
        """Return the steps per second over actions (steps, rows, action size), `self.rows` rows at a time."""
        steps, begun = 0, time.perf_counter()
        for first in range(0, min(actions.shape[1], max(self.rows, SYNC_ROWS)) - self.rows + 1, self.rows):
            for act in actions[:, first : first + self.rows]:
                self.step(act)
            steps += len(actions) * self.rows
        return steps / (time.perf_counter() - begun)


def make_batch(task: Task, rows: int) -> Candidate:
    """Return our batch. Episodes that end are restarted, as in Gymnasium's classes."""
    env, everyone = task.make(rows), np.arange(rows)
    rngs = [np.random.default_rng(row) for row in everyone]
    steps = np.zeros(rows, dtype=np.int64)
    env.reset(everyone, rngs)

    def step(act: Actions) -> None:
        outcome = env.step(everyone, act)
        steps[:] += 1
        over = np.flatnonzero(outcome.ended | (steps >= task.horizon))
        if len(over):
            env.reset(over, [rngs[row] for row in over])
            steps[over] = 0
        env.observe(everyone)

    return Candidate("batch", rows, step, env.close)


def make_vector(name: str, task: Task, gymnasium_id: str, rows: int, *, processes: bool) -> Candidate:
    """Return one of Gymnasium's classes, without its checks of each step."""

    def make() -> gym.Env[Any, Any]:
        return gym.make(gymnasium_id, max_episode_steps=task.horizon, disable_env_checker=True)

    vector: Any = AsyncVectorEnv if processes else SyncVectorEnv
    env = vector([make] * rows, autoreset_mode=AutoresetMode.SAME_STEP)
    env.reset(seed=0)

    def step(act: Actions) -> None:
        env.step(act)

    return Candidate(name, rows, step, env.close)


def make_candidates(task: Task, rows: int) -> list[Candidate]:
    """Return all candidates. Processes are forked before our batch starts its threads."""
    ids = {"ours": str(task.gymnasium_id)}
    if task.name in STOCK and importlib.util.find_spec("gymnasium_robotics") is not None:
        gym.register_envs(importlib.import_module("gymnasium_robotics"))
        ids["stock"] = STOCK[task.name]
    made: list[Candidate] = []
    for kind, gymnasium_id in ids.items():
        made += [make_vector(f"async {n}, {kind}", task, gymnasium_id, n, processes=True) for n in PROCESSES]
        made.append(make_vector(f"sync, {kind}", task, gymnasium_id, SYNC_ROWS, processes=False))
    return [*made, make_batch(task, rows)]


def measure(task: Task, rows: int, rounds: int, progress: Callable[[int, int], None]) -> dict[str, float]:
    """Return the median steps per second of each candidate."""
    rng, rates = np.random.default_rng(0), dict[str, list[float]]()
    shape = (min(MAX_STEPS, task.horizon), max(rows, SYNC_ROWS), task.act_size)
    with ExitStack() as stack:
        candidates = make_candidates(task, rows)
        for candidate in candidates:
            stack.callback(candidate.close)
        for done in range(rounds + 1):
            actions = rng.uniform(-1, 1, shape).astype(np.float32)
            for candidate in candidates:
                rate = candidate.time_round(actions)
                if done:  # the first round is a warm-up
                    rates.setdefault(candidate.name, []).append(rate)
            progress(done, rounds)
    return {name: float(np.median(found)) for name, found in rates.items()}


def find_ratios(rates: dict[str, float]) -> dict[str, float]:
    """Return the ratio of our batch to the better of Gymnasium's classes, for each kind of environment."""
    kinds = {name.rpartition(", ")[2] for name in rates if ", " in name}
    return {
        kind: rates["batch"] / max(rate for name, rate in rates.items() if name.endswith(f", {kind}"))
        for kind in sorted(kinds)
    }


def table_row(task: str, rates: dict[str, float], ratio: dict[str, float]) -> list[str]:
    """Return a row of the table, with the best number of processes of `AsyncVectorEnv`."""
    cells = [task, f"{rates['batch']:,.0f}"]
    for kind in ("ours", "stock"):
        tried = {n: rates[f"async {n}, {kind}"] for n in PROCESSES if f"async {n}, {kind}" in rates}
        best = max(tried, key=lambda n: tried[n], default=0)
        cells += (
            [f"{rates[f'sync, {kind}']:,.0f}", f"{tried[best]:,.0f} ({best})", f"{ratio[kind]:.2f}"]
            if tried
            else ["", "", ""]
        )
    return cells


@dataclass(frozen=True)
class Stepping:
    """Measure how fast tasks are stepped."""

    tasks: tuple[str, ...] = ("maze", "fetch-pick", "hand-rotate")
    """Names of tasks."""
    rows: int = 64
    """Number of environments in our batch."""
    rounds: int = 7
    """Number of rounds per candidate."""
    json: bool = False
    """Print the Record instead of a table."""
    out: Path | None = None
    """A file to which the Record is appended."""

    def run(self) -> None:
        """Measure and print."""
        begun, load = time.monotonic(), os.getloadavg()[0]
        found: dict[str, dict[str, float]] = {}
        with bars() as show:
            for name in self.tasks:
                found[name] = measure(
                    TASKS[name],
                    self.rows,
                    self.rounds,
                    lambda done, total, name=name: show.update(f"stepping {name}", done, total),
                )
        ratio = {name: find_ratios(rates) for name, rates in found.items()}
        record = Record(
            kind="benchmark",
            settings={"benchmark": "stepping", "rows": self.rows, "rounds": self.rounds},
            members=[],
            data={},
            results={"steps_per_second": found, "ratio": ratio, "load_before": load},
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - begun,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json({"results": record.results, "device": record.device, "seconds": record.seconds})
            return
        columns = ["task", "batch", "sync", "async (n)", "ratio", "sync, stock", "async, stock (n)", "ratio"]
        title = f"Steps per second, {self.rows} rows, {os.cpu_count()} cores, median of {self.rounds} rounds"
        print_table(title, columns, [table_row(name, rates, ratio[name]) for name, rates in found.items()])
        if load > 0.5:
            print_message(f"Other programs were running (load {load:.1f}): these numbers are not reliable.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Stepping, prog="python -m benchmarks.stepping").run()
