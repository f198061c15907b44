"""What a check answers, and what several checks need: chosen rows, standard scores, movement from step to step."""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations

Matrix = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Values = npt.NDArray[np.number]
Flags = npt.NDArray[np.bool_]
Part = Literal["obs", "act", "episode", "data"]

Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")

SEED = 0
"""Of every random choice here: the same data give the same findings."""
ROWS = 20_000
"""Steps that are looked at where all would take long."""
SHOWN = 8
"""Places that are named before the rest is counted."""
CHUNK = 2**22
"""Numbers that are compared at once."""


@final
@dataclass(frozen=True)
class Finding:
    """One thing to know before learning from these demonstrations."""

    severity: Severity
    check: str
    """The name of the check, for scripts."""
    what: str
    """What was found."""
    advice: str
    """What to do."""
    part: Part = "data"
    """What `places` counts: dimensions of observations or actions, or episodes. `data` is all of it."""
    places: tuple[int, ...] = ()
    """Where, counted from 0."""

    @property
    def where(self) -> str:
        """The places, the first few by number."""
        if not self.places:
            return "all" if self.part == "data" else self.part
        first = ", ".join(map(str, self.places[:SHOWN]))
        rest = f" … ({len(self.places)} in all)" if len(self.places) > SHOWN else ""
        return f"{self.part} {first}{rest}"


def places(chosen: Flags) -> tuple[int, ...]:
    """The numbers of those that are chosen."""
    return tuple(np.flatnonzero(chosen).tolist())


def pictures(demos: Demonstrations) -> bool:
    """Whether the observations are pictures: single pixels then mean little."""
    return demos.obs.dtype == np.uint8


def some_rows(count: int, most: int = ROWS) -> Numbers:
    """All rows, or `most` of them chosen at random, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(SEED).choice(count, most, replace=False))


def varies(values: Values) -> Flags:
    """Which columns have more than one value, rounding aside."""
    low, high = values.min(0).astype(np.float64), values.max(0).astype(np.float64)
    return high - low > 1e-6 * np.maximum(np.abs(low), np.abs(high))


def standard(values: Values) -> Matrix:
    """Standard scores of the columns that vary."""
    x = values[:, varies(values)].astype(np.float64)
    return (x - x.mean(0)) / x.std(0)


def bounds_of(demos: Demonstrations) -> tuple[Matrix, Matrix]:
    """Lowest and highest action of each dimension; infinite where that is not known."""
    size = demos.act.shape[1]
    low, high = (-np.inf, np.inf) if demos.action_bounds is None else demos.action_bounds
    return np.broadcast_to(low, size).astype(np.float64), np.broadcast_to(high, size).astype(np.float64)


def episode_of(demos: Demonstrations, steps: Numbers) -> Numbers:
    """The episodes that these steps belong to."""
    return np.searchsorted(demos.episode_ends, steps, side="right")


def features(demos: Demonstrations, steps: Numbers) -> Matrix:
    """These steps' observations so that distances mean something: standard scores, or random mixtures of pixels."""
    if not pictures(demos):
        return standard(demos.obs[steps])
    mix = np.random.default_rng(SEED).standard_normal((demos.obs.shape[1], 32)).astype(np.float32)
    rows = max(1, CHUNK // demos.obs.shape[1])
    parts = [demos.obs[steps[k : k + rows]].astype(np.float32) @ mix for k in range(0, len(steps), rows)]
    return standard(np.concatenate(parts))


def movement(demos: Demonstrations) -> Matrix:
    """How far each step but an episode's last moves the observation, in standard deviations; 0 … 1 for pictures.

    One number for each pair of neighbouring steps; NaN where the pair belongs to two episodes.
    """
    scale = np.full(demos.obs.shape[1], 1 / 255)
    if not pictures(demos):
        std = demos.obs[some_rows(demos.num_steps)].std(0, dtype=np.float64)
        scale = np.where(varies(demos.obs) & (std > 0), 1 / np.where(std > 0, std, 1), 0)
    scale = (scale / np.sqrt(max(1, np.count_nonzero(scale)))).astype(np.float32)
    moved = np.empty(demos.num_steps - 1)
    rows = max(1, CHUNK // demos.obs.shape[1])
    for k in range(0, len(moved), rows):
        now = demos.obs[k : k + rows + 1].astype(np.float32)
        moved[k : k + rows] = np.linalg.norm(np.diff(now, axis=0) * scale, axis=1)
    moved[demos.episode_ends[:-1] - 1] = np.nan
    return moved


def nearest(rows: Matrix, others: Matrix, groups: Numbers, other_groups: Numbers) -> tuple[Matrix, Numbers]:
    """Distance to, and number of, the nearest of `others` in another group; root mean square over columns."""
    distance, index = np.empty(len(rows)), np.empty(len(rows), np.int64)
    length = np.square(others).sum(1)
    step = max(1, CHUNK // len(others))
    for k in range(0, len(rows), step):
        chunk = rows[k : k + step]
        squares = np.square(chunk).sum(1)[:, None] + length - 2 * chunk @ others.T
        squares[groups[k : k + step, None] == other_groups] = np.inf
        index[k : k + step] = squares.argmin(1)
        distance[k : k + step] = squares.min(1)
    return np.sqrt(distance.clip(0) / max(1, rows.shape[1])), index
