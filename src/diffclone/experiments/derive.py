"""Numbers computed from two cells. Intervals are combined as if the two were independent.

drop        = 100 (1 − b / a)      h = 100 / a · √(h_b² + (b / a · h_a)²)
difference  = b − a                h = √(h_a² + h_b²)
times       = a / b                h = 1 / b · √(h_a² + (a / b · h_b)²)

Of what would be divided by 0 there is none.
"""

import math
from collections.abc import Sequence

from diffclone.experiments.results import ComparedCell, MeasuredValue, PrintedValue
from diffclone.experiments.specification import DerivedCell
from diffclone.records import Record

Spread = tuple[float, float]
"""A number and the half width of its interval."""


def derive(
    entry: DerivedCell, cells: Sequence[ComparedCell], printed: PrintedValue | None
) -> tuple[str, MeasuredValue | None, PrintedValue | None]:
    """The unit, ours, and the paper's: as printed, or computed from what is."""
    place = {(cell.row, cell.column): cell for cell in cells}
    a, b = place[entry.first], place[entry.second]
    unit = a.unit if entry.operation == "difference" else entry.operation
    if printed is None and a.printed and b.printed:
        mean, _ = combine(entry.operation, (a.printed.mean, 0.0), (b.printed.mean, 0.0))
        printed = PrintedValue(mean, None, None, "computed from two printed numbers")
    if a.ours is None or b.ours is None or not defined(entry.operation, a.ours, b.ours):
        return unit, None, printed
    mean, half = combine(entry.operation, spread(a.ours), spread(b.ours))
    record = Record(
        kind="derived",
        settings={"how": entry.operation, "first": list(entry.first), "second": list(entry.second)},
        members=a.ours.record.members,
        data=a.ours.record.data,
        results={"value": mean, "half_width": half, "of": [a.ours.record.when, b.ours.record.when]},
        device=a.ours.record.device,
        seconds=0.0,
        quick=a.ours.record.quick or b.ours.record.quick,
        versions=a.ours.record.versions,
        when=max(a.ours.record.when, b.ours.record.when),
    )
    episodes = min(a.ours.episodes, b.ours.episodes)
    return (
        unit,
        MeasuredValue(mean, mean - half, mean + half, min(a.ours.seeds, b.ours.seeds), episodes, record),
        printed,
    )


def defined(how: str, a: MeasuredValue, b: MeasuredValue) -> bool:
    """Whether nothing is divided by 0."""
    return {"drop": a.mean, "difference": 1.0, "times": b.mean}[how] != 0


def spread(value: MeasuredValue) -> Spread:
    """Mean and half width."""
    return value.mean, (value.high - value.low) / 2


def combine(how: str, first: Spread, second: Spread) -> Spread:
    """By the equations on top."""
    (a, half_a), (b, half_b) = first, second
    if how == "difference":
        return b - a, math.hypot(half_a, half_b)
    if how == "drop":
        return 100 * (1 - b / a), 100 / abs(a) * math.hypot(half_b, b / a * half_a)
    return a / b, math.hypot(half_a, a / b * half_b) / abs(b)
