"""How fast policies act: milliseconds an action, one observation at a time, and episodes of Maze a second.

Networks are those of the paper's Maze column; implicit BC with Langevin walks, which the paper does not have, is as its
defaults are. For the time of an action policies are trained for a single update: it does not depend on the weights.
How long an episode lasts does, so those that play are trained for a while on the bundled demonstrations; implicit BC,
which learns slowly, for so little that its episodes are long.
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
from diffclone.methods import BC, DBC, IBC, DiffusionPolicy, IBCLangevin
from diffclone.model import Method, Training
from diffclone.nn import Network
from diffclone.nn.diffusion import Sampler
from diffclone.policy import Policy

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
PLAYED, SLOWLY = Training(updates=4000, lr=1e-3), Training(updates=50, lr=1e-3)
"""Of a policy that plays, and of implicit BC."""

Observations = npt.NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Actor:
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


def actors(demos: Demonstrations, training: Training = ONCE, device: str = "cpu") -> Iterator[Actor]:
    """BC first: it is what the others are compared with."""

    def trained(method: Method[Any]) -> Policy:
        return fit(replace(method, training=training), demos, device=device)

    yield Actor("BC", trained(BC(network=NETWORK)))
    yield Actor("DBC", trained(DBC(network=NETWORK, guide=DiffusionGuide(training=training))))
    ibc = IBC(network=ENERGY, samples=1000, iterations=3)
    yield Actor(f"IBC, {ibc.iterations} × {ibc.samples} actions", trained(ibc))
    langevin = IBCLangevin()
    steps = langevin.walk.steps + langevin.last_walk.steps
    yield Actor(f"IBC-Langevin, {langevin.walks} walks of {steps} steps", trained(langevin))
    policy = trained(DiffusionPolicy(width=256, depth=4, steps=1000))
    for sampler, calls in SAMPLERS:
        yield Actor(f"Diffusion Policy, {sampler} {calls}", policy.acting(sampler=sampler, calls=calls))


def measure(
    playing: list[Actor], observations: Observations, rounds: int, progress: Callable[[int, int], None]
) -> dict[str, float]:
    """Median milliseconds an action of each."""
    rng, times = np.random.default_rng(0), dict[str, list[float]]()
    for done in range(rounds + 1):
        shown = rng.permutation(observations)
        for actor in playing:
            taken = actor.turn(shown)
            if done:  # the first turn warms up
                times.setdefault(actor.name, []).append(taken)
        progress(done, rounds)
    return {name: float(np.median(found)) for name, found in times.items()}


@final
@dataclass(frozen=True, eq=False)
class Player:
    """A policy that plays episodes, as many at once as suit it."""

    name: str
    printed: str | None
    """Whose number of the paper it stands beside."""
    policy: Policy
    episodes: int
    plays: int

    def play(self) -> tuple[float, float, float]:
        """Episodes a second, their mean length, and the rate of success."""
        scores = evaluate(self.policy, "maze", episodes=self.episodes)
        return scores.success.size / scores.seconds, float(scores.length.mean()), scores.success_rate


def players(demos: Demonstrations, device: torch.device, *, quick: bool) -> Iterator[Player]:
    """Of Maze. Walks of a thousand steps an action, the paper's diffusion policy, are for a GPU alone."""
    few = 100 if device.type == "cuda" else 5
    many, plays = (2, 1) if quick else (500, 3)

    def trained(method: Method[Any], training: Training) -> Policy:
        return fit(replace(method, training=ONCE if quick else training), demos, device=device.type)

    yield Player("BC", None, trained(BC(network=NETWORK), PLAYED), many, plays)
    guide = DiffusionGuide(training=ONCE if quick else PLAYED)
    dbc = DBC(network=NETWORK, coefficient=1.0, away=0.0, guide=guide)
    yield Player("DBC", "dbc", trained(dbc, PLAYED), many, plays)
    if quick:
        return
    diffusion = trained(DiffusionPolicy(width=256, depth=4, steps=1000), PLAYED)
    fast = diffusion.acting(sampler="dpm-solver++", calls=10)
    yield Player("Diffusion Policy, dpm-solver++ 10", None, fast, 20 * few, 1)
    ibc = trained(IBC(network=ENERGY, samples=1000, iterations=3), SLOWLY)
    yield Player("IBC, 3 × 1000 actions", "implicit-bc", ibc, few, 1)
    if device.type == "cuda":
        walk = diffusion.acting(sampler="ancestral", calls=1000)
        yield Player("Diffusion Policy, ancestral 1000", "diffusion-policy", walk, few, 1)


def rollouts(playing: list[Player], progress: Callable[[int, int], None]) -> dict[str, dict[str, Any]]:
    """Episodes a second of each, the median of its plays."""
    played: dict[str, list[tuple[float, float, float]]] = {player.name: [] for player in playing}
    total, done = sum(player.plays for player in playing), 0
    for turn in range(max(player.plays for player in playing)):
        for player in playing:
            if turn < player.plays:
                played[player.name].append(player.play())
                done += 1
                progress(done, total)
    return {
        player.name: {
            "episodes_per_second": statistics.median(rate for rate, _, _ in played[player.name]),
            "at_once": player.episodes,
            "mean_length": played[player.name][0][1],
            "success_rate": played[player.name][0][2],
            "printed_as": player.printed,
        }
        for player in playing
    }
