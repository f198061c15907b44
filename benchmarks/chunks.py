"""What chunks cost in training and save in evaluation.

python -m benchmarks.chunks                          both measurements, as JSON
python -m benchmarks.chunks --out FILE               also appends a Record to FILE

Training: updates per second with chunks of 16 actions and without, batches of 128. Evaluation: episodes per second of
one policy with chunks of 16, of which 1, 2, 4, 8 or 16 actions are played before the next call. Candidates take turns;
the result is the median round. Time is the CPU time of this process, so that other work on the machine counts little.
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from benchmarks.speed.cases import initial_parts
from diffclone import BC, DBC, DiffusionPolicy, Policy, Training, evaluate, fit
from diffclone.cli.console import print_json
from diffclone.fit import FitOptions, open_session
from diffclone.model import Method
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.tasks import TASKS
from diffclone.training import Stack
from diffclone.training.shares import Shares

HORIZON = 16
METHODS: dict[str, Method[Any]] = {"bc": BC(), "dbc": DBC(), "diffusion-policy": DiffusionPolicy()}
TASK = "maze"
EXECUTED = (1, 2, 4, 8, 16)
UPDATES = 64
"""Updates of a round."""
EPISODES = 50
"""Episodes of a round."""


def time_calls(candidates: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median work per CPU second of each candidate. A call does some work and returns its amount."""
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        call()  # warm-up
    for _ in range(rounds):
        for name, call in candidates.items():
            begun = time.process_time()
            done = call()
            rates[name].append(done / (time.process_time() - begun))
    return {name: float(np.median(values)) for name, values in rates.items()}


def training_loop(method: Method[Any]) -> Callable[[], float]:
    """Return a function that does some updates of a method with one member."""
    _, session = open_session(method, TASKS[TASK].demonstrations(), FitOptions(device="cpu"))
    rng, parts = Rng((0,), path="policy"), initial_parts(method, session)
    shares = Shares(method, Stack((0,), {}), parts, session.data, session.dims, rng)

    def run() -> float:
        shares.run(UPDATES)
        return UPDATES

    return run


def measure_training(rounds: int) -> dict[str, dict[str, float]]:
    """Return updates per second without chunks and with chunks, and their ratio."""
    found: dict[str, dict[str, float]] = {}
    for name, method in METHODS.items():
        chunked = replace(method, horizon=HORIZON)
        rates = time_calls({"1": training_loop(method), str(HORIZON): training_loop(chunked)}, rounds)
        found[name] = {**rates, "ratio": rates[str(HORIZON)] / rates["1"]}
    return found


def measure_evaluation(rounds: int) -> dict[str, float]:
    """Return episodes per second by the number of actions that are played before the next call."""
    method = DiffusionPolicy(training=Training(updates=400, lr=1e-3), width=64, horizon=HORIZON)
    policy = fit(method, TASKS[TASK].demonstrations(), device="cpu")

    def candidate(chosen: Policy) -> Callable[[], float]:
        # Episodes differ in length, so the work is counted in steps and given in episodes of full length.
        return lambda: (
            float(evaluate(chosen, TASK, episodes=EPISODES, progress=False).length.sum()) / TASKS[TASK].horizon
        )

    return time_calls({str(n): candidate(policy.acting(execute=n)) for n in EXECUTED}, rounds)


def main(out: Path | None = None, rounds: int = 5) -> None:
    """Measure, print and record.

    Args:
        out: file of Records to append to.
        rounds: rounds of each candidate.
    """
    torch.set_num_threads(1)
    begun, load = time.monotonic(), os.getloadavg()[0]
    results = {
        "training": measure_training(rounds),
        "evaluation": measure_evaluation(rounds),
        "load_before": load,
    }
    settings = {"benchmark": "chunks", "horizon": HORIZON, "task": TASK, "rounds": rounds}
    device = f"{platform.machine()}, one thread"
    record = Record("benchmark", settings, [], {}, results, device, time.monotonic() - begun)
    print_json(results)
    if out is not None:
        record.append_to(out)


if __name__ == "__main__":
    tyro.cli(main)
