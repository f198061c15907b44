"""Measure the latency of each method: milliseconds per action, one observation at a time, on one CPU thread.

python -m benchmarks.latency                        print a table of all methods
python -m benchmarks.latency --json --out FILE      print JSON and append a Record to FILE

Methods alternate in rounds of 0.2 s or one call, whichever is longer; the result is the median over rounds. A call is
`policy(obs)` from NumPy to NumPy, including normalisation, random draws and clipping. Sizes are those of Maze
(observation 6, action 2) and networks those of the paper's Maze column; implicit BC with Langevin sampling, which the
paper does not have, uses its defaults. Policies are trained for one update because the latency does not depend on the
weights. Ratios are relative to BC.
"""

import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from benchmarks.speed.inference import latency_entries, time_latency
from benchmarks.speed.tables import round_to_3_digits
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS


@dataclass(frozen=True)
class Latency:
    """Measure the latency of each method."""

    rounds: int = 15
    """Rounds per method."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """File to which the Record is appended."""

    def run(self) -> None:
        """Run the benchmark."""
        start, load = time.monotonic(), os.getloadavg()[0]
        torch.set_num_threads(1)
        demos = TASKS["maze"].demonstrations()
        policies = list(latency_entries(demos))
        with bars() as show:
            milliseconds = time_latency(
                policies,
                demos.obs.astype(np.float32),
                self.rounds,
                lambda done, total: show.update("latency", done, total),
            )
        ratio = {name: value / milliseconds["BC"] for name, value in milliseconds.items()}
        record = Record(
            kind="benchmark",
            settings={
                "benchmark": "latency",
                "task": "maze",
                "rounds": self.rounds,
                "threads": torch.get_num_threads(),
                "methods": {a.name: to_dict(a.policy.method) for a in policies},
            },
            members=[],
            data=policies[0].policy.data,
            results={"milliseconds": milliseconds, "ratio_to_bc": ratio, "load_before": load},
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - start,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json({"results": record.results, "device": record.device, "seconds": record.seconds})
            return
        title = f"Milliseconds per action, one CPU thread, median of {self.rounds} rounds"
        rows = [
            [name, round_to_3_digits(value), round_to_3_digits(ratio[name])] for name, value in milliseconds.items()
        ]
        print_table(title, ["method", "ms per action", "relative to BC"], rows)
        if load > 0.5:
            print_message(f"Other processes were running (load average {load:.1f}): do not use these numbers.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Latency, prog="python -m benchmarks.latency").run()
