"""Interrupt a tiny training at every file operation that it makes, and train again in the same folder.

    python tests/faults/crash_points.py dbc --every 1

prints JSON: how many points were tried, after how many of them the second attempt ended with the weights, snapshots,
losses and Records of an undisturbed training ("resumed"), was refused with one line ("refused"), or neither ("lost").

Operations are counted in the order in which they happen: each write to a file, fsync and rename. At operation n the
process fails in one of these ways:

    kill      SIGKILL in the middle: half of a write is on disk, a rename has not happened
    after     SIGKILL right after it
    enospc    nothing is written, the disk is full
    torn      half is written, then the disk is full
    eio       nothing is written, the device fails

Every attempt is a fork of this process, which has imported everything and started no thread.
"""

import argparse
import builtins
import errno
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diffclone import BC, DBC, IBC, Demonstrations, DiffusionPolicy, Network, Training
from diffclone.errors import DiffcloneError
from diffclone.files import read_lines, read_tensors
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide, EnergyGuide, GANGuide, VAEGuide
from diffclone.methods import BCGMM, MIP, FlowMatching, IBCLangevin
from diffclone.model import Method
from diffclone.nn.energy import Langevin
from diffclone.records import Record
from diffclone.training.runs import Run, train_run

FAILURES = ("kill", "after", "enospc", "torn", "eio")
TINY = Training(updates=64, batch=4)
NETWORK = Network(width=3, depth=1)

METHODS: dict[str, Method[Any]] = {
    "bc": BC(training=TINY, network=NETWORK),
    "dbc": DBC(
        training=TINY, network=NETWORK, coefficient=1.0, guide=DiffusionGuide(training=TINY, width=3, depth=1, steps=5)
    ),
    "dbc-vae": DBC(training=TINY, network=NETWORK, coefficient=1.0, guide=VAEGuide(training=TINY, width=3)),
    "dbc-gan": DBC(training=TINY, network=NETWORK, coefficient=1.0, guide=GANGuide(training=TINY, width=3)),
    "dbc-energy": DBC(
        training=TINY,
        network=NETWORK,
        coefficient=1.0,
        guide=EnergyGuide(training=TINY, width=3, depth=1, counter_examples=4),
    ),
    "ibc": IBC(training=TINY, network=NETWORK, counter_examples=4, samples=8),
    "ibc-langevin": IBCLangevin(
        training=TINY, width=3, blocks=1, counter_examples=2, training_walk=Langevin(steps=2), walks=2
    ),
    "diffusion-policy": DiffusionPolicy(training=TINY, width=3, depth=1, steps=5, calls=2),
    "flow-matching": FlowMatching(training=TINY, width=3, depth=1, calls=2),
    "mip": MIP(training=TINY, network=NETWORK),
    "bc-gmm": BCGMM(training=TINY, network=NETWORK, modes=2),
}
"""Methods without a guide, with a guide trained before the policy, and with one trained alongside it (GAN)."""


