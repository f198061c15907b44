"""The result of a check, and the computations that several checks share."""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.notebook import html_table

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Values = npt.NDArray[np.number]
Flags = npt.NDArray[np.bool_]
Part = Literal["obs", "act", "episode", "data"]

Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")

SEED = 0
"""The seed of all random choices: the same data give the same findings."""
MAX_ROWS = 20_000
"""Steps that a check samples where using all would be slow."""
MAX_SHOWN = 8
"""Indices that are listed before the others are only counted."""
CHUNK = 2**22
"""Numbers that are processed at once."""


@final
@dataclass(frozen=True)
class Finding:
    """Something to know before training on these demonstrations."""

    severity: Severity
    """How serious it is: "problem", "warning" or "note"."""
    what: str
    """What is wrong."""
    advice: str
    """How to fix it."""
    part: Part = "data"
    """What `places` are: dimensions of observations or actions, or episodes. `data` stands for everything."""
    places: tuple[int, ...] = ()
    """Where it is, as indices from 0."""
    check: str = ""
    """The name of the check."""

    @property
    def where(self) -> str:
        """The part and the first few indices, as text."""
        if not self.places:
            return "all" if self.part == "data" else self.part
        first = ", ".join(map(str, self.places[:MAX_SHOWN]))
        rest = f" … ({len(self.places)} in all)" if len(self.places) > MAX_SHOWN else ""
        return f"{self.part} {first}{rest}"


@final
class Findings(list[Finding]):
    """A list of findings, the most serious first. A notebook shows it as a table."""

    def __repr__(self) -> str:
        lines = [f"{f.severity}, {f.where}: {f.what} {f.advice}" for f in self]
        return "\n".join([f"{format_count(len(self), 'finding')}{':' * bool(self)}", *lines])

    def _repr_html_(self) -> str:
        rows = [(f.severity, f.where, f.what, f.advice) for f in self]
        return html_table(format_count(len(self), "finding"), rows, ("severity", "where", "what", "advice"))


def list_indices(chosen: Flags) -> tuple[int, ...]:
    """Return the indices of the flags that are set."""
    return tuple(np.flatnonzero(chosen).tolist())


def format_count(count: int | np.integer, noun: str) -> str:
    """Return a count with its noun, such as "1 episode" or "2 episodes"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def has_images(demos: Demonstrations) -> bool:
    """Return whether the observations are images. Checks of single dimensions do not apply to pixels."""
    return demos.obs.dtype == np.uint8


def split_parts(demos: Demonstrations) -> tuple[Demonstrations, Demonstrations]:
    """Return the numbers alone and the images alone of demonstrations that have both."""
    layout = demos.layout
    assert layout is not None
    meta = {key: value for key, value in demos.meta.items() if key != "state_size"}
    parts = layout.numbers_of(demos.obs), demos.obs[:, : layout.pixels]
    numbers, images = (Demonstrations(part, demos.act, demos.episode_ends, meta) for part in parts)
    return numbers, images


def sample_rows(count: int, most: int = MAX_ROWS) -> Indices:
    """Return the indices of all rows, or of `most` random rows, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(SEED).choice(count, most, replace=False))


def is_varying(values: Values) -> Flags:
    """Return which columns have more than one value, apart from rounding errors."""
    low, high = values.min(0).astype(np.float64), values.max(0).astype(np.float64)
    return high - low > 1e-6 * np.maximum(np.abs(low), np.abs(high))


def standardise(values: Values) -> Matrix:
    """Return the columns that vary, with mean 0 and standard deviation 1."""
    x = values[:, is_varying(values)].astype(np.float64)
    return (x - x.mean(0)) / x.std(0)


def get_action_bounds(demos: Demonstrations) -> tuple[Matrix, Matrix]:
    """Return the lowest and highest action of each dimension, infinite where they are not known."""
    unknown = np.full(demos.act.shape[1], np.inf)
    low, high = demos.action_bounds or (-unknown, unknown)
    return low.astype(np.float64), high.astype(np.float64)


def get_episodes(demos: Demonstrations, steps: Indices) -> Indices:
    """Return the episodes that these steps belong to."""
    return np.searchsorted(demos.episode_ends, steps, side="right")


def compute_features(demos: Demonstrations, steps: Indices) -> Matrix:
    """Return features of observations for distances: standardised values, or random projections of images."""
    if not has_images(demos):
        return standardise(demos.obs[steps])
    projection = np.random.default_rng(SEED).standard_normal((demos.obs.shape[1], 32)).astype(np.float32)
    rows = max(1, CHUNK // demos.obs.shape[1])
    parts = [demos.obs[steps[k : k + rows]].astype(np.float32) @ projection for k in range(0, len(steps), rows)]
    return standardise(np.concatenate(parts))


def distance_scale(demos: Demonstrations) -> npt.NDArray[np.float32]:
    """Return the factors of observations whose norm is a distance in standard deviations (images: from 0 to 1)."""
    scale = np.full(demos.obs.shape[1], 1 / 255)
    if not has_images(demos):
        std = demos.obs[sample_rows(demos.num_steps)].std(0, dtype=np.float64)
        scale = np.where(is_varying(demos.obs) & (std > 0), 1 / np.where(std > 0, std, 1), 0)
    return (scale / np.sqrt(max(1, np.count_nonzero(scale)))).astype(np.float32)


def measure_movement(demos: Demonstrations) -> Matrix:
    """Return how far the observation moves from each step to the next (`distance_scale`).

    The result has one number for each pair of neighbouring steps, and NaN where they belong to different episodes.
    """
    scale = distance_scale(demos)
    moved = np.empty(demos.num_steps - 1)
    rows = max(1, CHUNK // demos.obs.shape[1])
    for k in range(0, len(moved), rows):
        now = demos.obs[k : k + rows + 1].astype(np.float32)
        moved[k : k + rows] = np.linalg.norm(np.diff(now, axis=0) * scale, axis=1)
    moved[demos.episode_ends[:-1] - 1] = np.nan
    return moved


def find_nearest(rows: Matrix, others: Matrix, groups: Indices, other_groups: Indices) -> tuple[Matrix, Indices]:
    """Return the distance (root mean square over columns) and the index of the nearest of `others` in another group."""
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
