"""The peak resident size of a training from demonstrations larger than memory."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TRAIN = """
import json, sys
from pathlib import Path
import numpy as np
from diffclone import BC, Demonstrations, Network, Training, fit
from diffclone.data import Streamed
from diffclone.data.formats import open_blocks
from diffclone.data.formats.options import NO_OPTIONS

def memory(name):
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024

folder, allowed, above = json.loads(sys.argv[1])
method = BC(training=Training(updates=320, batch=64), network=Network(width=16, depth=1))
x = np.random.default_rng(0).standard_normal((500, 24)).astype(np.float32)
fit(method, Demonstrations.from_arrays(x, x[:, :8], episode_ends=[500]), device="cpu", progress=False)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
limit = before + allowed if above else allowed
assert isinstance(open_blocks(folder, NO_OPTIONS, limit), Streamed)
fit(method, folder, memory=limit, suggest=False, device="cpu", progress=False)
print(json.dumps([memory("VmHWM"), before]))
"""


def peak_and_baseline(folder: Path, megabytes: int, allowed: int, *, above: bool) -> tuple[int, int]:
    """Write shards of some megabytes, train from them in a new process and return its peak and its size before."""
    steps = megabytes * 1_000_000 // 128 // 20_000 * 2_000
    rng = np.random.default_rng(0)
    obs, act = (rng.standard_normal((steps, size), dtype=np.float32) for size in (24, 8))
    for number in range(10):
        np.savez(folder / f"{number}.npz", obs=obs, act=act, episode_ends=np.arange(500, steps + 1, 500))
    command = [sys.executable, "-c", TRAIN, json.dumps([str(folder), allowed, above])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak, before = json.loads(done.stdout.splitlines()[-1])
    return peak, before


def test_a_training_takes_little_memory_beside_its_buffer(tmp_path: Path) -> None:
    peak, before = peak_and_baseline(tmp_path, 60, 80_000_000, above=False)  # a buffer of 10 MB
    assert peak - before < 45_000_000


@pytest.mark.slow
def test_200_megabytes_are_trained_on_within_100_above_the_baseline(tmp_path: Path) -> None:
    peak, before = peak_and_baseline(tmp_path, 200, 100_000_000, above=True)
    assert peak <= before + 100_000_000
