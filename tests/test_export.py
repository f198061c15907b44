import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Encoder, Network, Policy, Training, fit
from diffclone.cli.export import Export
from diffclone.deploy import export, export_arrays, runtime
from diffclone.deploy.server import Server
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings, MissingPackage, install_command
from diffclone.fit import FitOptions
from diffclone.methods import IBC, DiffusionPolicy, IBCLangevin
from diffclone.model import Batch, Dims, Losses, Method, Parts
from diffclone.nn import PolicyNet, policy_net
from diffclone.rng import Rng
from diffclone.shapes import Act, Obs
from diffclone.training.runs import train_run

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 4)).astype(np.float32)
OBS[:, 2] = 7  # constant
ACT = np.stack([OBS[:, 0], 5 - OBS[:, 1], np.full(200, 3)], 1, dtype=np.float32)
BOUNDS = [[-0.5, 4.5, 0.0], [0.5, 5.4, 9.0]]
DEMOS = Demonstrations.from_arrays(OBS, ACT, episode_ends=[200], meta={"action_bounds": BOUNDS})
FREE = Demonstrations.from_arrays(OBS, ACT, episode_ends=[200])
IMAGE = (2, 40, 36)
IMAGES = Demonstrations.from_arrays(
    RNG.integers(0, 256, (40, 2 * 40 * 36), dtype=np.uint8), ACT[:40], episode_ends=[40], meta={"action_bounds": BOUNDS}
)
BRIEF = Training(updates=60, batch=32, lr=1e-2)
FEW = Training(updates=2, batch=4)
SMALL = Network(width=16, depth=2)
IMAGE_NETWORK = Network(width=16, depth=1, activation="relu", image=IMAGE)
BATCH = OBS[:9] + 100 * RNG.normal(size=(9, 4)).astype(np.float32) * (np.arange(9) > 4)[:, None]
"""Observations of the demonstrations, and some far beyond the clipping range."""

RESIDUAL = Network(width=16, depth=3, activation="silu", layer_norm=True, residual=True)
POLICIES: dict[str, tuple[Method[Any], Demonstrations]] = {
    "bc": (BC(training=BRIEF, network=SMALL), DEMOS),
    "unbounded": (BC(training=BRIEF, network=SMALL), FREE),
    "not normalised": (BC(training=BRIEF, network=SMALL, normalisation="none"), DEMOS),
    "linear": (BC(training=BRIEF, network=Network(depth=0)), DEMOS),
    "relu": (BC(training=BRIEF, network=Network(width=16, depth=3, activation="relu")), DEMOS),
    "leaky-relu": (BC(training=BRIEF, network=Network(width=16, depth=1, activation="leaky-relu")), DEMOS),
    "silu": (BC(training=BRIEF, network=Network(width=16, depth=2, activation="silu", residual=True)), DEMOS),
    "gelu": (BC(training=BRIEF, network=Network(width=16, depth=2, activation="gelu", layer_norm=True)), DEMOS),
    "residual": (BC(training=BRIEF, network=RESIDUAL), DEMOS),
    "dbc": (DBC(training=BRIEF, network=SMALL, guide=DiffusionGuide(training=FEW, width=16, steps=10)), DEMOS),
}
IMAGE_POLICIES: dict[str, tuple[Method[Any], Demonstrations]] = {
    "bc": (BC(training=FEW, network=IMAGE_NETWORK), IMAGES),
    "dbc": (
        DBC(
            training=FEW,
            network=replace(RESIDUAL, image=IMAGE),
            guide=DiffusionGuide(training=FEW, width=16, steps=10),
            encoder=Encoder(training=FEW, network=IMAGE_NETWORK, features=4, pool=4),
        ),
        IMAGES,
    ),
}


def train(method: Method[Any], demos: Demonstrations) -> Policy:
    return fit(method, demos, seeds=(3, 4), device="cpu")


def load_onnx(path: Path) -> Callable[[Any], Any]:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = onnxruntime.InferenceSession(str(path))
    return lambda obs: found.run(None, {"observation": obs})[0]


