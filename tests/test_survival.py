"""Runs: a training that is killed and resumed ends with the same bits, and two trainings do not share a folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Command
from diffclone import BC, Demonstrations, Network, Training, search
from diffclone.errors import InvalidFile
from diffclone.files import read_tensors
from diffclone.fit import FitOptions
from diffclone.records import Record
from diffclone.training import Progress
from diffclone.training.runs import Run, train_run
from diffclone.training.search import SearchOptions, search_in_folder
from diffclone.training.search_plan import Grid
from test_selection import line_demonstrations

COMMAND = [
    "train",
    "spiral",
    "--method",
    "dbc",
    "--seeds",
    "2",
    "--device",
    "cpu",
    "--no-cache",
    "--checkpoint-seconds",
    "0",
    "--network.width",
    "16",
    "--guide.width",
    "16",
    "--guide.training.updates",
    "1600",
    "--training.updates",
    "1600",
    "--training.batch",
    "16",
    "--guide.training.batch",
    "16",
    "--out",
]


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "diffclone", *COMMAND, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def size(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.stat().st_size if metrics.exists() else 0


def train_with_kills(folder: Path, kills: int, rng: np.random.Generator) -> int:
    """Kill the training `kills` times, each shortly after some progress; then let it finish."""
    done = 0
    while True:
        process, before = start(folder), size(folder)
        if done == kills:
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err.decode()
            return done
        while size(folder) <= before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        if process.returncode == 0:  # it has finished
            return done
        assert process.returncode == -signal.SIGKILL, err.decode()
        done += 1


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left") / "alone"
    _, err = start(folder).communicate(timeout=300)
    assert (folder / "policy" / "config.json").exists(), err.decode()
    return folder


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_training_resumes_bit_for_bit(kills: int, left_alone: Path, tmp_path: Path) -> None:
    killed = train_with_kills(tmp_path / "killed", kills, np.random.default_rng(kills))
    assert killed >= min(kills, 3)
    for file in ("policy/model.safetensors", "parts/guide.safetensors"):
        ours, theirs = (read_tensors(folder / file)[0] for folder in (tmp_path / "killed", left_alone))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (tmp_path / "killed", left_alone)]
    assert len(lines[0]) == len(lines[1])


@pytest.mark.parametrize("torn", ["metrics.jsonl", "records.jsonl"])
def test_a_run_resumes_after_its_last_line_was_cut_off(torn: str, diffclone: Command, tmp_path: Path) -> None:
    brief = ("--method", "bc", "--seeds", "1", "--training.updates", "96", "--network.width", "8", "--device", "cpu")
    command = ("train", "spiral", *brief, "--out", tmp_path / "run")
    assert diffclone(*command).code == 0
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("metrics.jsonl", "policy/model.safetensors")}
    for folder in ("policy", "checkpoints"):  # the power fails before either is written
        shutil.rmtree(tmp_path / "run" / folder)
    path = tmp_path / "run" / torn
    path.write_bytes(path.read_bytes()[:-30])
    resumed = diffclone(*command)
    assert resumed.code == 0, resumed.err
    assert f"{path}: the last line is incomplete and is ignored." in resumed.err
    after = {name: (tmp_path / "run" / name).read_bytes() for name in before}
    assert after["policy/model.safetensors"] == before["policy/model.safetensors"]
    lines = [[{**json.loads(line), "seconds": 0} for line in m["metrics.jsonl"].splitlines()] for m in (before, after)]
    assert lines[0] == lines[1]
    assert [record.kind for record in Record.read_all(tmp_path / "run" / "records.jsonl")] == ["training"]


HOLD = """
import sys, time
from pathlib import Path
from diffclone.training.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_training_in_the_same_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    demos = Demonstrations.from_arrays(x, x[:, :1], episode_ends=[40])
    method, folder = BC(training=Training(updates=4), network=Network(width=4, depth=1)), tmp_path / "run"
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE)
    assert first.stdout is not None
    assert first.stdout.readline() == b"locked\n"
    with pytest.raises(InvalidFile, match=rf"process {first.pid} is training in .*run\. Wait for it, or choose"):
        train_run(folder, method, demos, FitOptions(device="cpu"))
    assert [path.name for path in folder.iterdir()] == ["run.lock"]
    with pytest.raises(InvalidFile, match=rf"process {first.pid} is training in .*run\. Wait for it, or choose"):
        search(demos, folder=folder, device="cpu")
    assert [path.name for path in folder.iterdir()] == ["run.lock"]
    first.kill()  # its lock ends with it
    first.communicate(timeout=60)
    assert train_run(folder, method, demos, FitOptions(device="cpu")).finished
    with pytest.raises(InvalidFile, match="holds another run"):
        train_run(folder, method, demos, FitOptions(device="cpu", seeds=(1,)))


def test_nothing_else_trains_in_the_folder_of_a_search_until_it_ends(tmp_path: Path) -> None:
    demos, folder = line_demonstrations(), tmp_path / "run"
    options = SearchOptions(grid=Grid(2, (4,)), device="cpu")
    refused: dict[str, str] = {}

    def attempt(name: str, work: Callable[[], object]) -> None:
        with pytest.raises(InvalidFile) as error:
            work()
        refused[name] = str(error.value)

    def others(stage: str, now: Progress) -> None:
        if stage in refused:
            return
        method = BC(training=Training(updates=4), network=Network(width=4, depth=1))
        with ThreadPoolExecutor(1) as thread:  # code that does not hold the lock
            thread.submit(attempt, stage, lambda: search_in_folder(folder, demos, options)).result()
            if stage == "trying BC":
                again = lambda: train_run(folder, method, demos, FitOptions(device="cpu"))  # noqa: E731
                thread.submit(attempt, "training", again).result()

    search_in_folder(folder, demos, options, others)
    assert refused.keys() == {"trying BC", "final training", "training"}
    assert all(f"process {os.getpid()} is training in" in message for message in refused.values())
    assert Run(folder).finished
