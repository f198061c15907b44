"""What a training says about its stages: where they continue, how long they take, and that they were done before."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import final

from diffclone.cli.console import print_message
from diffclone.training import Progress
from diffclone.training.estimate import SHORT
from diffclone.training.time_left import describe_plan

SEEN = 5.0
"""Seconds of training after which its time is announced."""


@final
class Resumed:
    """Says once for each stage of a resumed training at which update it continues."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, label: str, now: Progress) -> None:
        """Print the line for the first report of a stage."""
        first = round(now.update - now.rate * now.seconds)  # updates done before this process
        if (label, now.stage) not in self.seen and first:
            print_message(f"{label}: {now.stage} continues at update {first:,} of {now.updates:,}.")
        self.seen.add((label, now.stage))


def describe_finished(folder: Path) -> str:
    """Return the line about a run that was complete before this command."""
    return f"{folder} was finished before: nothing was trained."


def announce(plan: Mapping[str, float], now: Progress) -> dict[str, float]:
    """Print how long a training takes, and return it by stage.

    The first seconds tell which stages are in a cache or done already, and whether the machine is as fast as it was
    when the plan was made.
    """
    stages = list(plan)
    later = stages[stages.index(now.stage) + 1 :] if now.stage in plan else []
    slowdown = now.updates / now.rate / plan.get(now.stage, math.inf)
    own = now.seconds + (now.updates - now.update) / now.rate
    left = {now.stage: own} | {stage: plan[stage] * min(max(slowdown, 0.5), 4.0) for stage in later}
    if sum(left.values()) >= SHORT:
        print_message(f"{describe_plan(left)}.")
    return left
