"""Counters and histograms of the server in the text format of Prometheus. All updates happen on the event loop."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from diffclone.deploy.serving.bodies import Scores

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = tuple(2.0**k for k in range(13))


@final
class Histogram:
    """Counts of values up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]):
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float | int) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        """Return the samples: cumulative counts."""
        below = np.cumsum(self.counts).tolist()
        lines = [f'{name}_bucket{{le="{bound:g}"}} {n}' for bound, n in zip(self.bounds, below[:-1], strict=True)]
        return [
            *lines,
            f'{name}_bucket{{le="+Inf"}} {below[-1]}',
            f"{name}_sum {self.sum:.9g}",
            f"{name}_count {below[-1]}",
        ]


@final
class Metrics:
    """Everything that /metrics shows."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By path and status."""
        self.rows = 0
        self.call_rows = Histogram(ROWS)
        self.seconds = Histogram(SECONDS)
        self.alarms: Counter[str] = Counter()

    def count_rows(self, rows: int, scores: Scores | None) -> None:
        """Count the observations of an answered request and their alarms."""
        self.rows += rows
        for name, values in (scores or {}).items():
            folder, _, score = name.partition(".")
            if folder == "alarm":
                self.alarms[score or "alarm"] += int(np.count_nonzero(values))

    def to_text(self, gauges: Mapping[str, tuple[str, int]]) -> str:
        """Return all metrics; `gauges` are values of this moment, each with its description."""
        requests = [f'{{path="{path}",status="{status}"}} {n}' for (path, status), n in sorted(self.requests.items())]
        alarms = [f'{{score="{name}"}} {n}' for name, n in sorted(self.alarms.items())]
        blocks = [
            ("requests_total", "counter", "Requests by path and status.", requests),
            ("rows_total", "counter", "Observations answered.", [f" {self.rows}"]),
            ("monitor_alarms_total", "counter", "Observations with an alarm, by score.", alarms),
            ("call_rows", "histogram", "Observations in one call of the policy.", self.call_rows),
            ("request_seconds", "histogram", "Time from the headers of POST /act to its response.", self.seconds),
            *((name, "gauge", about, [f" {value}"]) for name, (about, value) in gauges.items()),
        ]
        lines: list[str] = []
        for short, kind, about, samples in blocks:
            name = f"diffclone_{short}"
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += (
                samples.lines(name) if isinstance(samples, Histogram) else [f"{name}{sample}" for sample in samples]
            )
        return "\n".join([*lines, ""])
