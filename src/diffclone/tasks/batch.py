"""Many environments of one task, stepped together. Each row is one environment; a call names the rows it acts on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import CannotRender

Rows = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Image = npt.NDArray[np.uint8]
"""(height, width, 3)"""

Starts = Literal["evaluation", "validation"]
START_SEEDS = {"evaluation": 1_000_000, "validation": 2_000_000, "demonstrations": 3_000_000, "training": 4_000_000}
"""First seed of each list of starts. Choose settings on validation starts; report evaluation starts."""


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a step, with one entry per row."""

    reward: Doubles
    """The reward of the step."""
    success: Flags
    """Whether the task is solved, at this step or an earlier one."""
    ended: Flags
    """Whether the episode has ended by itself. The caller ends episodes at the horizon."""


class BatchEnv(ABC):
    """Environments of one task that differ in state only.

    A subclass takes the number of rows as its first argument and its options as keywords with defaults, sets the three
    attributes below, and implements `reset`, `step`, `observe` and, where it holds resources, `close`.
    """

    count: int
    """Number of rows."""
    act_low: Doubles
    """(action size,): lowest action."""
    act_high: Doubles
    """(action size,): highest action."""
    reports_success: bool = True
    """Whether `Outcome.success` is known. Without it only returns are reported."""

    @abstractmethod
    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start an episode in each of these rows, with one random generator per row."""

    def reset_from_seeds(self, rows: Rows, seeds: Sequence[int]) -> None:
        """Start an episode in each of these rows. The same seed gives the same start."""
        self.reset(rows, [np.random.default_rng(seed) for seed in seeds])

    @abstractmethod
    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Apply actions (rows, action size) to these rows."""

    @abstractmethod
    def observe(self, rows: Rows) -> Doubles:
        """Return the observations of these rows, (rows, observation size), as a copy."""

    def render(self, row: int) -> Image:
        """Return an image of a row."""
        raise CannotRender(f"{type(self).__name__} does not render images.")

    def close(self) -> None:  # noqa: B027 (optional)
        """Release threads, processes and windows."""
