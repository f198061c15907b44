"""Overhead of the engines that run jobs: processes of this machine, and a Ray cluster on it.

python -m benchmarks.engines                         jobs of a minute, two at a time, a table
python -m benchmarks.engines --json --out FILE       also appends a Record to FILE

A job waits for a given time and reports its progress twenty times per second, and a Record at its end, as trainings do.
It needs no CPU itself, so that the result does not depend on what else the machine does: the overhead is the time from
the start of the engine to its end, divided by the time that the jobs alone need.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from diffclone.cli.console import print_json, print_table
from diffclone.experiments.executors.choose import open_executor
from diffclone.experiments.executors.dispatch import Dispatcher, Work, raise_first
from diffclone.experiments.executors.interface import Callbacks, Needs
from diffclone.records import Record

REPORT_SECONDS = 0.05


def pace(name: str, seconds: float, callbacks: Callbacks) -> None:
    """Wait, report progress, and report a Record."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        callbacks.on_count(name, round(passed), round(seconds))
        callbacks.check_stop()
        time.sleep(REPORT_SECONDS)
    callbacks.on_record(Record(name, {}, [], {}, {}, "cpu", seconds))


def measure(on: str, jobs: int, workers: int, seconds: float) -> dict[str, float]:
    """Return the seconds from the start of an engine to its end, and of its jobs alone."""
    from benchmarks.engines import pace as job  # by its name here, which worker processes can import

    names, records = [f"job {k}" for k in range(jobs)], list[Record]()
    begun = time.monotonic()
    with open_executor(on, workers) as executor:
        assert executor is not None
        opened = time.monotonic()
        needs = Needs(cpus=1.0)
        works = [Work(name, job, lambda name=name: (name, seconds), needs) for name in names]
        raise_first(Dispatcher(executor, Callbacks(records.append)).run(works))
        ended = time.monotonic()
    assert sorted(record.kind for record in records) == sorted(names)
    ideal = seconds * -(-jobs // workers)
    return {
        "ideal_seconds": ideal,
        "start_seconds": round(opened - begun, 2),
        "job_seconds": round(ended - opened, 2),
        "seconds": round(time.monotonic() - begun, 2),
        "overhead": round((time.monotonic() - begun) / ideal - 1, 4),
    }


@dataclass(frozen=True)
class Engines:
    """Measure the overhead of the engines."""

    jobs: int = 4
    """Jobs in all."""
    workers: int = 2
    """Jobs at a time; a new Ray cluster has this many CPUs if RAY_ADDRESS is not set."""
    seconds: float = 60.0
    """Seconds of a job."""
    engines: Sequence[str] = ("local", "ray")
    """Engines to measure."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """File of Records to append to."""

    def run(self) -> None:
        """Measure each engine in turn."""
        os.environ.setdefault("RAY_ADDRESS", "local")
        begun = time.monotonic()
        found = {on: measure(on, self.jobs, self.workers, self.seconds) for on in self.engines}
        settings = {"jobs": self.jobs, "workers": self.workers, "job_seconds": self.seconds}
        record = Record("scale", {"what": "engines", **settings}, [], {}, found, "cpu", time.monotonic() - begun)
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json(found)
            return
        rows = [
            [on, *(f"{row[name]:.1f}" for name in ("ideal_seconds", "seconds")), f"{100 * row['overhead']:.1f} %"]
            for on, row in found.items()
        ]
        print_table(f"{self.jobs} jobs of {self.seconds:g} s", ["engine", "jobs alone, s", "all, s", "overhead"], rows)


if __name__ == "__main__":
    tyro.cli(Engines).run()
