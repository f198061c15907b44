"""What a search tries, and how it is shortened or extended to a budget of time.

A search trains stacks of BC and of flow matching, and one of DBC if a grid asks for it, with one guide that all its
members share. The learning rate is constant and the weights are averaged, so a snapshot at update n is the policy that
a training of n updates gives.

    seconds = stacks + guide + their metrics + the final training, each from a rate that is measured first

The largest grid that fits the budget is tried. If the machine becomes slower, stacks end at an earlier snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from diffclone.data import Demonstrations
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC, FlowMatching
from diffclone.model import Method, Training
from diffclone.nn import Network
from diffclone.settings import describe_method
from diffclone.training import Precision
from diffclone.training.estimate import first_steps, limit_updates, seconds_per_update
from diffclone.training.suggestion import image_size
from diffclone.training.time_left import about, describe_plan

EMA = 0.999
FALLBACK_UPDATES = 1_000
"""Updates of BC where nothing can be held out: short, because over-training costs more than under-training."""
WEIGHT_DECAY = 0.1
"""Of BC. It was never worse than none by more than a point in the tuning study."""
FLOW_WIDTH, GUIDE_WIDTH = 256, 256
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
    """Training lengths of BC and DBC."""
    lr: tuple[float, ...] = (1e-3,)
    state_noise: tuple[float, ...] = (0.0,)
    """Of BC."""
    coefficient: tuple[float, ...] = ()
    """λ of DBC, which is shown and not chosen; none to leave it out."""
    away: tuple[float, ...] = (0.0,)
    """κ of DBC."""
    guide_updates: int = 0
    flow: tuple[int, ...] = ()
    """Training lengths of flow matching; none to leave it out."""

    def lengths(self, method: str) -> tuple[int, ...]:
        """Return the training lengths of a stack."""
        return self.flow if method == "flow-matching" else self.snapshots

    def members(self, method: str) -> int:
        """Return the members of a stack; 0 if the method is not tried."""
        return {"bc": self.bc_members, "flow-matching": self.flow_members, "dbc": self.dbc_members}[method]

    @property
    def flow_members(self) -> int:
        """Members of the stack of flow matching."""
        return self.seeds * len(self.lr) * bool(self.flow)

    @property
    def bc_members(self) -> int:
        """Members of the stack of BC."""
        return self.seeds * len(self.lr) * len(self.state_noise)

    @property
    def dbc_members(self) -> int:
        """Members of the stack of DBC."""
        return self.seeds * len(self.lr) * len(self.coefficient) * len(self.away)


LENGTHS = (500, 1_000, 2_000, 4_000)
"""Of BC, also in larger grids: with longer trainings the rule does not see that its success falls."""
GRIDS = (
    Grid(2, (250, 500, 1_000)),
    Grid(2, (500, 1_000, 2_000), flow=(1_000, 2_000)),
    Grid(2, LENGTHS, flow=(1_000, 2_000, 4_000)),
    Grid(2, LENGTHS, flow=(2_000, 4_000, 8_000)),
    Grid(2, LENGTHS, flow=(2_000, 4_000, 8_000, 16_000)),
    Grid(3, LENGTHS, flow=(2_000, 4_000, 8_000, 16_000, 32_000)),
    Grid(3, LENGTHS, (1e-3, 3e-4), flow=(4_000, 8_000, 16_000, 32_000, 64_000)),
)
"""From small to large. DBC is in none of them, since the rule cannot compare it (`choice.py`)."""
DEFAULT_GRIDS = 4
"""Grids that a search with the default budget may use, however fast the machine is. The last of them was tested."""
STACKS = ("bc", "flow-matching", "dbc")
"""Methods that a search tries, in this order."""


@final
@dataclass(frozen=True)
class Rates:
    """What a machine does per second, or how long it takes."""

    stack: Mapping[str, float]
    """Member-updates per second of the stack of each method."""
    final: Mapping[str, float]
    """Updates per second of the final policy of each method, with all its seeds."""
    guide: float
    """Updates per second of the guide that a stack shares."""
    final_guide: float
    score: float = 0.0
    """Seconds for the metrics of one member at one snapshot."""

    def seconds(self, grid: Grid) -> dict[str, float]:
        """Return the time of each stage, by its label in the progress display, metrics included.

        The final training is the one that takes longest.
        """
        found: dict[str, float] = {}
        finals: list[dict[str, float]] = []
        for method in STACKS:
            if not (members := grid.members(method)):
                continue
            lengths, label = grid.lengths(method), describe_method(method)
            if method == "dbc":
                found[f"trying {label}: guide"] = grid.guide_updates / self.guide
            each = max(lengths) / self.stack_rate(grid, method) + len(lengths) * self.score
            found[f"trying {label}: policy"] = members * each
            finals.append(self.final_seconds(grid, method, max(lengths)))
        return found | max(finals, key=lambda stages: sum(stages.values()))

    def stack_rate(self, grid: Grid, method: str) -> float:
        """Return the member-updates per second of a stack of the grid."""
        return self.stack[method] / self.slower(grid, method)

    def slower(self, grid: Grid, method: str) -> float:
        """Return how much longer an update takes than that of the method alone."""
        return AWAY_COST if method == "dbc" and any(grid.away) else 1.0  # L_away is computed for all of a stack

    def final_seconds(self, grid: Grid, method: str, updates: int) -> dict[str, float]:
        """Return the time of the final training."""
        guide = {"final training: guide": grid.guide_updates / self.final_guide} if method == "dbc" else {}
        return {**guide, "final training: policy": self.slower(grid, method) * updates / self.final[method]}


def choose_grid(rates: Rates, seconds: float, count: int | None = None, *, images: bool = False) -> Grid:
    """Return the largest of the first `count` grids that fits into the time in seconds; the smallest if none does.

    Images are tried with BC alone: DBC would need an encoder before its guide, and flow matching takes no images.
    """
    grids = [replace(grid, coefficient=(), guide_updates=0, flow=()) for grid in GRIDS] if images else GRIDS
    grids = grids[:count]
    fits = [grid for grid in grids if sum(rates.seconds(grid).values()) <= MARGIN * seconds]
    return fits[-1] if fits else grids[0]


def describe_grid(grid: Grid, plan: Mapping[str, float]) -> str:
    """Return what is tried and about how long it takes, in one line."""
    tried: dict[tuple[int, ...], list[str]] = {}
    for method in STACKS:
        if members := grid.members(method):
            tried.setdefault(grid.lengths(method), []).append(f"{members} members of {describe_method(method)}")
    each = [f"{' and '.join(m)} at {', '.join(f'{n:,}' for n in lengths)} updates" for lengths, m in tried.items()]
    what = f"trying {', '.join(each)}"
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


def flow_method(updates: int) -> FlowMatching:
    """Return flow matching. Its networks need no width for the data: 256 units served up to 88 numbers."""
    return FlowMatching(training=replace(policy_training(updates), eps=1e-8), width=FLOW_WIDTH)


def make_method(grid: Grid, demos: Demonstrations, name: str, updates: int) -> Method[Any]:
    """Return the method of a stack."""
    if name == "flow-matching":
        return flow_method(updates)
    return bc_method(demos, updates) if name == "bc" else dbc_method(demos, updates, grid.guide_updates)


def stacks(grid: Grid, demos: Demonstrations) -> dict[str, tuple[Method[Any], dict[str, tuple[float, ...]]]]:
    """Return the method of each stack and the values that it varies."""
    values: dict[str, dict[str, tuple[float, ...]]] = {
        "bc": {"state_noise": grid.state_noise},
        "flow-matching": {},
        "dbc": {"coefficient": grid.coefficient, "away": grid.away},
    }
    return {
        name: (make_method(grid, demos, name, max(grid.lengths(name))), {"training.lr": grid.lr, **values[name]})
        for name in STACKS
        if grid.members(name)
    }


def chosen_method(
    grid: Grid, demos: Demonstrations, name: str, fields: Mapping[str, float], updates: int
) -> Method[Any]:
    """Return a method with the values of one candidate."""
    method = make_method(grid, demos, name, updates)
    own = {key: value for key, value in fields.items() if "." not in key}
    training = {key.removeprefix("training."): value for key, value in fields.items() if "." in key}
    return replace(method, training=replace(method.training, **training), **own)


def measure_rates(train: Demonstrations, device: str, precision: Precision, final_seeds: int | Sequence[int]) -> Rates:
    """Return the rates of this machine, from a few updates of each model."""
    some, four = first_steps(train), FitOptions(seeds=range(4), device=device, precision=precision)
    alone = replace(four, seeds=final_seeds)

    def rate(method: Method[Any], options: FitOptions) -> dict[str, float]:
        times = seconds_per_update(limit_updates(method, RATE_UPDATES), some, options, RATE_UPDATES)
        return {stage: 1 / max(1e-9, seconds) for stage, seconds in times.items()}

    methods: dict[str, Method[Any]] = {"bc": bc_method(train, RATE_UPDATES)}
    if train.obs.dtype != np.uint8:
        methods["flow-matching"] = flow_method(RATE_UPDATES)
        methods["dbc"] = dbc_method(train, RATE_UPDATES, RATE_UPDATES)
    shared = replace(four, guide_seed=0)
    stack = {name: rate(method, shared if name == "dbc" else four) for name, method in methods.items()}
    final = {name: rate(method, alone) for name, method in methods.items()}
    return Rates(
        stack={name: 4 * rates["policy"] for name, rates in stack.items()},
        final={name: rates["policy"] for name, rates in final.items()},
        guide=stack.get("dbc", {}).get("guide", np.inf),
        final_guide=final.get("dbc", {}).get("guide", np.inf),
    )
