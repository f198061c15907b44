"""Run a list of commands in parallel, in order and with dependencies, until a deadline.

    python -m scripts.run_jobs jobs.toml --out FOLDER --slots gpu=8 cpu=3 --seconds 1500

jobs.toml has one table per job. Jobs start in the order of the file, as soon as a slot of their kind is free and the
jobs that they need are done:

    [[jobs]]
    name = "guide-maze"
    command = "python -m scripts.paper_recipe guide maze"
    slot = "gpu"

    [[jobs]]
    name = "dbc-maze"
    command = "python -m scripts.paper_recipe train maze dbc 0-9"
    slot = "gpu"
    needs = ["guide-maze"]

FOLDER gets the output of each job (NAME.log) and an empty file NAME.done when it has succeeded. The same command again
runs the jobs that are not done. At the deadline, or on Ctrl-C, running jobs receive SIGINT, so that they can write a
checkpoint, and are killed if they still run a minute later. Several processes share one GPU best under CUDA MPS: start
`nvidia-cuda-mps-control -d` before. Under MPS a process that is killed while it computes makes all others fail, so end
jobs with SIGINT.
"""

import argparse
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

GRACE_SECONDS = 60.0
"""Time that an interrupted job has to write its checkpoint."""


@final
@dataclass(frozen=True)
class Job:
    """A command, and what must be done before it."""

    name: str
    command: str
    slot: str
    """Kind of slot that the job occupies, e.g. "gpu"."""
    needs: tuple[str, ...] = ()


def read_jobs(path: Path) -> list[Job]:
    """Read a list of jobs and check that names are unique and every dependency is an earlier job."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["jobs"]
    jobs = [Job(table["name"], table["command"], table["slot"], tuple(table.get("needs", ()))) for table in tables]
    known: set[str] = set()
    for job in jobs:
        if job.name in known:
            sys.exit(f"{path}: two jobs are named {job.name}.")
        if missing := [name for name in job.needs if name not in known]:
            sys.exit(f"{path}: {job.name} needs {', '.join(missing)}, which is not an earlier job.")
        known.add(job.name)
    return jobs


def run_jobs(jobs: Sequence[Job], slots: dict[str, int], folder: Path, seconds: float = float("inf")) -> list[str]:
    """Run all jobs that are not done, and return the names of those that failed, were interrupted or never started."""
    folder.mkdir(parents=True, exist_ok=True)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; the jobs would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    begun, running, failed = time.monotonic(), dict[str, subprocess.Popen[bytes]](), set[str]()
    slot_of = {job.name: job.slot for job in jobs}

    def is_done(name: str) -> bool:
        return (folder / f"{name}.done").exists()

    def is_blocked(job: Job) -> bool:
        return job.name in failed or any(is_blocked(other) for other in jobs if other.name in job.needs)

    def print_event(*words: object) -> None:
        print(f"{time.monotonic() - begun:8.1f} s ", *words, flush=True)

    def start_ready_jobs() -> None:
        for job in jobs:
            free = slots[job.slot] - sum(slot_of[name] == job.slot for name in running)
            waits = job.name in running or is_done(job.name) or is_blocked(job)
            if free > 0 and not waits and all(is_done(name) for name in job.needs):
                with (folder / f"{job.name}.log").open("ab") as log:
                    # A session of its own: Ctrl-C reaches this process only, which then interrupts each job once.
                    running[job.name] = subprocess.Popen(
                        shlex.split(job.command), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                    )
                print_event("start", job.name)

    def collect_ended_jobs() -> None:
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                if process.returncode == 0:
                    (folder / f"{name}.done").touch()
                else:
                    failed.add(name)
                print_event("done" if process.returncode == 0 else f"FAILED ({process.returncode})", name)

    try:
        start_ready_jobs()
        while running and time.monotonic() - begun < seconds:
            time.sleep(0.1)
            collect_ended_jobs()
            start_ready_jobs()
    except KeyboardInterrupt:
        print_event("interrupted")
    for process in running.values():
        process.send_signal(signal.SIGINT)
    stopped = time.monotonic()
    while running and time.monotonic() - stopped < GRACE_SECONDS:
        time.sleep(0.1)
        collect_ended_jobs()
    for process in running.values():
        process.kill()
    return [job.name for job in jobs if not is_done(job.name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, help="file of jobs")
    parser.add_argument("--out", type=Path, required=True, help="folder of logs and marks")
    parser.add_argument("--slots", nargs="+", default=["gpu=1", "cpu=1"], help="number of jobs at once, by kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="deadline")
    arguments = parser.parse_args()
    slots = {kind: int(count) for kind, count in (text.split("=") for text in arguments.slots)}
    jobs = read_jobs(arguments.jobs)
    if unknown := {job.slot for job in jobs} - set(slots):
        parser.error(f"--slots has no {', '.join(sorted(unknown))}.")
    left = run_jobs(jobs, slots, arguments.out, arguments.seconds)
    print(f"not done: {', '.join(left)}" if left else "all jobs are done")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
