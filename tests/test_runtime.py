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


# Acting.


def test_one_and_many(policy: Policy, file: Path) -> None:
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


def test_an_answer_is_the_callers_own_and_a_question_too(file: Path) -> None:
    small, obs = load(file), OBS[0].copy()
    first = small(obs)
    kept = first.copy()
    small(OBS[1])
    assert np.array_equal(first, kept)
    assert np.array_equal(obs, OBS[0])
    first[:] = 99
    assert np.array_equal(small(obs), kept)


def test_far_away_it_is_as_torch_has_it(policy: Policy, file: Path) -> None:
    far = np.array([[1e30, 0, 7, 0], [np.inf, -np.inf, np.inf, 0], [0, 0, np.nan, 0]], np.float32)
    assert np.allclose(load(file)(far), policy(far), atol=1e-5)


def test_threads_may_share_it(policy: Policy, file: Path) -> None:
    small, expected = load(file), policy(OBS)

    def ask(row: int) -> bool:
        return all(np.allclose(small(OBS[row]), expected[row], atol=1e-5) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


@pytest.mark.parametrize("shape", [(), (3,), (5,), (2, 3), (4, 2), (1, 1, 4)])
def test_shapes_that_do_not_fit_are_named(file: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidObservation, match=r"of shape \(.*\) do not fit: give \(4\) or \(batch, 4\)"):
        load(file)(np.zeros(shape))


@pytest.mark.parametrize("rows", [0, slice(0, 3)])
def test_nan_is_refused(file: Path, rows: Any) -> None:
    obs = OBS.copy()
    obs[0, 3] = np.nan
    with pytest.raises(InvalidObservation, match="an observation holds NaN"):
        load(file)(obs[rows])


# On its own.


def test_the_file_alone_needs_numpy_only(policy: Policy, file: Path, tmp_path: Path) -> None:
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


# Files that are not what they should be.


def parts(file: Path) -> dict[str, Any]:
    with np.load(file, allow_pickle=False) as found:
        return dict(found)


def changed(about: Any) -> Any:
    return np.frombuffer(json.dumps(about).encode(), np.uint8)


def tampered(name: str, file: Path) -> dict[str, Any]:
    arrays = parts(file)
    about = json.loads(arrays["about"].tobytes())
    f4 = np.float32
    changes: dict[str, dict[str, Any]] = {
        "no bias_1": {"bias_1": None},
        "no about": {"about": None},
        "no activation": {"about": changed({k: v for k, v in about.items() if k != "activation"})},
        "reads format 1": {"about": changed({**about, "format": 2})},
        "this runtime reads": {"about": changed([1])},
        "Expecting value": {"about": np.frombuffer(b"?", np.uint8)},
        "claims 0 layers": {"about": changed({**about, "layers": 0})},
        "claims 1000000000 layers": {"about": changed({**about, "layers": 10**9})},
        "claims True layers": {"about": changed({**about, "layers": True})},
        "activation is 'eval'": {"about": changed({**about, "activation": "eval"})},
        r"activation is \[\]": {"about": changed({**about, "activation": []})},
        "obs_std is .*must be": {"obs_std": np.ones(5, f4)},
        "weight_1 is .*must be": {"weight_1": np.ones((16, 17), f4)},
        "weight_0 is .*must be": {"weight_0": np.ones((5, 16), f4)},
        "bias_1 is .*must be": {"bias_1": np.ones((16, 1), f4)},
        "obs_mean is .* of float64": {"obs_mean": np.ones(4)},
        "means have shapes": {"act_mean": np.ones((), f4)},
        "weight_2 holds numbers that are not finite": {"weight_2": np.full((16, 16), np.nan, f4)},
        "act_std holds": {"act_std": np.full(2, np.inf, f4)},
        "low holds": {"low": np.full(2, np.nan, f4)},
        "is negative": {"obs_std": -np.ones(4, f4)},
        "limit is negative": {"obs_limit": f4(-1)},
        "above the highest": {"low": np.full(2, 9, f4)},
        "must hold plain numbers": {"obs_mean": np.array(["a"] * 4)},
    }
    return {key: value for key, value in (arrays | changes[name]).items() if value is not None}


FAULTS = [
    *("no bias_1", "no about", "no activation", "reads format 1", "this runtime reads", "Expecting value"),
    *("claims 0 layers", "claims 1000000000 layers", "claims True layers", "activation is 'eval'"),
    *(r"activation is \[\]", "obs_std is .*must be", "weight_1 is .*must be", "weight_0 is .*must be"),
    *("bias_1 is .*must be", "obs_mean is .* of float64", "means have shapes", "act_std holds", "low holds"),
    *("weight_2 holds numbers that are not finite", "is negative", "limit is negative", "above the highest"),
    "must hold plain numbers",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tampered_file_is_refused_in_one_line(fault: str, file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", **tampered(fault, file))
    with pytest.raises(InvalidPolicy, match=fault) as caught:
        load(tmp_path / "p.npz")
    assert "\n" not in str(caught.value)
    assert "p.npz" in str(caught.value)


def test_files_of_other_kinds(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicy, match="no such file"):
        load(tmp_path / "absent.npz")
    with pytest.raises(InvalidPolicy, match="no such file"):
        load(tmp_path)
    for content in (b"", b"PK", b"not a zip", file.read_bytes()[:-30], file.read_bytes()[100:]):
        (tmp_path / "p.npz").write_bytes(content)
        with pytest.raises(InvalidPolicy, match="is damaged or no exported policy"):
            load(tmp_path / "p.npz")


def test_a_bomb_is_not_unpacked(file: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", **parts(file), more=np.zeros(10**7))
    with pytest.raises(InvalidPolicy, match="compressed, which an export's are not"):
        load(tmp_path / "bomb.npz")


def test_a_claim_of_more_than_there_is(file: Path, tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n"
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        archive.writestr("obs_mean.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16)
    with pytest.raises(InvalidPolicy, match=r"claims \(1000000000000,\) of float32; there are 16 bytes"):
        load(tmp_path / "p.npz")


def test_nothing_is_unpickled(file: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    np.savez(
        tmp_path / "p.npz", allow_pickle=True, **(parts(file) | {"obs_mean": np.array([Evil()] * 4, dtype=object)})
    )
    with pytest.raises(InvalidPolicy, match="must hold plain numbers"):
        load(tmp_path / "p.npz")
    assert not (tmp_path / "executed").exists()


def test_a_thousand_mutations_are_refused_or_act(file: Path, tmp_path: Path) -> None:
    rng, whole, path = np.random.default_rng(2), file.read_bytes(), tmp_path / "p.npz"
    refused = 0
    # Mostly in the headers, where it hurts: the last bytes are the zip's own list.
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


def test_what_numpy_writes_can_be_read_back() -> None:
    for array in (OBS, np.asfortranarray(OBS), np.float32(3), np.arange(3), OBS[:0]):
        file = io.BytesIO()
        np.save(file, array)
        content = file.getvalue()
        assert np.array_equal(runtime.read_array(io.BytesIO(content), len(content)), array)
