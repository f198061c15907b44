"""Training that is killed, again and again, ends where training that was left alone ends: bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Command
from diffclone.files import read_tensors
from diffclone.records import Record

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
    """Kill it so many times, each a moment after it has got on a little; then let it end."""
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
        if process.returncode == 0:  # it was quicker
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
def test_killed_training_goes_on_bit_for_bit(kills: int, left_alone: Path, tmp_path: Path) -> None:
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
