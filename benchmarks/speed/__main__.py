"""The command that times everything in one run on one machine, with ratios; each Record is written when measured."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from benchmarks.speed import acting, extras
from benchmarks.speed.parts import Bencher, Job, jobs
from benchmarks.speed.plot import write_plot
from benchmarks.speed.side_by_side import JobLost, side_by_side
from benchmarks.speed.tables import TABLES
from benchmarks.speed.training import TABLE_WIDTH, find_rivals
from diffclone.cli.console import Bars, bars, print_json, print_message, print_table
from diffclone.cli.main import run_command
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.files import refuse_existing
from diffclone.fit import choose_device
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training import Precision

USUAL = ("floor", "train", "rollouts", "latency")
ON_REQUEST = ("memory", "precision", "conditioning", "variants", "compiler", "profile", "full")


@dataclass(frozen=True)
class Bench:
    """Time training, playing and acting on this machine, beside other ways to do the same."""

    only: str = ",".join(USUAL)
    """Which, with commas: floor, train, rollouts, latency; and, on request, memory (GPU), precision,
    conditioning, variants, compiler (CPU), profile, full."""
    tasks: tuple[str, ...] = ("maze", "fetch-pick", "hand-rotate")
    """Whose sizes; policies and large stacks have those of the first."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    against: Path | None = None
    """The folder benchmarks/ of a checkout, for the other ways to train; by default the one beside the package."""
    together: bool = False
    """Compile all cases at once, each in a process of its own, before each is timed alone: much sooner done on a GPU
    beside many cores. What is shown of first updates then says little."""
    precision: Precision = "float32"
    """Of matrix products in `full`; the other parts have their own."""
    quick: bool = False
    """Only see that everything works: the numbers are worth nothing."""
    out: Path | None = None
    """A file of Records to append to, each as soon as it is measured."""
    plot: Path | None = None
    """A new SVG file: how fast members train, by how many there are."""
    json: bool = False
    """Print JSON instead of tables."""
    records: list[Record] = field(default_factory=list[Record], init=False)

    def run(self) -> None:
        """Do it."""
        chosen = self.only.split(",")
        if unknown := [name for name in chosen if name not in (*USUAL, *ON_REQUEST)]:
            raise InvalidSettings(f"unknown part {unknown[0]!r}; known are {', '.join((*USUAL, *ON_REQUEST))}.")
        if unknown := [task for task in self.tasks if task not in TABLE_WIDTH]:
            raise InvalidSettings(f"no released settings for {unknown[0]!r}; known are {', '.join(TABLE_WIDTH)}.")
        if self.plot is not None:
            refuse_existing(self.plot)
        device = choose_device(self.device)
        lost = self.measure(Bencher(device, self.quick, self.against), chosen)
        if self.plot is not None and not write_plot(self.records, self.plot):
            print_message(f"Nothing to draw in {self.plot}: no diffusion model was timed in stacks of several sizes.")
        if self.json:
            print_json([asdict(record) for record in self.records])
        else:
            for table in (make(self.records) for make in TABLES):
                if table.rows:
                    print_table(table.title, table.columns, table.rows)
        if lost is not None:
            raise lost

    def measure(self, bencher: Bencher, chosen: list[str]) -> JobLost | None:
        """What was asked for: first what can be compiled together, then what has the machine for itself.

        What was lost on the way is told at the end: the rest is worth showing.
        """
        lost: JobLost | None = None
        own: dict[str, Callable[[Bencher, Bars], None]] = {
            "rollouts": self.time_rollouts,
            "latency": self.time_latency,
            "full": self.time_maze_in_full,
        }
        if "train" in chosen and not find_rivals(self.against):
            print_message(
                "Left out: the released style and vmap. They are in benchmarks/ of a checkout; say --against FOLDER."
            )
        with bars() as show:
            asked: dict[str, list[Job]] = {}
            for part in (name for name in (*USUAL, *ON_REQUEST) if name in chosen and name not in own):
                asked[part] = jobs(part, bencher.device, self.tasks, quick=self.quick)
                if not asked[part]:
                    print_message(f"Left out: {part}, which is measured on a {'GPU' if part == 'memory' else 'CPU'}.")
            if self.together:
                every = [job for some in asked.values() for job in some]
                try:
                    for record in side_by_side(every, bencher, show.update):
                        self.keep(record)
                except JobLost as fault:
                    lost = fault
            else:
                for part, some in asked.items():
                    self.in_turn(part, some, bencher, show)
            for name in (name for name in own if name in chosen):
                try:
                    own[name](bencher, show)
                except MissingPackage as fault:
                    print_message(f"Left out: {name}. {fault}")
        return lost

    def in_turn(self, part: str, some: list[Job], bencher: Bencher, show: Bars) -> None:
        """Jobs one after another."""
        for done, job in enumerate(some):
            show.update(part, done, len(some), job.label)
            self.keep(bencher.do(job))
        if some:
            show.update(part, len(some), len(some))

    def keep(self, record: Record) -> None:
        """Written at once."""
        if self.out is not None:
            record.append_to(self.out)
        self.records.append(record)

    def time_rollouts(self, bencher: Bencher, show: Bars) -> None:
        """Episodes of Maze a second."""
        begun = time.monotonic()
        show.update("rollouts: training the players", 0, 1)
        playing = list(acting.players(TASKS["maze"].demonstrations(), bencher.device, quick=self.quick))
        show.update("rollouts: training the players", 1, 1)
        found = acting.rollouts(playing, lambda done, total: show.update("rollouts", done, total))
        self.keep(bencher.record("rollouts", begun, {"players": found}, task="maze"))

    def time_latency(self, bencher: Bencher, show: Bars) -> None:
        """Milliseconds an action, on one CPU thread whatever the device: there policies act."""
        begun, threads = time.monotonic(), torch.get_num_threads()
        demos = TASKS["maze"].demonstrations()
        torch.set_num_threads(1)
        try:
            found = acting.measure(
                list(acting.actors(demos)),
                demos.obs.astype(np.float32),
                1 if self.quick else 5,
                lambda done, total: show.update("latency", done, total),
            )
        finally:
            torch.set_num_threads(threads)
        ratio = {name: taken / found["BC"] for name, taken in found.items()}
        results = {"milliseconds": found, "ratio_to_bc": ratio}
        here = replace(bencher, device=torch.device("cpu"))
        self.keep(here.record("latency", begun, results, task="maze", threads=1))

    def time_maze_in_full(self, bencher: Bencher, show: Bars) -> None:
        """The wall clock of the whole."""
        begun = time.monotonic()
        found = extras.maze_in_full(
            bencher.device,
            lambda stage, done, total: show.update(f"Maze in full: {stage}", done, total),
            precision=self.precision,
            shorten=20_000 if self.quick else 1,
        )
        self.keep(bencher.record("full", begun, found, precision=self.precision))


if __name__ == "__main__":
    run_command(Bench, prog="python -m benchmarks.speed")
