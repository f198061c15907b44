"""Keep a search within its budget if the machine becomes slower than it was when the grid was chosen."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from diffclone.training import Progress
from diffclone.training.choice import Candidate
from diffclone.training.search_plan import Grid, Rates

CLOSING = 6.0
"""Seconds at the end, for files and the page."""


class OutOfTime(Exception):
    """A stack cannot be tried within the budget."""


@final
@dataclass(frozen=True)
class Deadline:
    """When the budget ends."""

    end: float = math.inf
    """In seconds of the monotonic clock."""

    @property
    def left(self) -> float:
        """Seconds that are left for trainings and metrics."""
        return self.end - time.monotonic() - CLOSING


@final
class Pace:
    """Compares the time that stacks take with the plan."""

    def __init__(self, grid: Grid, rates: Rates | None, deadline: Deadline):
        self.grid, self.rates, self.deadline = grid, rates, deadline
        self.slowdown = 1.0
        """How much longer updates take than planned; at least 1."""
        self.late = False
        """Whether the time left is needed for the metrics and the final training."""

    def report(self, method: str, now: Progress) -> None:
        """Compare a report with the plan. Raise `OutOfTime` if the guide takes too long to try DBC at all."""
        if self.rates is None or not now.losses or not now.rate:
            return
        rates, grid, policy = self.rates, self.grid, now.stage == "policy"
        planned = rates.stack_rate(grid, method) / now.members if policy else rates.guide
        self.slowdown = max(1.0, planned / now.rate)
        lengths = grid.lengths(method)
        updates = now.update if policy else min(lengths)
        seconds = sum(rates.final_seconds(grid, method, updates).values())
        seconds += now.members * sum(n <= updates for n in lengths) * rates.score if policy else 0.0
        if not policy:
            seconds += (now.updates - now.update) / rates.guide + grid.dbc_members * updates / rates.stack_rate(
                grid, "dbc"
            )
        self.late = self.slowdown * seconds > self.deadline.left
        if self.late and not policy:
            raise OutOfTime


def affordable(candidates: Sequence[Candidate], grid: Grid, rates: Rates | None, left: float) -> list[int]:
    """Return the candidates whose final training fits into the time left; the shortest ones if none does."""
    if rates is None:
        return list(range(len(candidates)))
    times = [sum(rates.final_seconds(grid, c.method, c.updates).values()) for c in candidates]
    limit = max(left, min(times))
    return [k for k, seconds in enumerate(times) if seconds <= limit]
