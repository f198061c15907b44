"""How long a policy takes to act: milliseconds an action, one observation at a time, on one CPU thread.

python benchmarks/latency.py                        all methods, a table
python benchmarks/latency.py --json --out FILE      also a Record, appended to FILE

Contestants take turns, and each is given the median of its turns. A turn is a fifth of a second of calls, or one call
where that takes longer: `policy(obs)` as a robot would have it, NumPy in and NumPy out, with all that a call does
besides the network (normalising, drawing noise, cutting to the limits). Sizes are Maze's (6 numbers seen, 2 forces) and
networks those of the paper's Maze column; implicit BC with Langevin walks, which the paper does not have, is as its
defaults are. Policies are trained for a single update on the bundled demonstrations: how long a call takes does not
depend on what the weights are. The ratio is to BC.
"""

import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
import tyro

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Policy, Training, fit
from diffclone.console import answer, bars, say, show_table
from diffclone.diffusion import Sampler
from diffclone.guides import GUIDES
from diffclone.methods import IBC, METHODS, DiffusionPolicy, IBCLangevin
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS

TURN = 0.2
"""Seconds of a turn, about."""
ONCE = Training(updates=1)
NETWORK = Network(width=256, depth=3)
"""π of BC and DBC."""
ENERGY = Network(width=1024, depth=1, activation="relu", init="default")
"""E of implicit BC."""
SAMPLERS: tuple[tuple[Sampler, int], ...] = (
    ("ancestral", 1000),
    ("ddim", 50),
    ("ddim", 10),
    ("ddim", 5),
    ("dpm-solver++", 20),
    ("dpm-solver++", 10),
    ("dpm-solver++", 5),
)
"""Ways to sample the diffusion policy, and how often each calls the network."""

Observations = npt.NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Contestant:
    """Something that acts."""

    name: str
    policy: Policy

    def turn(self, observations: Observations) -> float:
        """Milliseconds an action, over observations (rows, observation size) that are shown one by one."""
        calls, begun, passed = 0, time.perf_counter(), 0.0
        for obs in itertools.cycle(observations):
            self.policy(obs)
            calls, passed = calls + 1, time.perf_counter() - begun
            if passed >= TURN:
                break
        return 1000 * passed / calls


def contestants(demos: Demonstrations) -> Iterator[Contestant]:
    """BC first: it is what the others are compared with."""

    def trained(method: Method[Any]) -> Policy:
        return fit(replace(method, training=ONCE), demos, device="cpu")

    yield Contestant("BC", trained(BC(network=NETWORK)))
    yield Contestant("DBC", trained(DBC(network=NETWORK, guide=DiffusionGuide(training=ONCE))))
    ibc = IBC(network=ENERGY, samples=1000, iterations=3)
    yield Contestant(f"IBC, {ibc.iterations} × {ibc.samples} actions", trained(ibc))
    langevin = IBCLangevin()
    steps = langevin.walk.steps + langevin.last_walk.steps
    yield Contestant(f"IBC-Langevin, {langevin.walks} walks of {steps} steps", trained(langevin))
    policy = trained(DiffusionPolicy(width=256, depth=4, steps=1000))
    for sampler, calls in SAMPLERS:
        yield Contestant(f"Diffusion Policy, {sampler} {calls}", policy.acting(sampler=sampler, calls=calls))


def measure(
    playing: list[Contestant], observations: Observations, rounds: int, progress: Callable[[int, int], None]
) -> dict[str, float]:
    """Median milliseconds an action of each contestant."""
    rng, times = np.random.default_rng(0), dict[str, list[float]]()
    for done in range(rounds + 1):
        shown = rng.permutation(observations)
        for contestant in playing:
            taken = contestant.turn(shown)
            if done:  # the first turn warms up
                times.setdefault(contestant.name, []).append(taken)
        progress(done, rounds)
    return {name: float(np.median(found)) for name, found in times.items()}


def three_digits(number: float) -> str:
    """Those that count, without an exponent."""
    return f"{float(f'{number:.3g}'):,g}"


@dataclass(frozen=True)
class Latency:
    """Time the actions of policies."""

    rounds: int = 15
    """Turns of each contestant."""
    json: bool = False
    """Print the Record instead of a table."""
    out: Path | None = None
    """A file of Records to append to."""

    def run(self) -> None:
        """Do it."""
        begun, load = time.monotonic(), os.getloadavg()[0]
        torch.set_num_threads(1)
        demos = TASKS["maze"].demonstrations()
        playing = list(contestants(demos))
        with bars() as show:
            found = measure(
                playing,
                demos.obs.astype(np.float32),
                self.rounds,
                lambda done, total: show.update("latency", done, total),
            )
        ratio = {name: taken / found["BC"] for name, taken in found.items()}
        record = Record(
            kind="benchmark",
            settings={
                "benchmark": "latency",
                "task": "maze",
                "rounds": self.rounds,
                "threads": torch.get_num_threads(),
                "methods": {c.name: to_dict(c.policy.method, METHODS, GUIDES) for c in playing},
            },
            members=[],
            data=playing[0].policy.data,
            results={"milliseconds": found, "ratio_to_bc": ratio, "load_before": load},
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - begun,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            answer({"results": record.results, "device": record.device, "seconds": record.seconds})
            return
        title = f"Milliseconds an action, one CPU thread, median of {self.rounds} turns"
        rows = [[name, three_digits(taken), three_digits(ratio[name])] for name, taken in found.items()]
        show_table(title, ["method", "ms an action", "times BC"], rows)
        if load > 0.5:
            say(f"Something else was running (load {load:.1f}): these numbers are not worth much.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Latency, prog="python benchmarks/latency.py").run()
