"""Measure what an action costs: network calls and milliseconds of every method of the small study.

python -m benchmarks.acting                 print a table
python -m benchmarks.acting --out FILE      also append a Record

One observation at a time on one CPU thread, with the sizes of FetchPick and networks of width 256. A method with chunks
is called once for several actions; numbers are per action played. A network call is a call of its first layer, however
many rows it has: implicit BC evaluates 256 actions in one. Methods alternate; the result is the median of the
rounds. Weights do not matter, so policies are trained for one update.
"""

import itertools
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import nn

from benchmarks.speed.tables import round_to_3_digits
from diffclone.cli.console import print_table
from diffclone.data import Demonstrations
from diffclone.experiments.study.candidates import TUNED_METHODS, build_method
from diffclone.experiments.study.small import shrink
from diffclone.fit import fit
from diffclone.nn.layers import Linear
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.tasks import TASKS

TASK = "fetch-pick"
STEPS = 48
"""Actions of a turn."""


@dataclass(frozen=True)
class Acting:
    """Measure network calls and milliseconds per action."""

    rounds: int = 7
    """Turns of each method."""
    out: Path | None = None
    """File to which the Record is appended."""

    def run(self) -> None:
        """Run the benchmark."""
        begun, load = time.monotonic(), os.getloadavg()[0]
        torch.set_num_threads(1)
        demos = TASKS[TASK].demonstrations()
        policies = {shrink(key).name: small_policy(key, demos) for key in TUNED_METHODS}
        calls = {name: count_calls(policy, demos) for name, policy in policies.items()}
        times: dict[str, list[float]] = {name: [] for name in policies}
        for _, (name, policy) in itertools.product(range(self.rounds), policies.items()):
            times[name].append(1000 * time_actions(policy, demos))
        milliseconds = {name: float(np.median(own)) for name, own in times.items()}
        if self.out is not None:
            Record(
                kind="benchmark",
                settings={"benchmark": "acting", "task": TASK, "rounds": self.rounds, "threads": 1},
                members=[],
                data={},
                results={"calls": calls, "milliseconds": milliseconds, "load_before": load},
                device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
                seconds=time.monotonic() - begun,
            ).append_to(self.out)
        rows = [[name, f"{calls[name]:g}", round_to_3_digits(milliseconds[name])] for name in policies]
        print_table("Per action, one CPU thread", ["method", "network calls", "milliseconds"], rows)


def small_policy(key: str, demos: Demonstrations) -> Policy:
    """Return a method of the small study, trained for one update."""
    own = shrink(key)
    once: dict[str, Any] = {"training.updates": 1}
    if own.preset == "dbc":
        once["guide.training.updates"] = 1
    method = build_method(TASK, own.preset, (1,), {**own.fields, **once})
    return fit(method, demos, device="cpu", suggest=False, progress=False)


def count_calls(policy: Policy, demos: Demonstrations) -> float:
    """Return the network calls per action."""
    first = next(part for part in policy.net.modules() if isinstance(part, Linear))
    count = 0

    def add(*_: Any) -> None:
        nonlocal count
        count += 1

    hook = nn.Module.register_forward_hook(first, add)
    time_actions(policy, demos)
    hook.remove()
    return count / STEPS


def time_actions(policy: Policy, demos: Demonstrations) -> float:
    """Return the seconds per action over an episode of observations."""
    act, begun = policy.session(), time.perf_counter()
    for obs in demos.obs[:STEPS].astype(np.float32):
        act(obs)
    return (time.perf_counter() - begun) / STEPS


if __name__ == "__main__":
    tyro.cli(Acting).run()
