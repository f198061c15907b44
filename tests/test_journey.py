"""All commands from a robomimic file to a policy in ONNX."""

from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from diffclone import Policy


def make_robomimic(path: Path) -> None:
    """Write 24 episodes with two observations per step in the layout of robomimic."""
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = 24 * 30
        for k in range(24):
            arm, cube = rng.uniform(-1, 1, (30, 3)), rng.uniform(-1, 1, (30, 2))
            demo = data.create_group(f"demo_{k}")
            demo.attrs["num_samples"] = 30
            demo["actions"] = np.tanh(arm[:, :2] - cube)
            demo["obs/arm"], demo["obs/cube"] = arm, cube


def test_from_a_robomimic_file_to_onnx(diffclone: Command, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    make_robomimic(tmp_path / "demos.hdf5")
    run, brief = tmp_path / "run", ("--training.updates", "96", "--guide.training.updates", "96", "--seeds", "1")
    for command in (
        ("inspect", tmp_path / "demos.hdf5"),
        ("train", tmp_path / "demos.hdf5", *brief, "--held-out", "0.5", "--no-cache", "--device", "cpu", "--out", run),
        ("convert", tmp_path / "demos.hdf5", tmp_path / "demos.npz"),
        ("calibrate", run, "--alpha", "0.2", "--score", "nearest"),  # on the held-out episodes
        ("export", run, "--to", "onnx", "--out", tmp_path / "policy.onnx"),
    ):
        result = diffclone(*command)
        assert result.code == 0, result.err
    policy = Policy.from_pretrained(run / "policy")
    obs = np.random.default_rng(1).uniform(-1, 1, (1000, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    (act,) = session.run(None, {"observation": obs})
    assert np.allclose(act, policy(obs), atol=1e-5)
    score = policy.monitor(100 * obs[0], policy(obs[0]))
    assert score.alarm is not None
    assert bool(score.alarm.both)