class Operations:
    """Counts file operations below a folder, and fails at one of them."""

    def __init__(self, folder: Path, fail_at: int = -1, failure: str = ""):
        self.folder = str(folder.resolve())
        self.fail_at = fail_at
        self.failure = failure
        self.count = 0

    def run(self, do: Callable[[], Any], do_half: Callable[[], Any]) -> Any:
        """Do an operation, or fail."""
        self.count += 1
        if self.count - 1 != self.fail_at:
            return do()
        if self.failure == "after":
            do()
        if self.failure in ("kill", "torn"):
            do_half()
        if self.failure in ("kill", "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        code = errno.EIO if self.failure == "eio" else errno.ENOSPC
        raise OSError(code, os.strerror(code))

    def install(self) -> None:
        """Replace the functions of this process that open, sync and rename files."""
        real_open, real_fsync, real_replace = io.open, os.fsync, os.replace

        def open_counted(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            opened = real_open(file, mode, *arguments, **keywords)
            inside = not isinstance(file, int) and str(Path(file).absolute()).startswith(self.folder)
            return CountedFile(opened, self) if inside and set(mode) & set("wax+") and "b" in mode else opened

        def replace(source: Any, target: Any, **keywords: Any) -> None:
            self.run(lambda: real_replace(source, target, **keywords), lambda: None)

        io.open = builtins.open = open_counted
        os.fsync = lambda descriptor: self.run(lambda: real_fsync(descriptor), lambda: None)
        os.replace = replace


class CountedFile:
    """A file whose writes are counted."""

    def __init__(self, file: Any, operations: Operations):
        self._file = file
        self._operations = operations

    def write(self, content: bytes) -> int:
        """Write and flush, so that what was written survives a kill."""

        def write(part: bytes) -> int:
            written = self._file.write(part)
            self._file.flush()
            return written

        return self._operations.run(lambda: write(content), lambda: write(content[: len(content) // 2]))

    def __enter__(self) -> "CountedFile":
        self._file.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> Any:
        return self._file.__exit__(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def demonstrations(episodes: int = 2, seed: int = 0) -> Demonstrations:
    """Return a few episodes of 20 steps."""
    x = np.random.default_rng(seed).uniform(-1, 1, (20 * episodes, 2))
    return Demonstrations.from_arrays(x, x[:, :1], episode_ends=range(20, 20 * episodes + 1, 20))


def train(folder: Path, method: str) -> None:
    """Train in a folder, with a cache of guides beside it and a checkpoint after each report."""
    options = FitOptions(
        seeds=(0, 1), device="cpu", cache=folder.parent / "cache", checkpoint_seconds=0.0, snapshots=(32,)
    )
    train_run(folder, METHODS[method], demonstrations(), options)


def content(folder: Path) -> dict[str, Any]:
    """Return everything that a training leaves, except times."""
    tensors: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        if path.parent.name != "checkpoints":
            tensors |= {f"{path.relative_to(folder)} {name}": t.tolist() for name, t in read_tensors(path)[0].items()}
    metrics = [{**line, "seconds": 0} for line in read_lines(folder / "metrics.jsonl")]
    records = [(line["kind"], line["members"]) for line in read_lines(folder / "records.jsonl")]
    left_over = [path.name for path in folder.rglob(".*")]
    assert Run(folder).finished
    return json.loads(json.dumps({"tensors": tensors, "metrics": metrics, "records": records, "left over": left_over}))


def in_fork(work: Callable[[], Any]) -> tuple[int, Any]:
    """Do some work in a fork; return how it ended and what it printed as JSON: a result, or the error's message."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                result, code = work(), 0
            except (DiffcloneError, OSError) as error:
                result, code = str(error), 1
            with os.fdopen(write, "w") as pipe:
                json.dump(result, pipe)
            os._exit(code)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(2)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(text) if text else None


def try_points(method: str, every: int, failures: tuple[str, ...]) -> dict[str, Any]:
    """Fail at every `every`-th operation in each way; return the counts."""
    counts: dict[str, Any] = {"method": method, "tried": 0, "resumed": 0, "refused": 0, "lost": 0, "examples": []}
    with tempfile.TemporaryDirectory() as parent:
        base = Path(parent)

        def undisturbed() -> tuple[int, Any]:
            operations = Operations(base / "undisturbed")
            operations.install()
            train(base / "undisturbed" / "run", method)
            return operations.count, content(base / "undisturbed" / "run")

        status, (total, expected) = in_fork(undisturbed)
        assert status == 0
        counts["operations"] = total
        for index, (point, failure) in enumerate((p, f) for p in range(total) for f in failures):
            if index % every:
                continue
            folder = base / "failed" / "run"

            def fail(point: int = point, failure: str = failure, folder: Path = folder) -> Any:
                Operations(folder.parent, point, failure).install()
                train(folder, method)
                return content(folder)  # a cache that cannot be written does not end a training

            def resume(folder: Path = folder) -> Any:
                train(folder, method)
                return content(folder)

            first, kept = in_fork(fail)
            second, found = in_fork(resume)
            survived = first == 0 and kept == expected
            good = (first in (-signal.SIGKILL, 1) or survived) and second == 0 and found == expected
            refused = second == 1 and "\n" not in str(found)
            counts["tried"] += 1
            counts["resumed" if good else "refused" if refused else "lost"] += 1
            if not good:
                changed = [key for key in expected if found[key] != expected[key]] if isinstance(found, dict) else found
                counts["examples"].append([point, failure, first, second, changed])
            shutil.rmtree(folder.parent, ignore_errors=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=list(METHODS), help="methods to train")
    parser.add_argument("--every", type=int, default=1, help="try every n-th point only")
    parser.add_argument("--out", type=Path, help="file that gets one Record per method")
    parser.add_argument("--failures", nargs="+", default=list(FAILURES), choices=FAILURES)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for method in arguments.methods:
        begun = time.monotonic()
        counts = try_points(method, arguments.every, tuple(arguments.failures))
        print(json.dumps(counts), flush=True)
        if arguments.out is not None:
            settings = {"test": "crash points", "every": arguments.every, "failures": arguments.failures}
            Record("faults", settings, [], {}, counts, "cpu", time.monotonic() - begun).append_to(arguments.out)


if __name__ == "__main__":
    main()
