"""Interval plots of a page. They are HTML with positions in percent, so that they follow the width of the screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

from diffclone.records import Record

MOST_TICKS = 5
PAD = 0.04
"""Share of the axis that is left free on both sides."""
LOG_PAD = 0.1
"""The least of it on a logarithmic axis, in powers of ten."""


@final
@dataclass(frozen=True)
class Interval:
    """One line of a plot: a number with its interval, and another number beside it."""

    label: str
    text: str
    """The number in words."""
    value: float | None = None
    interval: tuple[float, float] | None = None
    about: str = ""
    """What else to know about the number."""
    other: float | None = None
    """A number to compare with, such as the paper's."""
    other_interval: tuple[float, float] | None = None
    other_text: str = ""
    margin: float | None = None
    """Differences up to this size count as none."""
    status: str = ""
    """A verdict, which gives the line its colour, and in words below."""
    status_text: str = ""
    records: tuple[Record, ...] = ()

    @property
    def numbers(self) -> list[float]:
        """All numbers that must fit on the axis."""
        ends = [*(self.interval or ()), *(self.other_interval or ())]
        margins = [] if self.margin is None else [-self.margin, self.margin]
        return [x for x in (self.value, self.other, *ends, *margins) if x is not None]


@final
@dataclass(frozen=True)
class IntervalPlot:
    """Lines that share an axis."""

    kind: ClassVar[str] = "intervals"
    title: str
    unit: str
    rows: Sequence[Interval]
    log: bool = False
    reference: float | None = None
    """A value to mark: 0 for differences, 1 for ratios."""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    """What the axis does not exceed."""
    caption: str = ""
    absent: str = ""
    """What belongs to the plot and was not run."""

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis, in its own scale."""
        known = [x for row in self.rows for x in row.numbers]
        known += [] if self.reference is None else [self.reference]
        scaled = [self.scale(x) for x in known] or [0.0]
        low, high = min(scaled), max(scaled)
        pad = PAD * (high - low) or 1.0
        if self.log:
            pad = max(LOG_PAD, PAD * (high - low))
            return low - pad, high + pad
        return max(low - pad, self.bounds[0]), min(high + pad, self.bounds[1])

    def scale(self, x: float) -> float:
        """Return a value on the axis."""
        return math.log10(max(x, 1e-12)) if self.log else x

    def at(self, x: float) -> float:
        """Return the position of a value in percent."""
        low, high = self.limits
        return round(min(100.0, max(0.0, 100 * (self.scale(x) - low) / ((high - low) or 1.0))), 2)

    def span(self, ends: Sequence[float]) -> str:
        """Return position and width of an interval as CSS."""
        left, right = self.at(ends[0]), self.at(ends[1])
        return f"left:{left}%;width:{round(right - left, 2)}%"

    @cached_property
    def ticks(self) -> list[tuple[float, str]]:
        """Positions in percent and labels of a few round numbers."""
        low, high = self.limits
        if self.log:
            step = max(1, math.ceil((high - low) / MOST_TICKS))
            powers = range(math.floor(low), math.floor(high) + 1, step)
            near = [f * 10.0**k for k in powers for f in ((1, 2, 5) if high - low < 1.4 else (1,))]
            found = [x for x in near if low <= math.log10(x) <= high]
        else:
            step = next(s for s in _steps(high - low) if (high - low) / s <= MOST_TICKS)
            found = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [(self.at(x), f"{x:,.10g}".replace("-", "−")) for x in found]


def _steps(width: float) -> list[float]:
    """Return steps of 1, 2 and 5 times powers of ten, from small to large."""
    first = math.floor(math.log10(max(width, 1e-9))) - 1
    return [factor * 10.0**k for k in range(first, first + 4) for factor in (1, 2, 5)]
