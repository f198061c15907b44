"""Numbers computed from two cells. Intervals are combined as if the two were independent.

drop        = 100 (1 − b / a)      h = 100 (b / a) √((h_a / a)² + (h_b / b)²)
difference  = b − a                h = √(h_a² + h_b²)
times       = a / b                h = (a / b) √((h_a / a)² + (h_b / b)²)
"""

import math
from collections.abc import Sequence

from diffclone.experiments.sheet import Compared, Printed, Value
from diffclone.experiments.spec import Derived
from diffclone.records import Record

Spread = tuple[float, float]
"""A number and the half width of its interval."""


def derive(
    entry: Derived, cells: Sequence[Compared], printed: Printed | None
) -> tuple[str, Value | None, Printed | None]:
    """The unit, ours, and the paper's: as printed, or computed from what is."""
    place = {(cell.row, cell.column): cell for cell in cells}
    a, b = place[entry.first], place[entry.second]
    unit = a.unit if entry.how == "difference" else entry.how
    if printed is None and a.printed and b.printed:
        mean, _ = combine(entry.how, (a.printed.mean, 0.0), (b.printed.mean, 0.0))
        printed = Printed(mean, None, None, "computed from two printed numbers")
    if a.ours is None or b.ours is None or not (a.ours.mean and b.ours.mean):
        return unit, None, printed
    mean, half = combine(entry.how, spread(a.ours), spread(b.ours))
    record = Record(
        kind="derived",
        settings={"how": entry.how, "first": list(entry.first), "second": list(entry.second)},
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
    return unit, Value(mean, mean - half, mean + half, min(a.ours.seeds, b.ours.seeds), episodes, record), printed


def spread(value: Value) -> Spread:
    """Mean and half width."""
    return value.mean, (value.high - value.low) / 2


def combine(how: str, first: Spread, second: Spread) -> Spread:
    """By the equations on top."""
    (a, half_a), (b, half_b) = first, second
    if how == "difference":
        return b - a, math.hypot(half_a, half_b)
    relative = math.hypot(half_a / a, half_b / b)
    if how == "drop":
        return 100 * (1 - b / a), 100 * abs(b / a) * relative
    return a / b, abs(a / b) * relative
