import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Encoder, Network, Policy, Training, fit
from diffclone.cli.export import Export
from diffclone.deploy import export, runtime
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings, MissingPackage
from diffclone.methods import IBC, DiffusionPolicy, IBCLangevin
from diffclone.model import Method
from diffclone.training.runs import train_run

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 4)).astype(np.float32)
OBS[:, 2] = 7  # says nothing
ACT = np.stack([OBS[:, 0], 5 - OBS[:, 1], np.full(200, 3)], 1, dtype=np.float32)
BOUNDS = [[-0.5, 4.5, 0.0], [0.5, 5.4, 9.0]]
DEMOS = Demonstrations.from_arrays(OBS, ACT, episode_ends=[200], meta={"action_bounds": BOUNDS})
FREE = Demonstrations.from_arrays(OBS, ACT, episode_ends=[200])
IMAGE = (2, 40, 36)
PICTURES = Demonstrations.from_arrays(
    RNG.integers(0, 256, (40, 2 * 40 * 36), dtype=np.uint8), ACT[:40], episode_ends=[40], meta={"action_bounds": BOUNDS}
)
BRIEF = Training(updates=60, batch=32, lr=1e-2)
FEW = Training(updates=2, batch=4)
SMALL = Network(width=16, depth=2)
LOOKING = Network(width=16, depth=1, activation="relu", image=IMAGE)
BATCH = OBS[:9] + 100 * RNG.normal(size=(9, 4)).astype(np.float32) * (np.arange(9) > 4)[:, None]
"""The demonstrations' states, and some far beyond where they are cut."""

POLICIES: dict[str, tuple[Method[Any], Demonstrations]] = {
    "bc": (BC(training=BRIEF, network=SMALL), DEMOS),
    "unbounded": (BC(training=BRIEF, network=SMALL), FREE),
    "not normalised": (BC(training=BRIEF, network=SMALL, normalisation="none"), DEMOS),
    "linear": (BC(training=BRIEF, network=Network(depth=0)), DEMOS),
    "relu": (BC(training=BRIEF, network=Network(width=16, depth=3, activation="relu")), DEMOS),
    "leaky-relu": (BC(training=BRIEF, network=Network(width=16, depth=1, activation="leaky-relu")), DEMOS),
    "dbc": (DBC(training=BRIEF, network=SMALL, guide=DiffusionGuide(training=FEW, width=16, steps=10)), DEMOS),
}
LOOKERS: dict[str, tuple[Method[Any], Demonstrations]] = {
    "bc": (BC(training=FEW, network=LOOKING), PICTURES),
    "dbc": (
        DBC(
            training=FEW,
            network=Network(width=16, depth=1, image=IMAGE),
            guide=DiffusionGuide(training=FEW, width=16, steps=10),
            encoder=Encoder(training=FEW, network=LOOKING, features=4, pool=4),
        ),
        PICTURES,
    ),
}


def trained(method: Method[Any], demos: Demonstrations) -> Policy:
    return fit(method, demos, seeds=(3, 4), device="cpu")


def session(path: Path) -> Callable[[Any], Any]:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = onnxruntime.InferenceSession(str(path))
    return lambda obs: found.run(None, {"observation": obs})[0]


