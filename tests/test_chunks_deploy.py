"""Exported policies with chunks and history: files, the NumPy runtime and ONNX."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import BC, Demonstrations, Network, Policy, Training, fit
from diffclone.deploy import memory, runtime
from diffclone.deploy.export import export
from diffclone.deploy.memory import Chunks, onnx_session

STEPS = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
DEMOS = Demonstrations.from_arrays(
    STEPS, np.sin(STEPS), episode_ends=[20, 40, 60], meta={"action_bounds": [[-0.7, -0.7], [0.7, 0.7]]}
)


@pytest.fixture(scope="module")
def policy() -> Policy:
    training, network = Training(updates=60, lr=5e-3, batch=32), Network(width=16, depth=1)
    return fit(BC(training=training, network=network, horizon=4, execute=3, history=2), DEMOS, device="cpu")


def rollout(act: Any) -> Any:
    """Return the actions of two episodes."""
    first = [act(obs) for obs in STEPS[:7]]
    act.reset()
    return np.array(first + [act(obs) for obs in STEPS[7:12]])


@pytest.mark.parametrize("settings", [{}, {"execute": 1, "ensemble": 0.1}])
@pytest.mark.parametrize("to", ["numpy", "onnx"])
def test_an_exported_policy_plays_the_same_chunks(policy: Policy, tmp_path: Path, to: Any, settings: Any) -> None:
    if to == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    chosen = policy.acting(**settings)
    export(chosen, tmp_path / "policy", to)
    if to == "numpy":
        loaded = runtime.load(tmp_path / "policy")
        assert (loaded.observation_size, loaded.action_size) == (2, 2)
        assert loaded.chunks == chosen.chunks
        with pytest.raises(runtime.InvalidObservation, match=r"policy\.session\(\)"):
            loaded(STEPS[0])
        session = loaded.session()
    else:
        session = onnx_session(str(tmp_path / "policy"))
    played = rollout(session)
    np.testing.assert_allclose(played, rollout(chosen.session()), rtol=1e-4, atol=1e-5)
    assert np.abs(played).max() <= 0.7
    session.reset()
    np.testing.assert_allclose(session(STEPS[:5]), chosen.session()(STEPS[:5]), rtol=1e-4, atol=1e-5)


def test_two_files_are_enough_on_the_robot(policy: Policy, tmp_path: Path) -> None:
    export(policy, tmp_path / "policy.npz", "numpy")
    for module in (runtime, memory):
        source = Path(module.__file__ or "")
        (tmp_path / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    code = (
        "import runtime, sys; act = runtime.load('policy.npz').session(); print(act([0.1, 0.2]).tolist()); "
        "assert 'memory' in sys.modules and 'diffclone' not in sys.modules"
    )
    # -I: no PYTHONPATH and no current folder, as on a machine without this package.
    program = f"import sys; sys.path[:0] = ['.']; sys.modules['diffclone.deploy.memory'] = None; {code}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    expected = policy.session()(np.array([0.1, 0.2], np.float32))
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-4)


def test_a_missing_memory_file_is_one_line(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(policy, tmp_path / "policy.npz", "numpy")
    for name in ("diffclone.deploy.memory", "memory"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(runtime.InvalidPolicy, match=r"^the policy has chunks or a history: copy memory.py beside"):
        runtime.load(tmp_path / "policy.npz")


@pytest.mark.parametrize(
    "chunks",
    [
        {"horizon": 4, "execute": 5},
        {"horizon": 3, "history": 2},
        {"horizon": "4"},
        {"depth": 1},
        {"horizon": 4, "ensemble": "much"},
        [4],
        None,
    ],
)
def test_damaged_chunks_of_a_file_are_refused(policy: Policy, tmp_path: Path, chunks: Any) -> None:
    export(policy, tmp_path / "policy.npz", "numpy")
    with np.load(tmp_path / "policy.npz") as file:
        arrays = dict(file)
    about = json.loads(arrays["about"].tobytes())
    assert about["format"] == 3
    arrays["about"] = np.frombuffer(json.dumps({**about, "chunks": chunks}).encode(), np.uint8)
    np.savez(tmp_path / "changed.npz", **arrays)
    with pytest.raises(runtime.InvalidPolicy, match="damaged or not an exported policy"):
        runtime.load(tmp_path / "changed.npz")


def test_files_without_chunks_keep_their_format(tmp_path: Path) -> None:
    plain = fit(BC(training=Training(updates=5), network=Network(width=8, depth=1)), DEMOS, device="cpu")
    export(plain, tmp_path / "policy.npz", "numpy")
    loaded = runtime.load(tmp_path / "policy.npz")
    assert loaded.about["format"] == 1
    assert "chunks" not in loaded.about
    action, state = loaded.predict(STEPS[0])
    assert state is None
    assert np.array_equal(action, loaded(STEPS[0]))
    assert np.array_equal(loaded.session()(STEPS[0]), action)
    assert plain.chunks == Chunks()


@pytest.mark.parametrize("to", ["policy", "numpy", "onnx"])
def test_a_nan_is_refused_at_its_own_step_and_forgotten(tmp_path: Path, to: Any) -> None:
    settings: Any = {"horizon": 4, "execute": 4, "history": 4}
    obs = np.concatenate([STEPS, np.ones((60, 1), np.float32)], 1)  # the last number never varies
    demos = Demonstrations.from_arrays(obs, np.sin(STEPS), episode_ends=[20, 40, 60])
    trained = fit(BC(training=Training(updates=2), network=Network(width=8), **settings), demos, device="cpu")
    session = trained.session()
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    if to != "policy":
        export(trained, tmp_path / "policy", to)
        session = (
            runtime.load(tmp_path / "policy").session() if to == "numpy" else onnx_session(str(tmp_path / "policy"))
        )
    broken, unused = obs[1].copy(), obs[1].copy()
    broken[0], unused[2] = np.nan, np.nan
    session(obs[0])
    with pytest.raises(ValueError, match="NaN"):
        session(broken)
    if to != "onnx":  # which does not know what never varied
        session(unused)
    assert np.isfinite([session(row) for row in obs[1:12]]).all()
