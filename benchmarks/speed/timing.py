"""Contestants that take turns, so that a busy machine hurts all alike; each is given the median of its turns.

A turn is a window of about as many seconds as asked for, in whole blocks of updates. What comes before the first window
(compiling, capturing, warming up) is timed apart.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch


@final
@dataclass(frozen=True, eq=False)
class Contestant:
    """Something that does updates."""

    name: str
    members: int
    """Whose weights change in an update."""
    run: Callable[[int], None]
    """Do so many updates."""
    block: int = 1
    """It does whole blocks of so many."""
    sets_threads: bool = False
    """Whether it chooses its threads. If not, it is given the better of one and all, on a CPU."""


@final
@dataclass(frozen=True)
class Timed:
    """What came out for a contestant."""

    rate: float
    """Updates a second, the median of the windows."""
    slowest: float
    fastest: float
    first_seconds: float
    """Until steady: the first blocks, with compiling and capturing."""
    members: int
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """As a Record keeps it."""
        return {
            "updates_per_second": self.rate,
            "member_updates_per_second": self.rate * self.members,
            "slowest": self.slowest,
            "fastest": self.fastest,
            "first_seconds": self.first_seconds,
            "members": self.members,
            "threads": self.threads,
        }


def take_turns(
    playing: Sequence[Contestant],
    device: torch.device,
    *,
    window: float,
    rounds: int,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Timed]:
    """Time them, a window each in every round; `alone` is entered after the first blocks, which compile."""
    everything = torch.get_num_threads()
    first: dict[str, float] = {}
    threads: dict[str, int] = {}
    counts: dict[str, int] = {}
    rates: dict[str, list[float]] = {contestant.name: [] for contestant in playing}
    try:
        for contestant in playing:
            torch.set_num_threads(everything)
            first[contestant.name] = seconds_of(contestant, 2 * contestant.block, device)
        with alone():
            for contestant in playing:
                threads[contestant.name], pace = steady(contestant, device, window, everything)
                blocks = max(1, round(window / pace / contestant.block))
                counts[contestant.name] = blocks * contestant.block
            for _ in range(rounds):
                for contestant in playing:
                    torch.set_num_threads(threads[contestant.name])
                    count = counts[contestant.name]
                    rates[contestant.name].append(count / seconds_of(contestant, count, device))
    finally:
        torch.set_num_threads(everything)
    return {
        c.name: Timed(
            statistics.median(rates[c.name]),
            min(rates[c.name]),
            max(rates[c.name]),
            first[c.name],
            c.members,
            threads[c.name],
        )
        for c in playing
    }


def steady(contestant: Contestant, device: torch.device, window: float, everything: int) -> tuple[int, float]:
    """The number of threads to give it, and the seconds of an update with them."""
    tried = [everything] if contestant.sets_threads or device.type != "cpu" else sorted({1, everything})
    paces: dict[int, float] = {}
    for count in tried:
        torch.set_num_threads(count)
        done, taken = 0, 0.0
        while taken < window / 8:
            taken += seconds_of(contestant, contestant.block, device)
            done += contestant.block
        paces[count] = taken / done
    best = min(paces, key=lambda count: paces[count])
    return best, paces[best]


def seconds_of(contestant: Contestant, count: int, device: torch.device) -> float:
    """Of some updates, from a quiet device to a quiet device."""
    synchronise(device)
    begun = time.perf_counter()
    contestant.run(count)
    synchronise(device)
    return time.perf_counter() - begun


def synchronise(device: torch.device) -> None:
    """Wait until everything is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """The accelerator, or the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def machine() -> dict[str, Any]:
    """What the numbers were measured on, besides the device."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
    }


def processor() -> str:
    """Its name, where the system tells."""
    known = Path("/proc/cpuinfo")
    if known.exists():
        for line in known.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
