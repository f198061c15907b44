"""Many environments of one task, stepped together. A row is an environment; a call names the rows it is about."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import CannotRender

Rows = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Picture = npt.NDArray[np.uint8]
"""(height, width, 3)"""


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """What a step did, one entry a named row."""

    reward: Doubles
    success: Flags
    """Whether the task is solved, now or before."""
    ended: Flags
    """Whether the episode is over for a reason of its own; the horizon is the caller's to count."""


class BatchEnv(ABC):
    """Environments that share a model and differ in state."""

    count: int
    """Rows."""
    act_low: Doubles
    """Lowest action."""
    act_high: Doubles
    """Highest action."""

    @abstractmethod
    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Begin an episode in these rows, each from its own generator."""

    @abstractmethod
    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Advance these rows by one action each."""

    @abstractmethod
    def observe(self, rows: Rows) -> Doubles:
        """What an agent sees in these rows, (rows, observation size)."""

    def render(self, row: int) -> Picture:
        """What a row looks like."""
        raise CannotRender(f"{type(self).__name__} draws no pictures.")

    @abstractmethod
    def close(self) -> None:
        """End the threads."""
