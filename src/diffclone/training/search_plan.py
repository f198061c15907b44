"""What a search tries, and how it is shortened or extended to a budget of time.

A search trains two stacks: BC, and DBC with one guide that all its members share. The learning rate is constant and the
weights are averaged, so a snapshot at update n is the policy that a training of n updates gives.

    seconds = BC + guide + DBC + their metrics + the final training, each from a rate that is measured first

The largest grid that fits the budget is tried. If the machine becomes slower, stacks end at an earlier snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from diffclone.data import Demonstrations
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Method, Training
from diffclone.nn import Network
from diffclone.training import Precision
from diffclone.training.estimate import first_steps, limit_updates, seconds_per_update
from diffclone.training.suggestion import image_size
from diffclone.training.time_left import about, describe_plan

EMA = 0.999
FALLBACK_UPDATES = 1_000
"""Updates of BC where nothing can be held out: short, because over-training costs more than under-training."""
WEIGHT_DECAY = 0.1
"""Of BC. It was never worse than none by more than a point in the tuning study."""
GUIDE_WIDTH = 256
AWAY_COST = 1.7
"""Time of an update of DBC with L_away, relative to one without."""
RATE_UPDATES = 64
"""Updates whose time is measured."""
MARGIN = 0.9
"""Share of the time left that is planned."""


@final
@dataclass(frozen=True)
class Grid:
    """The values that a search tries."""

    seeds: int
    """Seeds per configuration."""
    snapshots: tuple[int, ...]
    """Training lengths."""
    lr: tuple[float, ...] = (1e-3,)
    state_noise: tuple[float, ...] = (0.0,)
    """Of BC."""
    coefficient: tuple[float, ...] = ()
    """λ of DBC; none to try BC alone."""
    away: tuple[float, ...] = (0.0,)
    """κ of DBC."""
    guide_updates: int = 0

    @property
    def bc_members(self) -> int:
        """Members of the stack of BC."""
        return self.seeds * len(self.lr) * len(self.state_noise)

    @property
    def dbc_members(self) -> int:
        """Members of the stack of DBC."""
        return self.seeds * len(self.lr) * len(self.coefficient) * len(self.away)


LONG = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
COEFFICIENTS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
GRIDS = (
    Grid(2, (250, 500, 1_000)),
    Grid(2, (500, 1_000, 2_000), state_noise=(0.0, 0.1)),
    Grid(2, (500, 1_000, 2_000), (1e-3,), (0.0, 0.1), (0.3, 3.0), (0.0,), 3_000),
    Grid(2, (500, 1_000, 2_000, 4_000), (1e-3,), (0.0, 0.1), (0.3, 3.0), (0.0,), 4_000),
    Grid(2, (500, 1_000, 2_000, 4_000), (1e-3,), (0.0, 0.1), (0.3, 3.0), (0.0, 1.0), 8_000),
    Grid(2, (500, 1_000, 2_000, 4_000, 8_000), (1e-3,), (0.0, 0.05, 0.1), (0.3, 1.0, 3.0, 10.0), (0.0, 1.0), 10_000),
    Grid(3, LONG, (1e-3,), (0.0, 0.05, 0.1), COEFFICIENTS, (0.0, 1.0), 20_000),
    Grid(3, LONG, (1e-3, 3e-4), (0.0, 0.05, 0.1), COEFFICIENTS, (0.0, 1.0), 20_000),
)
"""From small to large. Two λ far apart serve better than two close ones (docs/training.md, regret of each grid)."""


@final
@dataclass(frozen=True)
class Rates:
    """What a machine does per second, or how long it takes."""

    bc: float
    """Member-updates per second of a stack of BC."""
    dbc: float
    """Member-updates per second of a stack of DBC."""
    guide: float
    """Updates per second of the guide that a stack shares."""
    final_bc: float
    """Updates per second of the final policy, with all its seeds."""
    final_dbc: float
    final_guide: float
    score: float = 0.0
    """Seconds for the metrics of one member at one snapshot."""

    def seconds(self, grid: Grid) -> dict[str, float]:
        """Return the time of each stage, by its label in the progress display, metrics included.

        The final training has the longest length and, if DBC is tried, a guide.
        """
        longest, scored = max(grid.snapshots), len(grid.snapshots) * self.score
        found = {"trying BC: policy": grid.bc_members * (longest / self.bc + scored)}
        if grid.dbc_members:
            found["trying DBC: guide"] = grid.guide_updates / self.guide
            found["trying DBC: policy"] = grid.dbc_members * (longest / self.stack_rate(grid, "dbc") + scored)
        return found | self.final_seconds(grid, "dbc" if grid.dbc_members else "bc", longest)

    def stack_rate(self, grid: Grid, method: str) -> float:
        """Return the member-updates per second of a stack of the grid."""
        if method == "bc":
            return self.bc
        return self.dbc / (AWAY_COST if any(grid.away) else 1.0)  # L_away is computed for all members of a stack

    def final_seconds(self, grid: Grid, method: str, updates: int) -> dict[str, float]:
        """Return the time of the final training."""
        if method == "bc":
            return {"final training: policy": updates / self.final_bc}
        slowest = AWAY_COST if any(grid.away) else 1.0
        policy = slowest * updates / self.final_dbc
        return {"final training: guide": grid.guide_updates / self.final_guide, "final training: policy": policy}


def choose_grid(rates: Rates, seconds: float, *, images: bool = False) -> Grid:
    """Return the largest grid that fits into the time in seconds; the smallest if none does.

    Images need an encoder before a guide, which takes too long to try: their grids have no DBC.
    """
    grids = [replace(grid, coefficient=(), guide_updates=0) for grid in GRIDS] if images else GRIDS
    fits = [grid for grid in grids if sum(rates.seconds(grid).values()) <= MARGIN * seconds]
    return fits[-1] if fits else grids[0]


def describe_grid(grid: Grid, plan: Mapping[str, float]) -> str:
    """Return what is tried and about how long it takes, in one line."""
    members = f"{grid.bc_members} members of BC" + f" and {grid.dbc_members} of DBC" * (grid.dbc_members > 0)
    what = f"trying {members}, each at {', '.join(f'{update:,}' for update in grid.snapshots)} updates"
    if not plan:
        return f"{what}."
    times: dict[str, float] = {}
    for label, seconds in plan.items():
        name = label.partition(":")[0].removeprefix("trying ")
        times[name] = times.get(name, 0.0) + seconds
    final = times.pop("final training")
    return f"{what}; {describe_plan(times)}; then the final training, up to {about(final)}."


def policy_network(demos: Demonstrations) -> Network:
    """Return the network of the policies: 256 wide, and 512 for pairs of more than 64 numbers."""
    images = demos.obs.dtype == np.uint8
    state = 0 if demos.layout is None else demos.layout.numbers
    size = (32 + state if images else demos.obs.shape[1]) + demos.act.shape[1]
    return Network(width=256 if size <= 64 else 512, depth=2, image=image_size(demos), state=state)


def policy_training(updates: int) -> Training:
    """Return a training in which nothing depends on the planned length."""
    return Training(updates=updates, lr=1e-3, decay="constant", ema=EMA, eps=1e-12)


def bc_method(demos: Demonstrations, updates: int) -> BC:
    """Return BC for these demonstrations."""
    training = replace(policy_training(updates), weight_decay=WEIGHT_DECAY)
    return BC(training=training, network=policy_network(demos))


def dbc_method(demos: Demonstrations, updates: int, guide_updates: int) -> DBC:
    """Return DBC for these demonstrations."""
    guide = DiffusionGuide(training=Training(updates=max(1, guide_updates), lr=1e-3), width=GUIDE_WIDTH)
    return DBC(training=policy_training(updates), network=policy_network(demos), coefficient=1.0, away=0.0, guide=guide)


def stacks(grid: Grid, demos: Demonstrations) -> dict[str, tuple[Method[Any], dict[str, tuple[float, ...]]]]:
    """Return the method of each stack and the values that it varies."""
    longest = max(grid.snapshots)
    bc: dict[str, tuple[float, ...]] = {"training.lr": grid.lr, "state_noise": grid.state_noise}
    found: dict[str, tuple[Method[Any], dict[str, tuple[float, ...]]]] = {"bc": (bc_method(demos, longest), bc)}
    if grid.dbc_members:
        dbc = {"training.lr": grid.lr, "coefficient": grid.coefficient, "away": grid.away}
        found["dbc"] = (dbc_method(demos, longest, grid.guide_updates), dbc)
    return found


def chosen_method(
    grid: Grid, demos: Demonstrations, name: str, fields: Mapping[str, float], updates: int
) -> Method[Any]:
    """Return a method with the values of one candidate."""
    method = bc_method(demos, updates) if name == "bc" else dbc_method(demos, updates, grid.guide_updates)
    own = {key: value for key, value in fields.items() if "." not in key}
    training = {key.removeprefix("training."): value for key, value in fields.items() if "." in key}
    return replace(method, training=replace(method.training, **training), **own)


def measure_rates(train: Demonstrations, device: str, precision: Precision, final_seeds: Sequence[int]) -> Rates:
    """Return the rates of this machine, from a few updates of each model."""
    some, four = first_steps(train), FitOptions(seeds=range(4), device=device, precision=precision)
    alone = replace(four, seeds=final_seeds)

    def rate(method: Method[Any], options: FitOptions) -> dict[str, float]:
        times = seconds_per_update(limit_updates(method, RATE_UPDATES), some, options, RATE_UPDATES)
        return {stage: 1 / max(1e-9, seconds) for stage, seconds in times.items()}

    bc = bc_method(train, RATE_UPDATES)
    stack, final = rate(bc, four)["policy"], rate(bc, alone)["policy"]
    if train.obs.dtype == np.uint8:
        return Rates(4 * stack, 4 * stack, stack, final, final, final)
    dbc = dbc_method(train, RATE_UPDATES, RATE_UPDATES)
    guided, final_guided = rate(dbc, replace(four, guide_seed=0)), rate(dbc, alone)
    return Rates(
        bc=4 * stack,
        dbc=4 * guided["policy"],
        guide=guided["guide"],
        final_bc=final,
        final_dbc=final_guided["policy"],
        final_guide=final_guided["guide"],
    )
