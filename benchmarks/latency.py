"""How long a policy takes to act: milliseconds an action, one observation at a time, on one CPU thread.

python benchmarks/latency.py                        all methods, a table
python benchmarks/latency.py --json --out FILE      also a Record, appended to FILE

Contestants take turns, and each is given the median of its turns. A turn is a fifth of a second of calls, or one call
where that takes longer: `policy(obs)` as a robot would have it, NumPy in and NumPy out, with all that a call does
besides the network (normalising, drawing noise, cutting to the limits). Sizes are Maze's (6 numbers seen, 2 forces) and
networks those of the paper's Maze column; implicit BC with Langevin walks, which the paper does not have, is as its
defaults are. Policies are trained for a single update on the bundled demonstrations: how long a call takes does not
depend on what the weights are. The ratio is to BC.
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

from benchmarks.speed.acting import actors, measure
from benchmarks.speed.tables import three_digits
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS


@dataclass(frozen=True)
class Latency:
    """Time the actions of policies."""

    rounds: int = 15
    """Turns of each contestant."""
    json: bool = False
    """Print the Record instead of a table."""
    out: Path | None = None
    """A file of Records to append to."""

    def run(self) -> None:
        """Do it."""
        begun, load = time.monotonic(), os.getloadavg()[0]
        torch.set_num_threads(1)
        demos = TASKS["maze"].demonstrations()
        playing = list(actors(demos))
        with bars() as show:
            found = measure(
                playing,
                demos.obs.astype(np.float32),
                self.rounds,
                lambda done, total: show.update("latency", done, total),
            )
        ratio = {name: taken / found["BC"] for name, taken in found.items()}
        record = Record(
            kind="benchmark",
            settings={
                "benchmark": "latency",
                "task": "maze",
                "rounds": self.rounds,
                "threads": torch.get_num_threads(),
                "methods": {a.name: to_dict(a.policy.method) for a in playing},
            },
            members=[],
            data=playing[0].policy.data,
            results={"milliseconds": found, "ratio_to_bc": ratio, "load_before": load},
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - begun,
        )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json({"results": record.results, "device": record.device, "seconds": record.seconds})
            return
        title = f"Milliseconds an action, one CPU thread, median of {self.rounds} turns"
        rows = [[name, three_digits(taken), three_digits(ratio[name])] for name, taken in found.items()]
        print_table(title, ["method", "ms an action", "times BC"], rows)
        if load > 0.5:
            print_message(f"Something else was running (load {load:.1f}): these numbers are not worth much.")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Latency, prog="python benchmarks/latency.py").run()
