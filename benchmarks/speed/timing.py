"""Time candidates in turns, so that load on the machine affects all of them alike.

Each candidate runs for a window of a given length in every round, in whole blocks of updates; the result is the median
over the rounds. The first blocks, which compile, capture and warm up, are timed separately.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to run training updates."""

    name: str
    members: int
    """Members trained by each update."""
    run: Callable[[int], None]
    """Run a number of updates."""
    block: int = 1
    """Updates are run in multiples of this."""
    sets_threads: bool = False
    """Whether it sets its own number of threads. If not, it gets the better of one and all, on a CPU."""


@final
@dataclass(frozen=True)
class Timing:
    """The result for one candidate."""

    rate: float
    """Updates per second, the median over the rounds."""
    slowest: float
    fastest: float
    first_seconds: float
    """Time of the first blocks, with compilation and capture."""
    members: int
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """Return the values that a Record keeps."""
        return {
            "updates_per_second": self.rate,
            "member_updates_per_second": self.rate * self.members,
            "slowest": self.slowest,
            "fastest": self.fastest,
            "first_seconds": self.first_seconds,
            "members": self.members,
            "threads": self.threads,
        }


def time_in_turns(
    candidates: Sequence[Candidate], device: torch.device, *, window: float, rounds: int
) -> dict[str, Timing]:
    """Time all candidates, one window of `window` seconds each in every round."""
    all_threads = torch.get_num_threads()
    first: dict[str, float] = {}
    threads: dict[str, int] = {}
    counts: dict[str, int] = {}
    rates: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    try:
        for candidate in candidates:
            torch.set_num_threads(all_threads)
            first[candidate.name] = time_updates(candidate, 2 * candidate.block, device)
        for candidate in candidates:
            threads[candidate.name], seconds = choose_threads(candidate, device, window, all_threads)
            counts[candidate.name] = max(1, round(window / seconds / candidate.block)) * candidate.block
        for _ in range(rounds):
            for candidate in candidates:
                torch.set_num_threads(threads[candidate.name])
                count = counts[candidate.name]
                rates[candidate.name].append(count / time_updates(candidate, count, device))
    finally:
        torch.set_num_threads(all_threads)
    return {
        c.name: Timing(
            statistics.median(rates[c.name]),
            min(rates[c.name]),
            max(rates[c.name]),
            first[c.name],
            c.members,
            threads[c.name],
        )
        for c in candidates
    }


def choose_threads(candidate: Candidate, device: torch.device, window: float, all_threads: int) -> tuple[int, float]:
    """Return the best number of threads for a candidate, and the seconds per update with it."""
    tried = [all_threads] if candidate.sets_threads or device.type != "cpu" else sorted({1, all_threads})
    seconds: dict[int, float] = {}
    for count in tried:
        torch.set_num_threads(count)
        done, taken = 0, 0.0
        while taken < window / 8:
            taken += time_updates(candidate, candidate.block, device)
            done += candidate.block
        seconds[count] = taken / done
    best = min(seconds, key=lambda count: seconds[count])
    return best, seconds[best]


def time_updates(candidate: Candidate, count: int, device: torch.device) -> float:
    """Return the seconds of `count` updates, with the device synchronised before and after."""
    synchronise(device)
    start = time.perf_counter()
    candidate.run(count)
    synchronise(device)
    return time.perf_counter() - start


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def describe_machine() -> dict[str, Any]:
    """Return what the numbers were measured on, besides the device."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
    }


def processor_name() -> str:
    """Return the model name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
