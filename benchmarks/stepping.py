"""How many steps a second: our batch beside Gymnasium's vector environments, on the same physics and actions.

python benchmarks/stepping.py                        all three tasks, a table
python benchmarks/stepping.py --json --out FILE      also a Record, appended to FILE

Contestants take turns, and each is given the median of its turns. A turn is whole episodes, their resets included, of
random actions. Beside our batch stand Gymnasium's two vector classes over our own single environments, and over
Gymnasium-Robotics' stock ones where it has the same robot; `AsyncVectorEnv` tries several numbers of processes and is
given its best. The ratio is ours to the better of the two classes.
"""

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable
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
"""Of `AsyncVectorEnv`: one environment each."""
TURN = 16
"""Rows of actions that Gymnasium's classes are given in a turn, and environments of `SyncVectorEnv`, which takes them
one by one: with more of them its rate is the same, and making them takes long."""
LONGEST = 50
"""Steps of a turn at most. Where episodes are longer, resets cost next to nothing."""

Actions = npt.NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Contestant:
    """Something that steps."""

    name: str
    rows: int
    step: Callable[[Actions], None]
    """One step of all rows."""
    close: Callable[[], None]

    def turn(self, actions: Actions) -> float:
        """Steps a second over actions (steps, rows, action size), of which some rows are played at a time."""
        played, begun = 0, time.perf_counter()
        for first in range(0, min(actions.shape[1], max(self.rows, TURN)) - self.rows + 1, self.rows):
            for act in actions[:, first : first + self.rows]:
                self.step(act)
            played += len(actions) * self.rows
        return played / (time.perf_counter() - begun)


def batch(task: Task, rows: int) -> Contestant:
    """Our own; what is over begins again, as in Gymnasium's classes."""
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

    return Contestant("batch", rows, step, env.close)


def vector(name: str, task: Task, gymnasium_id: str, rows: int, *, processes: bool) -> Contestant:
    """One of Gymnasium's classes. Its own checks are left out: they are not what is measured."""

    def make() -> gym.Env[Any, Any]:
        return gym.make(gymnasium_id, max_episode_steps=task.horizon, disable_env_checker=True)

    made = [make] * rows
    env: Any = (
        AsyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP)
        if processes
        else SyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP)
    )
    env.reset(seed=0)

    def step(act: Actions) -> None:
        env.step(act)

    return Contestant(name, rows, step, env.close)


def contestants(task: Task, rows: int) -> list[Contestant]:
    """Processes are forked before our batch has threads."""
    ids = {"ours": task.gymnasium_id}
    if task.name in STOCK and importlib.util.find_spec("gymnasium_robotics") is not None:
        gym.register_envs(importlib.import_module("gymnasium_robotics"))
        ids["stock"] = STOCK[task.name]
    made: list[Contestant] = []
    for whose, gymnasium_id in ids.items():
        made += [vector(f"async {n}, {whose}", task, gymnasium_id, n, processes=True) for n in PROCESSES]
        made.append(vector(f"sync, {whose}", task, gymnasium_id, TURN, processes=False))
    return [*made, batch(task, rows)]


def measure(task: Task, rows: int, rounds: int, progress: Callable[[int, int], None]) -> dict[str, float]:
    """Median steps a second of each contestant."""
    playing = contestants(task, rows)
    rng, rates = np.random.default_rng(0), dict[str, list[float]]()
    shape = (min(LONGEST, task.horizon), max(rows, TURN), task.act_size)
    for done in range(rounds + 1):
        actions = rng.uniform(-1, 1, shape).astype(np.float32)
        for contestant in playing:
            rate = contestant.turn(actions)
            if done:  # the first turn warms up
                rates.setdefault(contestant.name, []).append(rate)
        progress(done, rounds)
    for contestant in playing:
        contestant.close()
    return {name: float(np.median(found)) for name, found in rates.items()}


def ratios(rates: dict[str, float]) -> dict[str, float]:
    """Ours to the better of Gymnasium's classes, for each kind of environment under them."""
    kinds = {name.rpartition(", ")[2] for name in rates if ", " in name}
    return {
        kind: rates["batch"] / max(rate for name, rate in rates.items() if name.endswith(f", {kind}"))
        for kind in sorted(kinds)
    }


def table_row(task: str, rates: dict[str, float], ratio: dict[str, float]) -> list[str]:
    """A task's line: `AsyncVectorEnv` with as many processes as serve it best."""
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
    """Time the stepping of tasks."""

    tasks: tuple[str, ...] = ("maze", "fetch-pick", "hand-rotate")
    """Which."""
    rows: int = 64
    """Environments of our batch."""
    rounds: int = 7
    """Turns of each contestant."""
    json: bool = False
    """Print the Record instead of a table."""
    out: Path | None = None
    """A file of Records to append to."""

    def run(self) -> None:
        """Do it."""
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
        ratio = {name: ratios(rates) for name, rates in found.items()}
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
        title = f"Steps a second, {self.rows} rows, {os.cpu_count()} cores, median of {self.rounds} turns"
        print_table(title, columns, [table_row(name, rates, ratio[name]) for name, rates in found.items()])
        if load > 0.5:
            print_message(f"Something else was running (load {load:.1f}): these numbers are not worth much.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Stepping, prog="python benchmarks/stepping.py").run()
