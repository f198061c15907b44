"""Lines about jobs that run in other processes or on other machines."""

import time
from collections.abc import Callable

from diffclone.cli.console import print_message
from diffclone.experiments.executors.interface import JobCounts
from diffclone.training.time_left import about

LINE_SECONDS = 10.0
"""Shortest time between two lines."""


def announce_jobs() -> Callable[[JobCounts], None]:
    """Return a function that prints how many jobs run, wait and are done, and the time left."""
    begun = time.monotonic()
    printed = begun - LINE_SECONDS

    def on_jobs(counts: JobCounts) -> None:
        nonlocal printed
        now, left = time.monotonic(), counts.running + counts.waiting
        if now - printed >= LINE_SECONDS or not left:
            printed = now
            print_message(describe_jobs(counts, now - begun))

    return on_jobs


def describe_jobs(counts: JobCounts, seconds: float) -> str:
    """Return "jobs: 2 running, 5 waiting, 3 done, 0 failed, about 4 min left"; `seconds` have passed."""
    ended, left = counts.done + counts.failed, counts.running + counts.waiting
    line = f"jobs: {counts.running} running, {counts.waiting} waiting, {counts.done} done, {counts.failed} failed"
    return line + (f", about {about(seconds * left / ended)} left" if ended and left else "")
