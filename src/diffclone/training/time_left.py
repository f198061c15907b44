"""Times as people say them, and the time that a training has left."""

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import final

WINDOW = 15.0
"""Seconds over which the speed is measured."""


def format_time(seconds: float) -> str:
    """Return a time as people say it: "45 s", "6 min 20 s", "2 h 5 min"."""
    if not math.isfinite(seconds):
        return "unknown time"
    if (whole := max(0, round(seconds))) < 60:
        return f"{whole} s" if whole or not seconds > 0 else "under 1 s"
    unit, small, large, smaller = (60, "s", "min", 1) if whole < 3600 else (3600, "min", "h", 60)
    rest = whole % unit // smaller
    return f"{whole // unit:,} {large}" + f" {rest} {small}" * (rest > 0)


def about(seconds: float) -> str:
    """Return an estimated time, rounded: 5 s below a minute, half a minute below ten, then minutes."""
    unit = next(unit for limit, unit in ((10, 1), (57.5, 5), (600, 30), (math.inf, 60)) if not seconds >= limit)
    return format_time(max(1.0, float(unit * math.floor(seconds / unit + 0.5))) if math.isfinite(seconds) else seconds)


def describe_plan(plan: Mapping[str, float]) -> str:
    """Return "about 6 min: guide 4 min, policy 2 min"."""
    parts = ", ".join(f"{name} {about(seconds)}" for name, seconds in plan.items())
    return f"about {about(sum(plan.values()))}" + f": {parts}" * (len(plan) > 1)


@final
class TimeLeft:
    """The time left, from the speed of the last seconds and, for later stages, from a plan."""

    def __init__(self, plan: Mapping[str, float] | None = None):
        self.plan = dict(plan or {})
        """Expected seconds of the stages, in order."""
        self.stage, self.begun, self.unseen = "", time.monotonic(), 0.0
        self.reports: deque[tuple[float, int]] = deque()
        self.spent = self.planned = 0.0
        """Seconds that finished stages took, and those that the plan had for them, from their first reports on."""

    def report(self, stage: str, done: int, total: int) -> float | None:
        """Return the seconds that are left after a report; None if nothing is known."""
        now = time.monotonic()
        if stage != self.stage:
            self.spent += now - self.begun if self.stage in self.plan else 0.0
            self.planned += (1 - self.unseen) * self.plan.get(self.stage, 0.0)
            self.stage = stage
            self.reports.clear()
        if not self.reports:
            self.begun, self.unseen = now, done / max(1, total)
        self.reports.append((now, done))
        while len(self.reports) > 2 and now - self.reports[1][0] > WINDOW:
            self.reports.popleft()
        (first, early), own = self.reports[0], self.plan.get(stage, math.nan) * (1 - done / max(1, total))
        if now - first > 0.5 and done > early:
            own = (total - done) * (now - first) / (done - early)
        names = list(self.plan)
        later = names[names.index(stage) + 1 :] if stage in self.plan else []
        left = own + self._slowdown(stage, own) * sum(self.plan[name] for name in later)
        return left if math.isfinite(left) else None

    def _slowdown(self, stage: str, own: float) -> float:
        """Return how much slower than planned the stages so far are: other programs may have started or ended."""
        spent = self.spent + time.monotonic() - self.begun + own
        planned = self.planned + (1 - self.unseen) * self.plan.get(stage, 0.0)
        return min(max(spent / planned, 0.25), 10.0) if planned > 0 else 1.0
