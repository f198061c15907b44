"""Numbers of a table, read from Records."""

from collections.abc import Callable
from typing import Any

import numpy as np

from diffclone.experiments.results import MeasuredValue
from diffclone.records import Record
from diffclone.tasks import TASKS

Entry = tuple[str, str, MeasuredValue | None, bool]
"""Heading, unit, value, and whether it is the one that the paper prints."""
Read = Callable[[Record], MeasuredValue]

RESAMPLES = 4000


def table_values(kind: str, task: str, record: Record | None) -> list[Entry]:
    """What a table shows of a Record of this kind; of what there is no Record, headings alone."""
    if kind == "evaluation":
        success = TASKS[task].metric == "success"
        wanted: list[tuple[str, str, Read]] = [
            ("", "success", read_success) if success else ("", "return", read_return)
        ]
    else:
        wanted = MEASURED.get(kind, [])
    return [
        (heading, unit, None if record is None else read(record), first)
        for first, (heading, unit, read) in zip((True, False), wanted, strict=False)
    ]


def read_success(record: Record) -> MeasuredValue:
    """In percent."""
    found: Any = record.results
    low, high = found["success_interval"]
    rate = 100 * found["success_rate"]
    return MeasuredValue(rate, 100 * low, 100 * high, len(record.members), found["episodes"], record)


def read_return(record: Record) -> MeasuredValue:
    """As it is."""
    found: Any = record.results
    low, high = found["return_interval"]
    return MeasuredValue(found["mean_return"], low, high, len(record.members), found["episodes"], record)


def read_ratio(record: Record) -> MeasuredValue:
    """The range is that over the seeds of k-means."""
    found: Any = record.results
    return MeasuredValue(found["ratio"], found["least"], found["most"], int(record.settings["seeds"]), 0, record)


def read_pace(record: Record) -> MeasuredValue:
    """Timed once: without an interval."""
    found: Any = record.results
    pace = found["episodes_per_second"]
    return MeasuredValue(pace, pace, pace, 1, found["episodes"], record)


def read_latency(record: Record) -> MeasuredValue:
    """A median: without an interval."""
    found: Any = record.results
    return MeasuredValue(found["milliseconds"], found["milliseconds"], found["milliseconds"], 1, 0, record)


def read_error(record: Record) -> MeasuredValue:
    """The interval is bootstrapped over seeds."""
    errors: Any = np.array(record.results["mse"])
    drawn = np.random.default_rng(0).choice(errors, (RESAMPLES, len(errors))).mean(1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return MeasuredValue(float(errors.mean()), float(low), float(high), len(errors), 0, record)


MEASURED: dict[str, list[tuple[str, str, Read]]] = {
    "multimodality": [("majority ratio", "ratio", read_ratio)],
    "inference": [("episodes/s", "episodes/s", read_pace), ("ms an action", "ms", read_latency)],
    "reconstruction": [("MSE", "mse", read_error)],
}
"""Measures that are numbers; the others are figures."""
