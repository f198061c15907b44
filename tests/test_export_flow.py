"""Exported policies of flow matching: both formats make the actions of torch from the same noise."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import Demonstrations, FlowMatching, Policy, Training, fit
from diffclone.cli.export import Export
from diffclone.deploy import export, export_arrays, memory, runtime
from diffclone.deploy.runtime import InvalidObservation, InvalidPolicy
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.fit import FitOptions
from diffclone.model import Batch, Dims, Losses, Method, Parts
from diffclone.nn import Denoiser
from diffclone.rng import Rng
from diffclone.shapes import Act, Floats, Obs
from diffclone.training.runs import train_run

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 4)).astype(np.float32)
OBS[:, 2] = 7  # constant
SIDE = RNG.choice([-1, 1], 200)
ACT = np.stack([SIDE, 5 - OBS[:, 1], np.full(200, 3)], 1).astype(np.float32)
BOUNDS = [[-0.5, 4.5, 0.0], [0.5, 5.4, 9.0]]
DEMOS = Demonstrations.from_arrays(OBS, ACT, episode_ends=[100, 200], meta={"action_bounds": BOUNDS})
FREE = Demonstrations.from_arrays(OBS, ACT, episode_ends=[100, 200])
BRIEF = Training(updates=60, batch=32, lr=1e-2)
FEW = Training(updates=2, batch=4)
BATCH = OBS[:9] + 100 * RNG.normal(size=(9, 4)).astype(np.float32) * (np.arange(9) > 4)[:, None]
"""Observations of the demonstrations, and some far beyond the clipping range."""


def flow(**settings: Any) -> FlowMatching:
    return replace(FlowMatching(training=BRIEF, width=16, depth=2), **settings)


POLICIES: dict[str, tuple[FlowMatching, Demonstrations]] = {
    "flow": (flow(), DEMOS),
    "one call, one layer": (flow(calls=1, depth=1), DEMOS),
    "unequal steps": (flow(calls=3), DEMOS),
    "most calls": (flow(calls=128), DEMOS),
    "shortcut": (flow(shortcut=0.25, calls=1), DEMOS),
    "shortcut, four calls": (flow(shortcut=0.25, calls=4), DEMOS),
    "unbounded": (flow(), FREE),
    "not normalised": (flow(normalisation="none"), DEMOS),
}
CHUNKS = flow(horizon=4, execute=3, history=2, shortcut=0.25, calls=2)


def drawn_noise(policy: Policy, rows: int, call: int = 0) -> Floats:
    """Return the noise that torch draws in a call."""
    rng = Rng([int(policy.members[0]["seed"])], path=f"act {call}")
    return rng["start"].normal(rows, policy.window_dims.act)[0].numpy()


def load_onnx(path: Path) -> export.ActFunction:
    pytest.importorskip("onnxruntime")
    return export.load_onnx(path)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return fit(flow(), DEMOS, seeds=(3,), device="cpu")


@pytest.fixture(scope="module")
def file(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "policy.npz"
    export.export(policy, path, "numpy")
    return path


# Actions.


@pytest.mark.parametrize("name", POLICIES)
def test_both_formats_give_the_actions_of_torch(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policies = fit(*POLICIES[name], seeds=(3, 4), device="cpu")
    for member in (0, 1):
        policy = policies[member]
        assert export.export(policy, tmp_path / f"{member}.onnx", "onnx") <= 1e-5
        assert export.export(policy, tmp_path / f"{member}.npz", "numpy") <= 1e-5
        noise, expected = drawn_noise(policy, len(BATCH)), policy(BATCH)
        from_onnx, from_numpy = load_onnx(tmp_path / f"{member}.onnx"), runtime.load(tmp_path / f"{member}.npz")
        for actions in (from_onnx(BATCH, noise), from_numpy(BATCH, noise)):
            assert actions.dtype == np.float32
            assert np.allclose(actions, expected, rtol=1e-5, atol=1e-5)
        for row in range(len(BATCH)):
            assert np.allclose(from_numpy(BATCH[row], noise[row]), expected[row], rtol=1e-5, atol=1e-5)
        assert from_numpy(BATCH[:0]).shape == (0, 3)
        assert from_numpy.about["format"] == 4
        assert from_numpy.about["calls"] == POLICIES[name][0].calls


def test_actions_depend_on_the_noise_and_stay_within_the_bounds(policy: Policy, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    export.export(policy, tmp_path / "p.onnx", "onnx")
    noise, (low, high) = RNG.standard_normal((9, 3), np.float32), np.array(BOUNDS, np.float32)
    for act in (load_onnx(tmp_path / "p.onnx"), runtime.load(file)):
        actions = act(BATCH, noise)
        assert np.all((actions >= low) & (actions <= high))
        assert np.any(actions == low)
        assert np.any(actions == high)
        assert not np.allclose(actions, act(BATCH, -noise))


def test_the_graph_has_an_input_for_noise(policy: Policy, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    export.export(policy, tmp_path / "p.onnx", "onnx")
    model = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert about["method"] == "flow-matching"
    assert about["calls"] == 8
    assert about["noise"] == "standard normal numbers, new ones in every call"
    ends = [*model.graph.input, *model.graph.output]
    shapes = {end.name: [d.dim_param or d.dim_value for d in end.type.tensor_type.shape.dim] for end in ends}
    assert shapes == {"observation": ["batch", 4], "noise": ["batch", 3], "action": ["batch", 3]}


def test_nan_stays_nan(policy: Policy, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    export.export(policy, tmp_path / "p.onnx", "onnx")
    nan = np.full((1, 4), np.nan, np.float32)
    assert np.isnan(load_onnx(tmp_path / "p.onnx")(nan, np.zeros((1, 3), np.float32))).all()
    for obs in (nan, nan[0]):
        with pytest.raises(InvalidObservation, match="the observation contains NaN"):
            runtime.load(file)(obs)


# Noise of the runtime.


def test_every_call_draws_new_noise_and_a_seed_repeats_it(policy: Policy, file: Path) -> None:
    # Two draws for one state are often equal, since most actions are clipped to a bound: many states are compared.
    small = runtime.load(file)
    assert not np.allclose([small(obs) for obs in OBS], [small(obs) for obs in OBS])
    assert not np.allclose(small(OBS), small(OBS))
    assert not np.allclose(small(OBS), runtime.load(file)(OBS))
    first, second = runtime.load(file, seed=5), runtime.load(str(file), 5)
    for obs in (BATCH, OBS[0], OBS[:0], BATCH):
        assert np.array_equal(first(obs), second(obs))
    assert not np.allclose(first(OBS), runtime.load(file, seed=6)(OBS))
    noise = np.random.default_rng(5).standard_normal((9, 3), np.float32)
    expected = export.act_from(policy, BATCH, noise)
    assert np.allclose(runtime.load(file, seed=5)(BATCH), expected, rtol=1e-5, atol=1e-5)


def test_drawn_actions_have_the_distribution_of_torch(tmp_path: Path) -> None:
    policy = fit(flow(width=32, training=Training(updates=400, batch=64, lr=3e-3)), FREE, device="cpu")
    export.export(policy, tmp_path / "p.npz", "numpy")
    obs = np.repeat(OBS[:1], 4000, 0)
    ours, theirs = runtime.load(tmp_path / "p.npz", seed=0)(obs), policy(obs)
    assert np.std(theirs[:, 0]) > 0.5  # two modes
    for level in (10, 50, 90):
        assert np.allclose(np.percentile(ours, level, 0), np.percentile(theirs, level, 0), atol=0.2)


@pytest.mark.parametrize(
    "noise", [np.zeros(3), np.zeros((9, 2)), np.zeros((1, 9, 3)), np.full((9, 3), np.nan), np.full((9, 3), np.inf)]
)
def test_wrong_noise_is_refused(file: Path, noise: Any) -> None:
    with pytest.raises(InvalidObservation, match=r"the noise has shape .*; expected finite numbers of shape \(9, 3\)"):
        runtime.load(file)(BATCH, noise)


def test_calls_do_not_change_the_noise(file: Path) -> None:
    noise = np.ones(3, np.float32)
    first = runtime.load(file)(OBS[0], noise)
    assert np.array_equal(noise, np.ones(3))
    assert np.array_equal(first, runtime.load(file)(OBS[0], noise))


def test_threads_can_share_a_policy(policy: Policy, file: Path) -> None:
    small, noise = runtime.load(file), RNG.standard_normal((200, 3), np.float32)
    expected = export.act_from(policy, OBS, noise)

    def ask(row: int) -> bool:
        small(OBS[:2])
        return all(np.allclose(small(OBS[row], noise[row]), expected[row], atol=1e-5) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


def test_the_module_alone_is_enough(file: Path, tmp_path: Path) -> None:
    (tmp_path / "runtime.py").write_bytes(Path(runtime.__file__).read_bytes())
    code = (
        "import sys; sys.path[:0] = ['.']; import runtime; "
        f"print(runtime.load({str(file)!r}, seed=1)({OBS[0].tolist()}).tolist()); "
        "assert not {'diffclone', 'torch', 'memory'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.allclose(json.loads(done.stdout), runtime.load(file, seed=1)(OBS[0]))


# Chunks and history.


def test_sessions_play_chunks(tmp_path: Path) -> None:
    policy = fit(CHUNKS, DEMOS, device="cpu")
    assert export.export(policy, tmp_path / "p.npz", "numpy") <= 1e-5
    small = runtime.load(tmp_path / "p.npz", seed=2)
    assert (small.observation_size, small.action_size) == (4, 3)
    with pytest.raises(InvalidObservation, match=r"policy\.session\(\)"):
        small(OBS[0])
    act, noise = small.session(), np.random.default_rng(2)
    found = [act(obs) for obs in OBS[:5]]
    windows = np.stack([OBS[[0, 0]].ravel(), OBS[[2, 3]].ravel()])  # a call every three steps
    plans = [export.act_from(policy, window[None], noise.standard_normal((1, 12), np.float32)) for window in windows]
    expected = np.concatenate([plan.reshape(4, 3)[:3] for plan in plans])[:5]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    act.reset()
    assert act(OBS[:5]).shape == (5, 3)


def test_the_graph_maps_windows_to_chunks(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = fit(CHUNKS, DEMOS, device="cpu")
    assert export.export(policy, tmp_path / "p.onnx", "onnx") <= 1e-5
    windows = OBS[:10].reshape(5, 2, 4)
    actions = load_onnx(tmp_path / "p.onnx")(windows.reshape(5, 8), drawn_noise(policy, 5))
    assert np.allclose(actions.reshape(5, 4, 3), policy.plan(windows), rtol=1e-5, atol=1e-5)


# Refused exports.


def test_sessions_of_the_graph_draw_their_noise(tmp_path: Path) -> None:
    small = fit(CHUNKS, DEMOS, device="cpu", progress=False)
    export.export(small, tmp_path / "policy.onnx", "onnx")
    export.export(small, tmp_path / "policy.npz", "numpy")
    graph, again = (memory.onnx_session(str(tmp_path / "policy.onnx"), seed=3) for _ in range(2))
    arrays = runtime.load(tmp_path / "policy.npz", seed=3).session()
    for obs in OBS[:8]:
        action = graph(obs)
        assert action.tolist() == again(obs).tolist()
        assert action == pytest.approx(arrays(obs), abs=1e-4)


@pytest.mark.parametrize("to", ["onnx", "numpy"])
def test_a_file_that_differs_is_not_written(
    policy: Policy, to: export.Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    encode, load = export.FORMATS[to]

    def encode_wrongly(policy: export.PolicyArrays) -> bytes:
        policy.layers[0][1][-1] += 0.01  # in the last step
        return encode(policy)

    monkeypatch.setitem(export.FORMATS, to, (encode_wrongly, load))
    monkeypatch.setattr(export_arrays, "to_numpy", lambda tensor: tensor.detach().numpy().copy())  # pyright: ignore
    with pytest.raises(InvalidFile, match=r"differs from torch by .* at most 1e-05 is allowed. .*was not written"):
        export.export(policy, tmp_path / "p", to)
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class OwnDenoising(Method[Denoiser]):
    """A method with the network of flow matching, but another way to act."""

    def init(self, dims: Dims, rng: Rng) -> Denoiser:
        return Denoiser(dims.act, 4, 8, 1, "sinusoidal", rng, condition=dims.obs)

    def loss(self, weights: Denoiser, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Losses((self.act(weights, batch.obs, rng) - batch.act).square().mean((-2, -1)))

    def act(self, weights: Denoiser, obs: Obs, rng: Rng) -> Act:
        rows, size = obs.shape[-2], weights.out.bias.shape[-1]
        return weights(rng["x"].normal(rows, size + obs.shape[-1]), rng["t"].integers(4, rows))


def test_other_methods_with_this_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"OwnDenoising cannot be exported: its action is not one call"):
        export.export(fit(OwnDenoising(training=FEW), DEMOS, device="cpu"), tmp_path / "p", "numpy")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train_run(run, flow(training=FEW), DEMOS, FitOptions(seeds=(0, 1), device="cpu"))
    Export(run, tmp_path / "p.npz", "numpy", member=1, action_bounds="0,1", json=True).run()
    assert json.loads(capsys.readouterr().out)["difference"] <= 1e-5
    small = runtime.load(tmp_path / "p.npz")
    assert small.about["member"] == {"seed": 1}
    actions = small(OBS)
    assert actions.min() >= 0
    assert actions.max() <= 1


# Invalid files.


def changed_file(file: Path, out: Path, about: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write the file with other values; None removes one."""
    with np.load(file, allow_pickle=False) as found:
        changed = dict(found) | arrays
    described = json.loads(changed["about"].tobytes()) | about
    text = json.dumps({key: value for key, value in described.items() if value is not None})
    changed["about"] = np.frombuffer(text.encode(), np.uint8)
    np.savez(out, **{key: value for key, value in changed.items() if value is not None})
    return out


