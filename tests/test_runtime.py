import io
import json
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import BC, Demonstrations, Network, Policy, Training, fit
from diffclone.deploy import runtime
from diffclone.deploy.export import export
from diffclone.deploy.runtime import InvalidObservation, InvalidPolicy, load

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 4)).astype(np.float32)
OBS[:, 2] = 7
BOUNDS = [[-0.5, -0.5], [0.5, 0.4]]
DEMOS = Demonstrations.from_arrays(OBS, OBS[:, :2], episode_ends=[200], meta={"action_bounds": BOUNDS})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return fit(BC(training=Training(updates=60, lr=1e-2), network=Network(width=16)), DEMOS, device="cpu")


@pytest.fixture(scope="module")
def file(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "policy.npz"
    export(policy, path, "numpy")
    return path


# Actions.


def test_single_observations_and_batches(policy: Policy, file: Path) -> None:
    small, expected = load(file), policy(OBS)
    assert np.allclose(small(OBS), expected, atol=1e-5)
    for row in range(20):
        assert np.allclose(small(OBS[row]), expected[row], atol=1e-5)
    assert small(OBS[:0]).shape == (0, 2)
    assert np.allclose(small(OBS[:1]), expected[:1], atol=1e-5)
    assert np.allclose(small(OBS[0].tolist()), expected[0], atol=1e-5)
    assert np.allclose(small(OBS[0].astype(np.float64)), expected[0], atol=1e-5)
    assert np.allclose(small(np.asfortranarray(OBS)), expected, atol=1e-5)
    assert (small.observation_size, small.action_size) == (4, 2)
    assert repr(small) == "Policy(bc, obs 4, act 2)"
    assert small.about["data"] == DEMOS.fingerprint


def test_calls_do_not_share_memory_with_the_caller(file: Path) -> None:
    small, obs = load(file), OBS[0].copy()
    first = small(obs)
    kept = first.copy()
    small(OBS[1])
    assert np.array_equal(first, kept)
    assert np.array_equal(obs, OBS[0])
    first[:] = 99
    assert np.array_equal(small(obs), kept)


def test_extreme_observations_give_the_actions_of_torch(policy: Policy, file: Path) -> None:
    far = np.array([[1e30, 0, 7, 0], [np.inf, -np.inf, np.inf, 0], [0, 0, np.nan, 0]], np.float32)
    assert np.allclose(load(file)(far), policy(far), atol=1e-5)


def test_threads_can_share_a_policy(policy: Policy, file: Path) -> None:
    small, expected = load(file), policy(OBS)

    def ask(row: int) -> bool:
        return all(np.allclose(small(OBS[row]), expected[row], atol=1e-5) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


@pytest.mark.parametrize("shape", [(), (3,), (5,), (2, 3), (4, 2), (1, 1, 4)])
def test_wrong_shapes_are_refused(file: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidObservation, match=r"has shape \(.*\); expected \(4\) or \(batch, 4\)"):
        load(file)(np.zeros(shape))


@pytest.mark.parametrize("rows", [0, slice(0, 3)])
def test_nan_is_refused(file: Path, rows: Any) -> None:
    obs = OBS.copy()
    obs[0, 3] = np.nan
    with pytest.raises(InvalidObservation, match="the observation contains NaN"):
        load(file)(obs[rows])


# The file on its own.


def test_the_module_alone_needs_only_numpy(policy: Policy, file: Path, tmp_path: Path) -> None:
    (tmp_path / "runtime.py").write_bytes(Path(runtime.__file__).read_bytes())
    code = (
        "import json, sys, numpy; before = {m.split('.')[0] for m in sys.modules}; import runtime\n"
        f"action = runtime.load({str(file)!r})({OBS[0].tolist()})\n"
        "new = {m.split('.')[0] for m in sys.modules} - before - set(sys.stdlib_module_names)\n"
        "print(json.dumps([sorted(new), action.tolist(), 'torch' in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    new, action, torch = json.loads(found.stdout)
    assert new == ["runtime"]
    assert not torch
    assert np.allclose(action, policy(OBS[0]), atol=1e-5)


# Invalid files.


def read_arrays(file: Path) -> dict[str, Any]:
    with np.load(file, allow_pickle=False) as found:
        return dict(found)


def encode_about(about: Any) -> Any:
    return np.frombuffer(json.dumps(about).encode(), np.uint8)


def tamper(name: str, file: Path) -> dict[str, Any]:
    arrays = read_arrays(file)
    about = json.loads(arrays["about"].tobytes())
    f4 = np.float32
    changes: dict[str, dict[str, Any]] = {
        "bias_1 is missing": {"bias_1": None},
        "about is missing": {"about": None},
        "activation is missing": {"about": encode_about({k: v for k, v in about.items() if k != "activation"})},
        "reads the formats 1, 2, 3": {"about": encode_about({**about, "format": 4})},
        "gain_0 is missing": {"about": encode_about({**about, "layer_norm": True})},
        "this runtime reads": {"about": encode_about([1])},
        "Expecting value": {"about": np.frombuffer(b"?", np.uint8)},
        "has 0 layers": {"about": encode_about({**about, "layers": 0})},
        "has 1000000000 layers": {"about": encode_about({**about, "layers": 10**9})},
        "has True layers": {"about": encode_about({**about, "layers": True})},
        "activation is 'eval'": {"about": encode_about({**about, "activation": "eval"})},
        r"activation is \[\]": {"about": encode_about({**about, "activation": []})},
        "obs_std is .*expected": {"obs_std": np.ones(5, f4)},
        "weight_1 is .*expected": {"weight_1": np.ones((16, 17), f4)},
        "weight_0 is .*expected": {"weight_0": np.ones((5, 16), f4)},
        "bias_1 is .*expected": {"bias_1": np.ones((16, 1), f4)},
        "obs_mean is .* of float64": {"obs_mean": np.ones(4)},
        "act_mean have shapes": {"act_mean": np.ones((), f4)},
        "weight_2 contains values that are not finite": {"weight_2": np.full((16, 16), np.nan, f4)},
        "act_std contains": {"act_std": np.full(2, np.inf, f4)},
        "low contains": {"low": np.full(2, np.nan, f4)},
        "is negative": {"obs_std": -np.ones(4, f4)},
        "limit is negative": {"obs_limit": f4(-1)},
        "exceeds the upper": {"low": np.full(2, 9, f4)},
        "expected integers or floats": {"obs_mean": np.array(["a"] * 4)},
    }
    return {key: value for key, value in (arrays | changes[name]).items() if value is not None}


ERRORS = [
    *(
        "bias_1 is missing",
        "about is missing",
        "activation is missing",
        "reads the formats 1, 2, 3",
        "gain_0 is missing",
        "this runtime reads",
        "Expecting value",
    ),
    *("has 0 layers", "has 1000000000 layers", "has True layers", "activation is 'eval'"),
    *(r"activation is \[\]", "obs_std is .*expected", "weight_1 is .*expected", "weight_0 is .*expected"),
    *("bias_1 is .*expected", "obs_mean is .* of float64", "act_mean have shapes", "act_std contains", "low contains"),
    *("weight_2 contains values that are not finite", "is negative", "limit is negative", "exceeds the upper"),
    "expected integers or floats",
]


@pytest.mark.parametrize("error", ERRORS)
def test_a_tampered_file_is_refused_in_one_line(error: str, file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", **tamper(error, file))
    with pytest.raises(InvalidPolicy, match=error) as caught:
        load(tmp_path / "p.npz")
    assert "\n" not in str(caught.value)
    assert "p.npz" in str(caught.value)


def test_other_files_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicy, match="no such file"):
        load(tmp_path / "absent.npz")
    with pytest.raises(InvalidPolicy, match="no such file"):
        load(tmp_path)
    for content in (b"", b"PK", b"not a zip", file.read_bytes()[:-30], file.read_bytes()[100:]):
        (tmp_path / "p.npz").write_bytes(content)
        with pytest.raises(InvalidPolicy, match="is damaged or not an exported policy"):
            load(tmp_path / "p.npz")


def test_compressed_files_are_refused(file: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", **read_arrays(file), more=np.zeros(10**7))
    with pytest.raises(InvalidPolicy, match="compressed, unlike those of an export"):
        load(tmp_path / "bomb.npz")


def test_a_header_that_claims_too_much_is_refused(file: Path, tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n"
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        archive.writestr("obs_mean.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16)
    with pytest.raises(InvalidPolicy, match=r"claims \(1000000000000,\) of float32; the file has 16 bytes"):
        load(tmp_path / "p.npz")


def test_nothing_is_unpickled(file: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    np.savez(
        tmp_path / "p.npz",
        allow_pickle=True,
        **(read_arrays(file) | {"obs_mean": np.array([Evil()] * 4, dtype=object)}),
    )
    with pytest.raises(InvalidPolicy, match="expected integers or floats"):
        load(tmp_path / "p.npz")
    assert not (tmp_path / "executed").exists()


def test_mutated_files_are_refused_or_act(file: Path, tmp_path: Path) -> None:
    rng, whole, path = np.random.default_rng(2), file.read_bytes(), tmp_path / "p.npz"
    refused = 0
    # Most mutations are in the headers and in the zip directory at the end.
    tail = len(whole) - 1200
    for _ in range(1000):
        content = bytearray(whole)
        for place in rng.integers(tail if rng.random() < 0.7 else 0, len(content), rng.integers(1, 5)):
            content[place] = rng.integers(256)
        path.write_bytes(content[: rng.integers(len(content))] if rng.random() < 0.1 else content)
        try:
            assert load(path)(OBS[0]).shape == (2,)
        except InvalidPolicy:
            refused += 1
    assert refused > 500


def test_arrays_written_by_numpy_can_be_read() -> None:
    for array in (OBS, np.asfortranarray(OBS), np.float32(3), np.arange(3), OBS[:0]):
        file = io.BytesIO()
        np.save(file, array)
        content = file.getvalue()
        assert np.array_equal(runtime.read_array(io.BytesIO(content), len(content)), array)
