"""Time policies: milliseconds per action for single observations, and episodes of Maze per second.

Networks are those of the paper's Maze column; IBC with Langevin sampling, which the paper does not have, uses its
defaults. Latency does not depend on the weights, so those policies are trained for one update. The length of an episode
does, so policies that run episodes are trained on the bundled demonstrations; IBC, which learns slowly, for so little
that its episodes are long.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from diffclone.data import Demonstrations
from diffclone.evaluation import evaluate
from diffclone.fit import fit
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, BCGMM, DBC, IBC, MIP, DiffusionPolicy, FlowMatching, IBCLangevin
from diffclone.model import Method, Training
from diffclone.nn import Network
from diffclone.nn.diffusion import Sampler
from diffclone.policy import Policy

TURN = 0.2
"""Approximate seconds of a turn."""
ONCE = Training(updates=1)
NETWORK = Network(width=256, depth=3)
"""Policy network of BC and DBC."""
ENERGY = Network(width=1024, depth=1, activation="relu", init="default")
"""Energy network of IBC."""
SAMPLERS: tuple[tuple[Sampler, int], ...] = (
    ("ancestral", 1000),
    ("ddim", 50),
    ("ddim", 10),
    ("ddim", 5),
    ("dpm-solver++", 20),
    ("dpm-solver++", 10),
    ("dpm-solver++", 5),
)
"""Samplers of the diffusion policy and their number of network calls."""
TRAINED, BRIEFLY = Training(updates=4000, lr=1e-3), Training(updates=50, lr=1e-3)
"""Training of policies that run episodes, and of IBC."""

Observations = npt.NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class LatencyEntry:
    """A policy whose latency is measured."""

    name: str
    policy: Policy

    def turn(self, observations: Observations) -> float:
        """Return the milliseconds per action over single observations of (rows, observation size)."""
        calls, start, passed = 0, time.perf_counter(), 0.0
        for obs in itertools.cycle(observations):
            self.policy(obs)
            calls, passed = calls + 1, time.perf_counter() - start
            if passed >= TURN:
                break
        return 1000 * passed / calls


def latency_entries(demos: Demonstrations, training: Training = ONCE, device: str = "cpu") -> Iterator[LatencyEntry]:
    """Yield the policies to time; BC first, since the others are compared with it."""

    def trained(method: Method[Any]) -> Policy:
        return fit(replace(method, training=training), demos, device=device)

    yield LatencyEntry("BC", trained(BC(network=NETWORK)))
    yield LatencyEntry("DBC", trained(DBC(network=NETWORK, guide=DiffusionGuide(training=training))))
    ibc = IBC(network=ENERGY, samples=1000, iterations=3)
    yield LatencyEntry(f"IBC, {ibc.iterations} × {ibc.samples} actions", trained(ibc))
    langevin = IBCLangevin()
    steps = langevin.walk.steps + langevin.last_walk.steps
    yield LatencyEntry(f"IBC-Langevin, {langevin.walks} walks of {steps} steps", trained(langevin))
    policy = trained(DiffusionPolicy(width=256, depth=4, steps=1000))
    for sampler, calls in SAMPLERS:
        yield LatencyEntry(f"Diffusion Policy, {sampler} {calls}", policy.acting(sampler=sampler, calls=calls))
    yield LatencyEntry("BC-GMM", trained(BCGMM(network=NETWORK)))
    yield LatencyEntry("MIP", trained(MIP(network=NETWORK)))
    yield LatencyEntry("Flow matching, 8 calls", trained(FlowMatching(width=256, depth=4, calls=8)))
    yield LatencyEntry("Flow matching, shortcut", trained(FlowMatching(width=256, depth=4, shortcut=0.25, calls=1)))


def time_latency(
    entries: list[LatencyEntry], observations: Observations, rounds: int, progress: Callable[[int, int], None]
) -> dict[str, float]:
    """Return the median milliseconds per action of each entry."""
    rng, times = np.random.default_rng(0), dict[str, list[float]]()
    for done in range(rounds + 1):
        shown = rng.permutation(observations)
        for entry in entries:
            taken = entry.turn(shown)
            if done:  # the first turn is a warm-up
                times.setdefault(entry.name, []).append(taken)
        progress(done, rounds)
    return {name: float(np.median(found)) for name, found in times.items()}


@final
@dataclass(frozen=True, eq=False)
class RolloutEntry:
    """A policy that runs episodes in parallel."""

    name: str
    printed: str | None
    """Key of the number in the paper to compare with."""
    policy: Policy
    episodes: int
    repeats: int

    def run(self) -> tuple[float, float, float]:
        """Return episodes per second, their mean length and the success rate."""
        scores = evaluate(self.policy, "maze", episodes=self.episodes)
        return scores.success.size / scores.seconds, float(scores.length.mean()), scores.success_rate


def rollout_entries(demos: Demonstrations, device: torch.device, *, quick: bool) -> Iterator[RolloutEntry]:
    """Yield policies for Maze. The paper's diffusion policy, with 1000 calls per action, runs on a GPU only."""
    few = 100 if device.type == "cuda" else 5
    many, repeats = (2, 1) if quick else (500, 3)

    def trained(method: Method[Any], training: Training) -> Policy:
        return fit(replace(method, training=ONCE if quick else training), demos, device=device.type)

    yield RolloutEntry("BC", None, trained(BC(network=NETWORK), TRAINED), many, repeats)
    guide = DiffusionGuide(training=ONCE if quick else TRAINED)
    dbc = DBC(network=NETWORK, coefficient=1.0, away=0.0, guide=guide)
    yield RolloutEntry("DBC", "dbc", trained(dbc, TRAINED), many, repeats)
    if quick:
        return
    diffusion = trained(DiffusionPolicy(width=256, depth=4, steps=1000), TRAINED)
    fast = diffusion.acting(sampler="dpm-solver++", calls=10)
    yield RolloutEntry("Diffusion Policy, dpm-solver++ 10", None, fast, 20 * few, 1)
    ibc = trained(IBC(network=ENERGY, samples=1000, iterations=3), BRIEFLY)
    yield RolloutEntry("IBC, 3 × 1000 actions", "implicit-bc", ibc, few, 1)
    if device.type == "cuda":
        walk = diffusion.acting(sampler="ancestral", calls=1000)
        yield RolloutEntry("Diffusion Policy, ancestral 1000", "diffusion-policy", walk, few, 1)


def time_rollouts(entries: list[RolloutEntry], progress: Callable[[int, int], None]) -> dict[str, dict[str, Any]]:
    """Return episodes per second of each entry, the median of its repeats."""
    results: dict[str, list[tuple[float, float, float]]] = {entry.name: [] for entry in entries}
    total, done = sum(entry.repeats for entry in entries), 0
    for turn in range(max(entry.repeats for entry in entries)):
        for entry in entries:
            if turn < entry.repeats:
                results[entry.name].append(entry.run())
                done += 1
                progress(done, total)
    return {
        entry.name: {
            "episodes_per_second": statistics.median(rate for rate, _, _ in results[entry.name]),
            "at_once": entry.episodes,
            "mean_length": results[entry.name][0][1],
            "success_rate": results[entry.name][0][2],
            "printed_as": entry.printed,
        }
        for entry in entries
    }