F4 = np.float32


@pytest.mark.parametrize(
    ("error", "about", "arrays"),
    [
        ("reads the formats 1, 2, 3, 4; only the last has calls", {"calls": None}, {}),
        ("only the last has calls", {"format": 3}, {}),
        ("only the last has calls", {"format": 5}, {}),
        ("has 0 calls; expected 1 to 128", {"calls": 0}, {}),
        ("has 129 calls", {"calls": 129}, {"lengths": np.full(129, 1 / 129, F4)}),
        ("has 1000000000 calls", {"calls": 10**9}, {}),
        ("has True calls", {"calls": True}, {}),
        ("has '8' calls", {"calls": "8"}, {}),
        (r"has 8\.0 calls", {"calls": 8.0}, {}),
        (r"has \[8\] calls", {"calls": [8]}, {}),
        ("has 1 layers; expected 2 to 100", {"layers": 1}, {}),
        (r"lengths is \(8,\) of float32; expected \(7,\)", {"calls": 7}, {}),
        ("lengths is missing", {}, {"lengths": None}),
        (r"lengths is .* of float64", {}, {"lengths": np.full(8, 0.125)}),
        (r"lengths is \(\)", {}, {"lengths": F4(1)}),
        ("lengths contains values that are not finite", {}, {"lengths": np.full(8, np.nan, F4)}),
        ("lengths of its steps", {}, {"lengths": np.full(8, 0.5, F4)}),
        ("lengths of its steps", {}, {"lengths": np.array([-1, 2, 0, 0, 0, 0, 0, 0], F4)}),
        ("weight_0 is .*expected", {}, {"weight_0": np.zeros((4, 16), F4)}),
        ("weight_0 is .*expected", {}, {"weight_0": np.zeros((7, 17), F4)}),
        (r"bias_0 is \(16,\)|weight_0 is", {}, {"bias_0": np.zeros(16, F4)}),
        (r"bias_1 is \(7, 16\) .*expected \(8, 16\)", {}, {"bias_1": np.zeros((7, 16), F4)}),
        (r"weight_1 is|bias_1 is", {}, {"bias_1": np.zeros((), F4)}),
        (r"bias_1 is \(8, 16, 1\)", {}, {"bias_1": np.zeros((8, 16, 1), F4)}),
        (r"bias_2 is \(8, 3\)", {}, {"bias_2": np.zeros((8, 3), F4)}),
        ("bias_1 contains values that are not finite", {}, {"bias_1": np.full((8, 16), np.inf, F4)}),
        ("gain_0 is missing", {"layer_norm": True}, {}),
        ("not the settings of chunks", {"chunks": 3}, {}),
        ("not 3 and 1 equal steps", {"chunks": {"history": 3}}, {}),
    ],
)
def test_a_tampered_file_is_refused_in_one_line(
    file: Path, tmp_path: Path, error: str, about: dict[str, Any], arrays: dict[str, Any]
) -> None:
    out = changed_file(file, tmp_path / "p.npz", about, arrays)
    with pytest.raises(InvalidPolicy, match=error) as caught:
        runtime.load(out)
    assert "\n" not in str(caught.value)
    assert "p.npz" in str(caught.value)


