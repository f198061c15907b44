"""Time training, rollouts and inference on this machine, with ratios to other ways to train.

python -m benchmarks.speed --help      run from the root of the repository
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.speed import inference, variants
from benchmarks.speed.cases import TABLE_WIDTH
from benchmarks.speed.measurements import Measurements, jobs
from benchmarks.speed.plot import write_plot
from benchmarks.speed.tables import TABLES
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.main import run_command
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.files import refuse_existing
from diffclone.fit import choose_device
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training import Precision
from diffclone.training.display import Bars

DEFAULT_PARTS = ("floor", "train", "rollouts", "latency")
OTHER_PARTS = ("memory", "precision", "conditioning", "variants", "profile", "full")


@dataclass(frozen=True)
class Bench:
    """Time training, rollouts and inference on this machine, with ratios to other ways to train."""

    only: str = ",".join(DEFAULT_PARTS)
    """Parts to run, separated by commas: floor, train, rollouts, latency; and, on request, memory (GPU), precision,
    conditioning, variants, profile, full."""
    tasks: tuple[str, ...] = ("maze", "fetch-pick", "hand-rotate")
    """Tasks whose sizes are used; policies and large stacks use the first one."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1, … or auto."""
    precision: Precision = "float32"
    """Precision of matrix products in `full`; the other parts choose their own."""
    quick: bool = False
    """Check that everything works; the numbers mean nothing."""
    out: Path | None = None
    """A file of Records to append to; each Record is written as soon as it is measured."""
    plot: Path | None = None
    """A new SVG file: training rate by number of members."""
    json: bool = False
    """Print JSON instead of tables."""
    records: list[Record] = field(default_factory=list[Record], init=False)

    def run(self) -> None:
        """Measure, then print tables."""
        chosen = self.only.split(",")
        if unknown := [name for name in chosen if name not in (*DEFAULT_PARTS, *OTHER_PARTS)]:
            raise InvalidSettings(f"unknown part {unknown[0]!r}; known: {', '.join((*DEFAULT_PARTS, *OTHER_PARTS))}.")
        if unknown := [task for task in self.tasks if task not in TABLE_WIDTH]:
            raise InvalidSettings(f"no released settings for {unknown[0]!r}; known: {', '.join(TABLE_WIDTH)}.")
        if self.plot is not None:
            refuse_existing(self.plot)
        self.measure(Measurements(choose_device(self.device), self.quick), chosen)
        if self.plot is not None and not write_plot(self.records, self.plot):
            print_message(f"Nothing to plot in {self.plot}: no diffusion model was timed with several stack sizes.")
        if self.json:
            print_json([asdict(record) for record in self.records])
        else:
            for table in (make(self.records) for make in TABLES):
                if table.rows:
                    print_table(table.title, table.columns, table.rows)

    def measure(self, measurements: Measurements, chosen: list[str]) -> None:
        """Run the chosen parts."""
        special: dict[str, Callable[[Measurements, Bars], None]] = {
            "rollouts": self.time_rollouts,
            "latency": self.time_latency,
            "full": self.time_full_maze,
        }
        with bars() as show:
            for part in (name for name in (*DEFAULT_PARTS, *OTHER_PARTS) if name in chosen and name not in special):
                todo = jobs(part, measurements.device, self.tasks, quick=self.quick)
                if not todo:
                    print_message(f"Skipped: {part}, which needs a GPU.")
                for done, job in enumerate(todo):
                    show.update(part, done, len(todo), job.label)
                    self.keep(measurements.run(job))
                if todo:
                    show.update(part, len(todo), len(todo))
            for name in (name for name in special if name in chosen):
                try:
                    special[name](measurements, show)
                except MissingPackage as error:
                    print_message(f"Skipped: {name}. {error}")

    def keep(self, record: Record) -> None:
        """Write a Record at once."""
        if self.out is not None:
            record.append_to(self.out)
        self.records.append(record)

    def time_rollouts(self, measurements: Measurements, show: Bars) -> None:
        """Time episodes of Maze."""
        start = time.monotonic()
        show.update("rollouts: training policies", 0, 1)
        entries = list(inference.rollout_entries(TASKS["maze"].demonstrations(), measurements.device, quick=self.quick))
        show.update("rollouts: training policies", 1, 1)
        found = inference.time_rollouts(entries, lambda done, total: show.update("rollouts", done, total))
        self.keep(measurements.record("rollouts", start, {"players": found}, task="maze"))

    def time_latency(self, measurements: Measurements, show: Bars) -> None:
        """Time single actions on one CPU thread, whatever the device, since that is where policies act."""
        start, threads = time.monotonic(), torch.get_num_threads()
        demos = TASKS["maze"].demonstrations()
        torch.set_num_threads(1)
        try:
            found = inference.time_latency(
                list(inference.latency_entries(demos)),
                demos.obs.astype(np.float32),
                1 if self.quick else 5,
                lambda done, total: show.update("latency", done, total),
            )
        finally:
            torch.set_num_threads(threads)
        ratio = {name: taken / found["BC"] for name, taken in found.items()}
        results = {"milliseconds": found, "ratio_to_bc": ratio}
        on_cpu = replace(measurements, device=torch.device("cpu"))
        self.keep(on_cpu.record("latency", start, results, task="maze", threads=1))

    def time_full_maze(self, measurements: Measurements, show: Bars) -> None:
        """Time the released Maze training at full length."""
        start = time.monotonic()
        found = variants.full_maze(
            measurements.device,
            lambda stage, done, total: show.update(f"Maze in full: {stage}", done, total),
            precision=self.precision,
            shorten=20_000 if self.quick else 1,
        )
        self.keep(measurements.record("full", start, found, precision=self.precision))


if __name__ == "__main__":
    run_command(Bench, prog="python -m benchmarks.speed")