@pytest.mark.parametrize("name", POLICIES)
def test_both_formats_give_the_actions_of_torch(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = train(*POLICIES[name])
    for member in (0, 1):
        found = export.export(policy[member], tmp_path / f"{member}.onnx", "onnx")
        assert found <= 1e-5
        assert export.export(policy[member], tmp_path / f"{member}.npz", "numpy") <= 1e-5
        from_onnx, from_numpy = load_onnx(tmp_path / f"{member}.onnx"), runtime.load(tmp_path / f"{member}.npz")
        expected = policy[member](BATCH)
        for actions in (from_onnx(BATCH), from_numpy(BATCH)):
            assert actions.dtype == np.float32
            assert np.allclose(actions, expected, rtol=1e-5, atol=1e-5)
        assert np.allclose(from_onnx(BATCH[:1])[0], from_numpy(BATCH[0]), rtol=1e-5, atol=1e-5)
    assert np.abs(policy[0](BATCH) - policy[1](BATCH)).max() > 1e-3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.npz", "0.onnx", "1.npz", "1.onnx"]


def test_actions_are_clipped_to_the_bounds(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = train(*POLICIES["bc"])[0]
    export.export(policy, tmp_path / "p.onnx", "onnx")
    actions, (low, high) = load_onnx(tmp_path / "p.onnx")(BATCH), np.array(BOUNDS, np.float32)
    assert np.all((actions >= low) & (actions <= high))
    assert np.any(actions == low)
    assert np.any(actions == high)


@pytest.mark.parametrize("name", IMAGE_POLICIES)
def test_images(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = train(*IMAGE_POLICIES[name])[1]
    assert export.export(policy, tmp_path / "p.onnx", "onnx") <= 1e-5
    images = IMAGES.obs[:5].astype(np.float32)
    assert np.allclose(load_onnx(tmp_path / "p.onnx")(images), policy(images), rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidSettings, match=r"no convolutions.* Use --to onnx"):
        export.export(policy, tmp_path / "p.npz", "numpy")


def test_the_graph_is_valid_and_has_metadata(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    export.export(train(*POLICIES["dbc"])[1], tmp_path / "p.onnx", "onnx")
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
    export.export(train(*POLICIES["bc"])[0], tmp_path / "p.onnx", "onnx")
    assert np.isnan(load_onnx(tmp_path / "p.onnx")(np.full((1, 4), np.nan, np.float32))).all()


@pytest.mark.parametrize("name", ["bc", "not normalised"])
def test_infinity_is_clipped_or_no_action_is_defined(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = train(*POLICIES[name])[0]
    for to in ("onnx", "numpy"):
        export.export(policy, tmp_path / to, to)
    from_onnx, from_numpy = load_onnx(tmp_path / "onnx"), runtime.load(tmp_path / "numpy")
    obs = OBS[:2].copy()
    obs[0, 0] = np.inf
    if name == "bc":
        assert np.allclose(from_onnx(obs), policy(obs), atol=1e-5)
        assert np.allclose(from_numpy(obs), policy(obs), atol=1e-5)
        return
    assert np.isnan(from_onnx(obs)).all(1).tolist() == [True, False]
    for given in (obs, obs[0]):
        with pytest.raises(runtime.InvalidObservation, match="the observation contains NaN or infinity"):
            from_numpy(given)
    assert np.allclose(from_numpy(OBS[0]), policy(OBS[0]), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("ibc", IBC(training=FEW, network=SMALL)),
        ("ibc-langevin", IBCLangevin(training=FEW)),
        ("diffusion-policy", DiffusionPolicy(training=FEW, width=16, depth=2, steps=10, calls=2)),
    ],
)
@pytest.mark.parametrize("to", ["onnx", "numpy"])
def test_methods_that_search_or_sample_are_refused(
    name: str, method: Method[Any], to: export.Format, tmp_path: Path
) -> None:
    with pytest.raises(
        InvalidSettings, match=f"^{name} cannot be exported: its action is not one call.* or Euler steps as"
    ):
        export.export(fit(method, DEMOS, device="cpu"), tmp_path / "p", to)
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class OwnMethod(Method[PolicyNet]):
    """A method that is not registered."""

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        return policy_net(dims.obs, dims.act, SMALL, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Losses((weights(batch.obs) - batch.act).abs().mean((-2, -1)))

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        return weights(obs)


def test_an_unregistered_method_is_saved_and_exported(tmp_path: Path) -> None:
    policy = train(OwnMethod(training=FEW), DEMOS)[0]
    policy.save(tmp_path / "policy")
    assert np.array_equal(Policy.load(tmp_path / "policy")(BATCH), policy(BATCH))
    assert "# test_export:OwnMethod policy" in (tmp_path / "policy" / "README.md").read_text(encoding="utf-8")
    assert export.export(policy, tmp_path / "p.npz", "numpy") <= 1e-5
    assert runtime.load(tmp_path / "p.npz").about["method"] == "test_export:OwnMethod"
    assert Server(policy).about()["method"] == "test_export:OwnMethod"


def test_rounding_errors_of_tiny_actions_are_tolerated(tmp_path: Path) -> None:
    policy = train(*POLICIES["not normalised"])[0]
    with torch.no_grad():
        out: Any = policy.net.out
        out.weight[..., 0] *= 1e-6
        out.bias[..., 0] *= 0
    assert export.export(policy, tmp_path / "p.npz", "numpy") <= 1e-5


# Errors leave no file behind.


@pytest.mark.parametrize("to", ["onnx", "numpy"])
def test_a_file_that_differs_is_not_written(to: export.Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    encode, load = export.FORMATS[to]

    def encode_wrongly(policy: export.PolicyArrays) -> bytes:
        policy.layers[0][1][0] += 0.01
        return encode(policy)

    monkeypatch.setitem(export.FORMATS, to, (encode_wrongly, load))
    policy = train(*POLICIES["bc"])[0]
    monkeypatch.setattr(export_arrays, "to_numpy", lambda tensor: tensor.detach().numpy().copy())  # pyright: ignore
    with pytest.raises(InvalidFile, match=r"differs from torch by .* at most 1e-05 is allowed. .*was not written"):
        export.export(policy, tmp_path / "p", to)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, out = train(*POLICIES["bc"])[0], tmp_path / "p.npz"
    out.write_text("mine")
    with pytest.raises(InvalidFile, match=r"p.npz exists already and is not overwritten"):
        export.export(policy, out, "numpy")
    out.unlink()

    def create_file(policy: Policy, exported: export.ActFunction) -> float:
        out.write_text("theirs")
        return 0.0

    monkeypatch.setattr(export, "largest_difference", create_file)
    with pytest.raises(InvalidFile, match=r"p.npz exists already and is not overwritten"):
        export.export(policy, out, "numpy")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["theirs"]


def test_diverged_members_are_refused(tmp_path: Path) -> None:
    policy = train(*POLICIES["bc"])
    with torch.no_grad():
        next(policy.net.parameters())[1].fill_(float("nan"))
    export.export(policy[0], tmp_path / "p.npz", "numpy")
    with pytest.raises(InvalidSettings, match=r"the weights of member {'seed': 4} are not finite"):
        export.export(policy[1], tmp_path / "q.npz", "numpy")
    with pytest.raises(InvalidSettings, match=r"2 members; export one of them"):
        export.export(policy, tmp_path / "q.npz", "numpy")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if package == "onnxruntime":
        pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=re.escape(install_command("export"))):
        export.export(train(*POLICIES["bc"])[0], tmp_path / "p.onnx", "onnx")
    assert not list(tmp_path.iterdir())


# The command.


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train_run(run, BC(training=FEW, network=SMALL), DEMOS, FitOptions(seeds=(0, 1), device="cpu"))
    Export(run, tmp_path / "new" / "p.npz", "numpy", member=1, json=True).run()
    printed = json.loads(capsys.readouterr().out)
    assert printed["observations"] == 1000
    assert printed["difference"] <= 1e-5
    assert runtime.load(printed["out"]).about["member"] == {"seed": 1}
    Export(run, tmp_path / "q.npz", "numpy").run()
    assert "on 1000 observations" in capsys.readouterr().err
    with pytest.raises(DiffcloneError, match="member 2 does not exist; the policy has members 0 to 1"):
        Export(run, tmp_path / "r.npz", "numpy", member=2).run()