def test_mutated_files_are_refused_or_act(file: Path, tmp_path: Path) -> None:
    rng, whole, path = np.random.default_rng(2), file.read_bytes(), tmp_path / "p.npz"
    refused = 0
    tail = len(whole) - 1200  # the zip directory
    for _ in range(500):
        content = bytearray(whole)
        for place in rng.integers(tail if rng.random() < 0.7 else 0, len(content), rng.integers(1, 5)):
            content[place] = rng.integers(256)
        path.write_bytes(content[: rng.integers(len(content))] if rng.random() < 0.1 else content)
        try:
            assert runtime.load(path)(OBS[0]).shape == (3,)
        except InvalidPolicy:
            refused += 1
    assert refused > 250


def test_mutated_descriptions_are_refused_or_act(file: Path, tmp_path: Path) -> None:
    values: list[Any] = [None, -1, 0, 1, 2, 3, 4, 129, 10**30, 0.5, "", "x", [], {}, [8], {"horizon": 3}, True]
    acted = 0
    for key in ("format", "layers", "activation", "calls", "chunks", "layer_norm", "residual", "noise", "method"):
        for value in values:
            out = changed_file(file, tmp_path / "p.npz", {key: value}, {})
            try:
                loaded = runtime.load(out)
            except InvalidPolicy:
                continue
            assert loaded.session()(OBS[0]).shape[-1] in (1, 3)
            acted += 1
    assert acted > 20
