"""Memory and time that reading demonstrations takes, for each format: python -m benchmarks.reading --megabytes 500.

A file is written to a temporary folder and read in a new process, which has read a small file of the same format
before. The peak of the resident memory above what the process had before is divided by the bytes of the arrays in the
file.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from diffclone import Demonstrations

OBS, ACT, STEPS = 24, 8, 1000
"""Sizes of observations and actions, and steps of an episode."""

READ = """
import json, os, sys, time
from pathlib import Path
from diffclone import Demonstrations

def memory(name):
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024

for small, large in json.loads(sys.argv[1]):
    if os.fork():  # a process each, because memory that one file has used would be free for the next
        os.wait()
        continue
    Demonstrations.load(small).fingerprint
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    begun = time.perf_counter()
    demos = Demonstrations.load(large)
    demos.fingerprint
    seconds = time.perf_counter() - begun
    found = {"bytes": memory("VmHWM") - before, "seconds": seconds, "fingerprint": demos.fingerprint}
    print(json.dumps(found), flush=True)
    os._exit(0)
"""


def write_npz(demos: Demonstrations, path: str) -> None:
    np.savez(path, obs=demos.obs, act=demos.act, episode_ends=demos.episode_ends)


def write_doubles(demos: Demonstrations, path: str) -> None:
    obs, act = demos.obs.astype(np.float64), demos.act.astype(np.float64)
    np.savez(path, observations=obs, actions=act, timeouts=_last_steps(demos))


def write_d4rl(demos: Demonstrations, path: str) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in (("observations", demos.obs), ("actions", demos.act)):
            file.create_dataset(name, data=values, chunks=(STEPS, values.shape[1]), compression="lzf")
        file["timeouts"] = _last_steps(demos)


def write_zarr(demos: Demonstrations, path: str) -> None:
    import zarr

    root: Any = zarr.open_group(path, mode="w", zarr_format=2)
    for name, values in (
        ("data/state", demos.obs),
        ("data/action", demos.act),
        ("meta/episode_ends", demos.episode_ends),
    ):
        root.create_array(name, data=values, chunks=(64 * STEPS, *values.shape[1:]))


def write_parquet(demos: Demonstrations, path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    def lists(values: Any) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])

    episode = np.repeat(np.arange(demos.num_episodes), demos.lengths)
    table: Any = pa.table({"observation": lists(demos.obs), "action": lists(demos.act), "episode": episode})
    parquet.write_table(table, path)


def _last_steps(demos: Demonstrations) -> Any:
    flags = np.zeros(demos.num_steps, dtype=bool)
    flags[demos.episode_ends - 1] = True
    return flags


FORMATS: Mapping[str, tuple[str, Callable[[Demonstrations, str], None]]] = {
    "npz": ("{}.npz", write_npz),
    "npz, compressed": ("{}.npz", lambda demos, path: demos.save(path)),
    "npz of doubles, D4RL's names": ("{}.npz", write_doubles),
    "D4RL HDF5": ("{}.hdf5", write_d4rl),
    "robomimic HDF5": ("{}.hdf5", lambda demos, path: demos.save(path)),
    "Minari HDF5": ("minari:{}-v0", lambda demos, path: demos.save(path)),
    "LeRobot": ("lerobot:{}", lambda demos, path: demos.save(path)),
    "zarr": ("{}.zarr", write_zarr),
    "parquet": ("{}.parquet", write_parquet),
}
"""For each format the name of a file, and how it is written."""


def make(megabytes: float) -> Demonstrations:
    """Return random numbers, which hardly compress."""
    steps = max(1, round(megabytes * 1e6 / (4 * (OBS + ACT)) / STEPS)) * STEPS
    rng = np.random.default_rng(0)
    obs, act = (rng.standard_normal((steps, size), dtype=np.float32) for size in (OBS, ACT))
    return Demonstrations(obs, act, np.arange(STEPS, steps + 1, STEPS, dtype=np.int64))


def measure(names: Sequence[str], demos: Demonstrations) -> dict[str, dict[str, float]]:
    """Return for each format the peak memory above the baseline per byte of the file's arrays, and the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        paths: list[list[str]] = []
        for number, name in enumerate(names):
            pattern, write = FORMATS[name]
            paths.append([pattern.format(f"{folder}/{size}{number}") for size in ("small", "large")])
            write(demos.take([0]), paths[-1][0])
            write(demos, paths[-1][1])
        command = [sys.executable, "-c", READ, json.dumps(paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    results: dict[str, dict[str, float]] = {}
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        found = json.loads(line)
        assert found["fingerprint"] == demos.fingerprint
        stored = (demos.obs.nbytes + demos.act.nbytes) * (2 if "doubles" in name else 1)
        results[name] = {"ratio": found["bytes"] / stored, "seconds": found["seconds"], "stored": stored}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--formats", nargs="*", default=list(FORMATS))
    arguments = parser.parse_args()
    demos = make(arguments.megabytes)
    for name in arguments.formats:
        found = measure([name], demos)[name]
        print(f"{name:30} {found['stored'] / 1e6:6.0f} MB  {found['ratio']:.2f} × in memory  {found['seconds']:6.1f} s")


if __name__ == "__main__":
    main()