@pytest.mark.parametrize("name", POLICIES)
def test_both_files_act_as_torch_does(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = trained(*POLICIES[name])
    for member in (0, 1):
        found = export.export(policy[member], tmp_path / f"{member}.onnx", "onnx")
        assert found <= 1e-5
        assert export.export(policy[member], tmp_path / f"{member}.npz", "numpy") <= 1e-5
        from_onnx, from_numpy = session(tmp_path / f"{member}.onnx"), runtime.load(tmp_path / f"{member}.npz")
        expected = policy[member](BATCH)
        for answer in (from_onnx(BATCH), from_numpy(BATCH)):
            assert answer.dtype == np.float32
            assert np.allclose(answer, expected, rtol=1e-5, atol=1e-5)
        assert np.allclose(from_onnx(BATCH[:1])[0], from_numpy(BATCH[0]), rtol=1e-5, atol=1e-5)
    assert np.abs(policy[0](BATCH) - policy[1](BATCH)).max() > 1e-3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.npz", "0.onnx", "1.npz", "1.onnx"]


def test_bounds_are_inside(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = trained(*POLICIES["bc"])[0]
    export.export(policy, tmp_path / "p.onnx", "onnx")
    answer, (low, high) = session(tmp_path / "p.onnx")(BATCH), np.array(BOUNDS, np.float32)
    assert np.all((answer >= low) & (answer <= high))
    assert np.any(answer == low)
    assert np.any(answer == high)


@pytest.mark.parametrize("name", LOOKERS)
def test_pictures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = trained(*LOOKERS[name])[1]
    assert export.export(policy, tmp_path / "p.onnx", "onnx") <= 1e-5
    seen = PICTURES.obs[:5].astype(np.float32)
    assert np.allclose(session(tmp_path / "p.onnx")(seen), policy(seen), rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidSettings, match=r"looks at pictures.* Use --to onnx"):
        export.export(policy, tmp_path / "p.npz", "numpy")


def test_the_graph_is_sound_and_says_where_it_comes_from(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    export.export(trained(*POLICIES["dbc"])[1], tmp_path / "p.onnx", "onnx")
    model = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert about["method"] == "dbc"
    assert about["member"] == {"seed": 4}
    assert about["data"] == DEMOS.fingerprint
    shapes = [[d.dim_param or d.dim_value for d in end.type.tensor_type.shape.dim] for end in model.graph.input]
    assert shapes == [["batch", 4]]
    assert [end.name for end in model.graph.output] == ["action"]


def test_nan_stays_nan(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    export.export(trained(*POLICIES["bc"])[0], tmp_path / "p.onnx", "onnx")
    assert np.isnan(session(tmp_path / "p.onnx")(np.full((1, 4), np.nan, np.float32))).all()


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("ibc", IBC(training=FEW, network=SMALL)),
        ("ibc-langevin", IBCLangevin(training=FEW)),
        ("diffusion-policy", DiffusionPolicy(training=FEW, width=16, depth=2, steps=10, calls=2)),
    ],
)
@pytest.mark.parametrize("to", ["onnx", "numpy"])
def test_methods_of_many_calls_are_refused(name: str, method: Method[Any], to: export.Format, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=f"^{name} searches .* or samples it, .*in one call: bc and dbc"):
        export.export(fit(method, DEMOS, device="cpu"), tmp_path / "p", to)
    assert not list(tmp_path.iterdir())


def test_an_action_that_is_hardly_used_is_no_reason_to_refuse(tmp_path: Path) -> None:
    policy = trained(*POLICIES["not normalised"])[0]
    with torch.no_grad():
        out: Any = policy.net.out
        out.weight[..., 0] *= 1e-6
        out.bias[..., 0] *= 0
    assert export.export(policy, tmp_path / "p.npz", "numpy") <= 1e-5


# Nothing wrong is left behind.


@pytest.mark.parametrize("to", ["onnx", "numpy"])
def test_a_file_that_differs_is_not_written(to: export.Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    write, read = export.FORMATS[to]

    def wrong(plain: export.Plain) -> bytes:
        plain.layers[0][1][0] += 0.01
        return write(plain)

    monkeypatch.setitem(export.FORMATS, to, (wrong, read))
    policy = trained(*POLICIES["bc"])[0]
    monkeypatch.setattr(export, "array", lambda tensor: tensor.detach().numpy().copy())  # pyright: ignore
    with pytest.raises(InvalidFile, match=r"differs from torch by .* at most 1e-05 is allowed. .*was not written"):
        export.export(policy, tmp_path / "p", to)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, out = trained(*POLICIES["bc"])[0], tmp_path / "p.npz"
    out.write_text("mine")
    with pytest.raises(InvalidFile, match=r"p.npz exists already and is not overwritten"):
        export.export(policy, out, "numpy")
    out.unlink()

    def meanwhile(policy: Policy, exported: export.Acts) -> float:
        out.write_text("theirs")
        return 0.0

    monkeypatch.setattr(export, "difference", meanwhile)
    with pytest.raises(InvalidFile, match=r"p.npz exists already and is not overwritten"):
        export.export(policy, out, "numpy")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["theirs"]


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    policy = trained(*POLICIES["bc"])
    with torch.no_grad():
        next(policy.net.parameters())[1].fill_(float("nan"))
    export.export(policy[0], tmp_path / "p.npz", "numpy")
    with pytest.raises(InvalidSettings, match=r"the weights of {'seed': 4} are not finite"):
        export.export(policy[1], tmp_path / "q.npz", "numpy")
    with pytest.raises(InvalidSettings, match=r"2 members; choose one"):
        export.export(policy, tmp_path / "q.npz", "numpy")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if package == "onnxruntime":
        pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=r"pip install 'diffclone\[export\]'"):
        export.export(trained(*POLICIES["bc"])[0], tmp_path / "p.onnx", "onnx")
    assert not list(tmp_path.iterdir())


# The command.


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train_run(run, BC(training=FEW, network=SMALL), DEMOS, task=None, seeds=(0, 1), device="cpu")
    Export(run, tmp_path / "new" / "p.npz", "numpy", member=1, json=True).run()
    answer = json.loads(capsys.readouterr().out)
    assert answer["observations"] == 1000
    assert answer["difference"] <= 1e-5
    assert runtime.load(answer["out"]).about["member"] == {"seed": 1}
    Export(run, tmp_path / "q.npz", "numpy").run()
    assert "on 1000 observations" in capsys.readouterr().err
    with pytest.raises(DiffcloneError, match="has members 0 … 1; -1 was asked for"):
        Export(run, tmp_path / "r.npz", "numpy", member=-1).run()
