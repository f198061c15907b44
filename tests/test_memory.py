"""The memory of training grows linearly with the data and the members."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from diffclone import BC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.data import Normaliser, normaliser
from diffclone.model import Dims
from diffclone.rng import Rng
from diffclone.training import Stack
from diffclone.training.session import prepare_session
from diffclone.training.shares import Shares
from diffclone.training.step import Dataset

PROGRAM = """
import numpy as np, torch
from diffclone import Demonstrations
from diffclone.training.session import prepare_session
def peak():  # ru_maxrss would begin with the peak of the process that started this one
    lines = open('/proc/self/status').read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))
obs, act = np.ones((1_500_000, 30), np.float32), np.ones((1_500_000, 10), np.float32)
demos = Demonstrations.from_arrays(obs, act, episode_ends=[1_500_000])
demos.fingerprint
before = peak()
prepare_session(demos, "z-score", torch.device("cpu"), torch.float32)
after = peak()
print((after - before) * 1024 / (obs.nbytes + act.nbytes))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_demonstrations_are_copied_only_once() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert 0.5 < float(answer.stdout) < 1.4  # less than 1 where memory of something before was free again


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_statistics_of_chunks_equal_statistics_of_all(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normaliser, "CHUNK", chunk)
    values = np.random.default_rng(0).normal(5.0, 3.0, (101, 3)).astype(np.float32)
    demos = Demonstrations.from_arrays(values, values[:, :1], episode_ends=[101])
    found = Normaliser.from_demonstrations(demos)
    assert np.allclose(found.obs_mean, values.mean(0), atol=1e-6)
    assert np.allclose(found.obs_std, values.std(0, ddof=1), atol=1e-6)
    _, session = prepare_session(demos, "z-score", torch.device("cpu"), torch.float32)
    assert np.allclose(session.data.obs.mean(0), 0, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        BC(training=Training(updates=10), network=Network(width=32)),
        DiffusionGuide(training=Training(updates=10, ema=0.9), width=32),
    ],
)
def test_state_is_linear_in_members(model: BC | DiffusionGuide) -> None:
    def numbers(members: int) -> int:
        pairs = Dataset(torch.ones(50, 4), torch.ones(50, 2))
        shares = Shares(model, Stack(tuple(range(members)), {}), {}, pairs, Dims(4, 2), Rng(range(members), path="x"))
        return sum(t.numel() for t in shares.state().values() if t.dim())

    assert numbers(16) == 16 * numbers(1)
