"""Peak memory of training on many images, which stay bytes until a batch is made.

python -m benchmarks.pictures                        100,000 frames of 3 × 64 × 64 with 4 numbers, as JSON
python -m benchmarks.pictures --out FILE             also appends a Record to FILE

A file of frames is written in one process. A second process reads it, trains BC for a few updates and reports the
largest resident memory it had (as the operating system counts it), and that before it read the file.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tyro

IMAGE, STATE, EPISODE = (3, 64, 64), 4, 100
WRITTEN = 1000
"""Frames written at a time."""


def write_frames(path: Path, frames: int) -> None:
    """Write an npz file of noise, in blocks."""
    rng = np.random.default_rng(0)
    ends = np.array([*range(EPISODE, frames, EPISODE), frames])
    with zipfile.ZipFile(path, "w") as file:
        with file.open("obs/image.npy", "w", force_zip64=True) as entry:
            header = {"descr": "|u1", "fortran_order": False, "shape": (frames, *IMAGE)}
            np.lib.format.write_array_header_1_0(entry, header)
            for start in range(0, frames, WRITTEN):
                entry.write(rng.bytes(min(WRITTEN, frames - start) * int(np.prod(IMAGE))))
        for name, values in (
            ("obs/state", rng.standard_normal((frames, STATE), dtype=np.float32)),
            ("act", rng.standard_normal((frames, 2), dtype=np.float32)),
            ("episode_ends", ends),
        ):
            with file.open(f"{name}.npy", "w") as entry:
                np.save(entry, values)


def train(path: Path, updates: int) -> dict[str, Any]:
    """Read the file, train and return the memory in bytes."""
    from diffclone import BC, Demonstrations, Network, Training, fit

    before = peak_bytes()
    demos = Demonstrations.load(path, obs_keys=("obs/image", "obs/state"))
    read = peak_bytes()
    network = Network(width=256, depth=1, activation="relu", image=IMAGE, state=STATE)
    begun = time.process_time()
    fit(BC(training=Training(updates=updates, batch=64), network=network), demos, device="cpu", progress=False)
    return {
        "frames": demos.num_steps,
        "stored_bytes": demos.obs.nbytes,
        "float_bytes": 4 * demos.num_steps * demos.obs_size,
        "before_bytes": before,
        "after_reading_bytes": read,
        "peak_bytes": peak_bytes(),
        "training_cpu_seconds": time.process_time() - begun,
        "updates": updates,
    }


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far.

    Linux counts it in /proc; `getrusage` would include that of the process which started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(frames: int, updates: int) -> dict[str, Any]:
    """Write frames, and train on them in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames.npz"
        write_frames(path, frames)
        command = [sys.executable, "-m", "benchmarks.pictures", "--measured", str(path), "--updates", str(updates)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run(frames: int = 100_000, updates: int = 32, out: Path | None = None, measured: Path | None = None) -> None:
    """Measure the peak memory of a training on images.

    Args:
        frames: number of images.
        updates: updates of the training.
        out: a file of Records to append to.
        measured: the file to train on in this process, which the benchmark starts itself.
    """
    if measured is not None:
        print(json.dumps(train(measured, updates)))
        return
    from diffclone.cli.console import print_json
    from diffclone.records import Record

    begun, load = time.monotonic(), os.getloadavg()[0]
    results = measure(frames, updates)
    record = Record(
        kind="benchmark",
        settings={"benchmark": "pictures", "image": list(IMAGE), "state": STATE},
        members=[],
        data={},
        results={**results, "load_before": load},
        device=f"{platform.machine()}, cpu",
        seconds=time.monotonic() - begun,
    )
    if out is not None:
        record.append_to(out)
    print_json(results)


if __name__ == "__main__":
    tyro.cli(run, prog="python -m benchmarks.pictures")
