"""Chunks of actions and histories of observations: windows of the data, masked losses, memory, evaluation, files."""

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command, assert_error
from diffclone import BC, DBC, Demonstrations, Network, Policy, Training, evaluate, fit
from diffclone.data import Normaliser
from diffclone.deploy.memory import Chunks, Memory, advance, predict
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings
from diffclone.fit import FitOptions, fit_with_options
from diffclone.guides import GUIDES, DiffusionGuide
from diffclone.methods import IBC, METHODS, IBCLangevin
from diffclone.model import Batch, Dims, Method, Model, init_parts
from diffclone.nn.encoder import Encoder
from diffclone.nn.energy import Langevin
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.tasks import TASKS
from diffclone.tasks.batch import START_SEEDS
from diffclone.training.dynamics import learn_dynamics
from diffclone.training.runs import Run, train_run
from diffclone.training.step import Dataset
from diffclone.training.windows import Windows

BRIEF, SMALL = Training(updates=40, lr=1e-3, batch=32), Network(width=16, depth=1)
GUIDED = DBC(training=BRIEF, network=SMALL, guide=DiffusionGuide(training=BRIEF, width=16))


def demonstrations(lengths: tuple[int, ...] = (3, 2), size: int = 1, **meta: Any) -> Demonstrations:
    """Return demonstrations in which step k of the file has the observation k and the action 100 + k."""
    steps = np.arange(sum(lengths), dtype=np.float32)[:, None].repeat(size, 1)
    return Demonstrations.from_arrays(steps, 100 + steps, episode_ends=np.cumsum(lengths), meta=meta)


# Windows


def test_windows_stay_within_their_episode() -> None:
    demos = demonstrations((3, 2))
    windows = Windows.of(demos, Chunks(horizon=3, history=2), torch.device("cpu"))
    assert windows is not None
    steps = torch.arange(5)
    obs = windows.gather_obs(torch.tensor(demos.obs), steps)
    assert obs.tolist() == [[0, 0], [0, 1], [1, 2], [3, 3], [3, 4]]
    act, real = windows.gather_act(torch.tensor(demos.act), steps)
    assert real is not None
    assert act.tolist() == [[100, 101, 102], [101, 102, 102], [102, 102, 102], [103, 104, 104], [104, 104, 104]]
    assert real.int().tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]


def test_numbers_of_a_step_stay_together() -> None:
    demos = demonstrations((4,), size=2)
    windows = Windows.of(demos, Chunks(horizon=2, history=2), torch.device("cpu"))
    assert windows is not None
    act, real = windows.gather_act(torch.tensor(demos.act), torch.tensor([[3]]))
    assert act.tolist() == [[[103, 103, 103, 103]]]
    assert real is not None
    assert real.tolist() == [[[True, True, False, False]]]
    assert windows.gather_obs(torch.tensor(demos.obs), torch.tensor([[3]])).tolist() == [[[2, 2, 3, 3]]]


def test_a_window_of_one_step_is_the_step() -> None:
    demos = demonstrations((3, 2), size=2)
    obs, act = torch.tensor(demos.obs), torch.tensor(demos.act)
    edges = (torch.tensor([0, 0, 0, 3, 3]), torch.tensor([2, 2, 2, 4, 4]))
    plain = Dataset(obs, act).sample(16, Rng([0, 1])["batch"])
    windowed = Dataset(obs, act, Windows(1, 1, *edges)).sample(16, Rng([0, 1])["batch"])
    assert torch.equal(plain.obs, windowed.obs)
    assert torch.equal(plain.act, windowed.act)
    assert plain.real is windowed.real is None


def test_the_normaliser_of_windows_repeats_that_of_steps() -> None:
    steps = Normaliser.from_demonstrations(demonstrations((4, 4), size=2))
    windows = steps.windows(Chunks(horizon=3, history=2))
    obs, act = torch.rand(5, 2, 2), torch.rand(5, 3, 2)
    assert torch.equal(windows.normalise_obs(obs.flatten(1)), steps.normalise_obs(obs).flatten(1))
    assert torch.equal(windows.restore_act(act.flatten(1)), steps.restore_act(act).flatten(1))
    assert Dims(2, 2, steps.box).windows(Chunks(horizon=3, history=2)) == Dims(4, 6, windows.box)
    assert steps.windows(Chunks()) is steps


# Masked losses


def random_batch(real: torch.Tensor | None) -> Batch:
    random = torch.Generator().manual_seed(0)
    obs, act = (torch.randn(2, 8, size, generator=random) for size in (4, 6))
    return Batch(obs, act.clamp(-1, 1), real=real, imitated=torch.randn(2, 8, 6, generator=random))


def logs_of(model: Model[Any], real: torch.Tensor | None) -> dict[str, list[float]]:
    """Return the logged losses of a model with initial weights on a batch of windows."""
    dims, rng = Dims(4, 6), Rng([0, 1])
    losses = model.loss(model.init(dims, rng["init"]), random_batch(real), rng["loss"], init_parts(model, dims, rng))
    return {"loss": losses.total.tolist(), **{name: value.tolist() for name, value in losses.logs.items()}}


def brief(name: str) -> Method[Any]:
    chosen: dict[str, Any] = {
        "width": 16,
        "blocks": 1,
        "walks": 8,
        "training_walk": Langevin(steps=2),
        "network": SMALL,
    }
    cls = METHODS[name]
    fields = {f.name for f in dataclasses.fields(cls)}
    values = {key: value for key, value in chosen.items() if key in fields}
    if "network" in values and cls is IBC:
        values["network"] = Network(width=16, depth=1, activation="relu")
    if "guide" in fields:
        values["guide"] = DiffusionGuide(width=16, training=BRIEF)
    return cls(training=BRIEF, **values)


@pytest.mark.parametrize("name", METHODS)
def test_no_loss_where_nothing_is_real_and_the_usual_loss_where_everything_is(name: str) -> None:
    method, real = brief(name), torch.ones(2, 8, 6, dtype=torch.bool)
    assert logs_of(method, real) == logs_of(method, None)
    logs = logs_of(method, ~real)
    if "L_NCE" in logs:  # all counter-examples equal the expert's chunk: nothing can be told apart
        assert isinstance(method, IBC | IBCLangevin)
        np.testing.assert_allclose(logs["L_NCE"], math.log(1 + method.counter_examples), rtol=1e-5)
        return
    if "L_NLL" in logs:  # weights of a mixture add up to 1 apart from rounding
        np.testing.assert_allclose(logs["L_NLL"], 0, atol=1e-6)
        return
    masked = {key: value for key, value in logs.items() if key not in ("loss", "L_agent", "L_expert", "L_away")}
    assert masked
    assert all(value == [0.0, 0.0] for value in masked.values()), logs


@pytest.mark.parametrize("name", ["energy", "gan"])
def test_a_guide_cannot_tell_candidates_apart_by_padding(name: str) -> None:
    real = torch.zeros(2, 8, 6, dtype=torch.bool)
    if name == "energy":
        np.testing.assert_allclose(logs_of(GUIDES["energy"](), real)["L_NCE"], math.log(65), rtol=1e-5)
        return
    method = replace(GUIDED, guide=GUIDES["gan"]())
    dims, rng, batch = Dims(4, 6), Rng([0, 1]), random_batch(real)
    losses = method.loss(method.init(dims, rng["init"]), batch, rng["loss"], init_parts(method, dims, rng))
    assert losses.imitated is not None
    assert torch.equal(losses.imitated, batch.act)


@pytest.mark.parametrize("name", ["bc", "dbc", "diffusion-policy"])
def test_padded_actions_have_no_gradient(name: str) -> None:
    method, dims, rng = brief(name), Dims(4, 6), Rng([0, 1])
    real = torch.ones(2, 8, 6, dtype=torch.bool)
    real[..., 2:] = False  # only the first of three actions of two numbers is real
    weights = method.init(dims, rng["init"])
    losses = method.loss(weights, random_batch(real), rng["loss"], init_parts(method, dims, rng))
    losses.total.sum().backward()
    out: Any = weights.denoiser.out if name == "diffusion-policy" else weights.out
    assert bool((out.bias.grad[..., :2] != 0).any())
    assert not bool((out.bias.grad[..., 2:] != 0).any())


# Memory


def counting_plan(chunks: Chunks, calls: list[Any]) -> Any:
    """Return a policy whose chunk is 10 · (latest observation), + 1, + 2, …; it records the windows of its calls."""

    def plan(windows: Any, rows: Any) -> Any:
        calls.append((windows[..., 0].tolist(), rows.tolist()))
        return 10 * windows[:, -1:, :] + np.arange(chunks.horizon)[None, :, None]

    return plan


def play(chunks: Chunks, observations: list[list[float]], starts: dict[int, list[bool]] | None = None) -> Any:
    """Play observations (steps, rows) and return the actions (steps, rows) and the calls."""
    calls: list[Any] = []
    memory, actions = Memory.blank(chunks, len(observations[0]), 1, 1), list[list[float]]()
    for step, obs in enumerate(observations):
        start = None if not starts or step not in starts else np.array(starts[step])
        act, memory = advance(chunks, counting_plan(chunks, calls), np.array(obs)[:, None], memory, start)
        actions.append(act[:, 0].tolist())
    return actions, calls


def test_a_chunk_is_played_before_the_next_call() -> None:
    actions, calls = play(Chunks(horizon=4, execute=3, history=2), [[k] for k in range(1, 8)])
    assert actions == [[10], [11], [12], [40], [41], [42], [70]]
    assert [windows for windows, _ in calls] == [[[1, 1]], [[3, 4]], [[6, 7]]]


def test_rows_are_called_when_they_need_a_chunk() -> None:
    steps: list[list[float]] = [[1, 5], [2, 6], [3, 7], [4, 8]]
    actions, calls = play(Chunks(horizon=2, execute=2, history=2), steps, {1: [False, True]})
    assert actions == [[10, 50], [11, 60], [30, 61], [31, 80]]
    assert calls == [([[1, 1], [5, 5]], [0, 1]), ([[6, 6]], [1]), ([[2, 3]], [0]), ([[7, 8]], [1])]


@pytest.mark.parametrize("m", [0.5, -0.3, 0.0])
def test_an_ensemble_is_the_weighted_mean_of_all_predictions(m: float) -> None:
    chunks, values = Chunks(horizon=3, ensemble=m), [3.0, 1.0, 4.0, 1.0, 5.0]
    actions, calls = play(chunks, [[v] for v in values])
    assert len(calls) == len(values)
    for t, (action,) in enumerate(actions):
        ages = np.arange(min(t + 1, 3))
        expected = np.average([10 * values[t - k] + k for k in ages], weights=np.exp(m * ages))
        assert action == pytest.approx(expected, rel=1e-5)


def test_an_ensemble_with_large_weights_stays_finite() -> None:
    actions, _ = play(Chunks(horizon=5, ensemble=500.0), [[float(k)] for k in range(20)])
    assert np.isfinite(actions).all()


def test_memory_is_handed_back_and_never_changed() -> None:
    chunks, calls = Chunks(horizon=3, execute=2, history=2), list[Any]()
    _, memory = predict(chunks, counting_plan(chunks, calls), (1, 1), [1.0], None, None)
    before = [array.copy() for array in (memory.seen, memory.plan, memory.weight, memory.left)]
    first, again = (predict(chunks, counting_plan(chunks, calls), (1, 1), [2.0], memory, None) for _ in range(2))
    assert first[0].tolist() == again[0].tolist() == [11]
    for array, kept in zip((memory.seen, memory.plan, memory.weight, memory.left), before, strict=True):
        assert np.array_equal(array, kept)
    joined = Memory.join([memory, first[1]])
    assert len(joined) == 2
    assert np.array_equal(joined.take([1]).plan, first[1].plan)


# Settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"horizon": 0}, "at least 1; they are 0, 1, 1"),
        ({"horizon": 4, "execute": 5}, "execute is 5, but a call returns 4"),
        ({"horizon": 4, "execute": 2, "ensemble": 0.01}, "execute must be 1; it is 2"),
        ({"ensemble": 0.01}, "horizon must be above 1"),
        ({"horizon": 4, "ensemble": float("nan")}, "finite"),
        ({"horizon": 4}, "horizon is 4, but the longest episode has 3 steps \\(the shortest 2\\)"),
        ({"history": 4}, "history is 4, but the longest episode has 3 steps"),
        ({"horizon": 2000}, "at most 1000"),
    ],
)
def test_wrong_settings_are_refused_before_a_folder_is_made(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    method = BC(training=BRIEF, network=SMALL, **values)
    with pytest.raises(InvalidSettings, match=message):
        train_run(tmp_path / "run", method, demonstrations((3, 2)), FitOptions(device="cpu"))
    assert not (tmp_path / "run").exists()


def test_steps_that_are_not_consecutive_have_no_windows() -> None:
    demos = demonstrations((30, 30)).subsample(0.5, by="transition")
    other = demonstrations((30, 30))
    for data in (demos, other.joined(demos), other.joined(other.joined(demos))):
        with pytest.raises(InvalidSettings, match="not consecutive"):
            fit(BC(training=BRIEF, network=SMALL, history=2), data, device="cpu")
        assert learn_dynamics(data, torch.device("cpu")) is None


def test_settings_without_chunks_are_written_as_before() -> None:
    new = {"horizon", "execute", "history", "ensemble"}
    assert not new & set(to_dict(BC()))
    method = BC(horizon=8, execute=4, history=2)
    assert to_dict(method)["horizon"] == 8
    assert from_dict(METHODS, to_dict(method)) == method
    assert from_dict(METHODS, to_dict(BC(horizon=8, ensemble=0.01))) == BC(horizon=8, ensemble=0.01)


# Training and acting


def moving_demonstrations(seed: int = 0) -> Demonstrations:
    """Return demonstrations whose action repeats the last change of the observation: one observation is not enough."""
    rng = np.random.default_rng(seed)
    change = np.array([-1.0, 1.0] * 25)[:, None].repeat(5, 1)
    obs = rng.uniform(-5, 5, (50, 1)) + np.cumsum(change, 1)
    bounds = {"action_bounds": [[-1.0], [1.0]]}
    ends = np.arange(5, 251, 5)
    return Demonstrations.from_arrays(obs.reshape(-1, 1), change.reshape(-1, 1), episode_ends=ends, meta=bounds)


def test_a_history_shows_what_one_observation_does_not() -> None:
    training, demos, errors = Training(updates=300, lr=5e-3), moving_demonstrations(), list[float]()
    for history in (1, 2):
        policy = fit(BC(training=training, network=SMALL, history=history), demos, device="cpu")
        session, played = policy.session(), list[Any]()
        for k in range(5):  # all 50 episodes at once, step by step
            played.append(session(demos.obs[k::5]))
        errors.append(float(np.abs(np.stack(played, 1).reshape(-1, 1) - demos.act).reshape(50, 5)[:, 1:].mean()))
    assert errors[0] > 0.3
    assert errors[1] < 0.2


def test_a_chunk_predicts_the_actions_to_come() -> None:
    t = np.tile(np.arange(30), 4)
    obs, act = np.stack([np.sin(t / 5), np.cos(t / 5)], 1), np.sin(t / 5)[:, None]
    demos = Demonstrations.from_arrays(obs, act, episode_ends=[30, 60, 90, 120])
    method = BC(training=Training(updates=400, lr=5e-3), network=Network(width=32, depth=2), horizon=5)
    chunk = fit(method, demos, device="cpu").plan(demos.obs[:20, None])
    assert chunk.shape == (20, 5, 1)
    for k in range(5):
        np.testing.assert_allclose(chunk[:, k], demos.act[k : k + 20], atol=0.1)


@pytest.fixture(scope="module")
def guided() -> Policy:
    """Return two members with chunks, a history and a guide."""
    return fit(replace(GUIDED, horizon=4, execute=2, history=3), moving_demonstrations(), seeds=(0, 1), device="cpu")


@pytest.mark.parametrize("shape", [(3,), (2, 1), (2, 3, 2)])
def test_windows_of_a_wrong_shape_are_one_line(guided: Policy, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidData, match=r"windows have shape \(.*\); expected \(rows, 3, 1\)"):
        guided[0].plan(np.zeros(shape))


def test_a_plain_call_points_to_the_session(guided: Policy) -> None:
    with pytest.raises(InvalidSettings, match=r"policy\.session\(\)"):
        guided[0](np.zeros(1))
    with pytest.raises(InvalidData, match="2 members"):
        guided.predict(np.zeros(1))
    with pytest.raises(InvalidData, match=r"2 members; choose one: policy\[0\]\.plan"):
        guided.plan(np.zeros((1, 3, 1)))
    with pytest.raises(InvalidData, match="shape"):
        guided[0].predict(np.zeros(3))
    _, state = guided[0].predict(np.zeros((2, 1)))
    with pytest.raises(InvalidData, match="of 2 rows, the observation of 3"):
        guided[0].predict(np.zeros((3, 1)), state)
    with pytest.raises(InvalidData, match=r"episode_start has shape \(3,\); expected \(2,\)\."):
        guided[0].predict(np.zeros((2, 1)), state, np.ones(3, dtype=bool))
    with pytest.raises(InvalidData, match="NaN"):
        guided[0].predict(np.array([np.nan]))


def test_predict_hands_the_state_back_as_stable_baselines_does(guided: Policy) -> None:
    policy, obs = guided[0], moving_demonstrations().obs[:6]
    state, starts, rows = None, np.ones(2, dtype=bool), list[Any]()
    for row in obs:
        act, state = policy.predict(np.stack([row, row]), state, starts)
        rows.append(act)
        starts = np.array([False, len(rows) == 3])
    session = policy.session()
    straight = np.array([session(row) for row in obs])
    np.testing.assert_allclose(np.array(rows)[:, 0], straight, rtol=1e-5)
    session.reset()
    later = np.array([session(row) for row in obs[3:]])
    np.testing.assert_allclose(np.array(rows)[3:, 1], later, rtol=1e-5)
    plain = fit(BC(training=BRIEF, network=SMALL), moving_demonstrations(), device="cpu")
    assert plain.predict(obs)[1] is None
    assert np.array_equal(plain.session()(obs), plain(obs))


def test_a_policy_with_chunks_is_the_same_after_saving(guided: Policy, tmp_path: Path) -> None:
    guided.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    assert loaded.chunks == Chunks(4, 2, 3)
    assert repr(loaded) == "Policy(DBC, 2 members, obs 1, act 1, history 3, plays 2 of 4)"
    assert "act = policy[0].session()" in (tmp_path / "policy" / "README.md").read_text(encoding="utf-8")
    assert (loaded.dims.obs, loaded.dims.act) == (1, 1)
    for member in range(2):
        first, second = guided[member].session(), loaded[member].session()
        for obs in moving_demonstrations().obs[:3]:
            assert np.array_equal(first(obs), second(obs))
    config = json.loads((tmp_path / "policy" / "config.json").read_text())
    config["method"]["execute"] = 9
    (tmp_path / "policy" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidFile, match="execute is 9"):
        Policy.load(tmp_path / "policy")


def test_how_chunks_are_played_can_be_changed_without_training(guided: Policy) -> None:
    assert guided.acting(execute=4).chunks.execute == 4
    assert guided.acting(execute=1, ensemble=0.01).chunks.ensemble == 0.01
    with pytest.raises(InvalidSettings, match="execute is 5"):
        guided.acting(execute=5)
    with pytest.raises(InvalidSettings, match=r"ensemble must be a number or None; it is '0\.01'"):
        guided.acting(execute=1, ensemble="0.01")
    with pytest.raises(InvalidSettings, match="horizon cannot be changed"):
        guided.acting(horizon=2)


def test_the_guide_judges_windows_and_chunks(guided: Policy) -> None:
    assert guided.guide is not None
    assert guided.guide.cost(np.zeros((5, 3)), np.zeros((5, 4))).shape == (2, 5)
    with pytest.raises(InvalidData, match=r"expects \(3,\) and \(4,\)"):
        guided.guide.cost(np.zeros(1), np.zeros(1))


def test_a_run_with_chunks_resumes_and_keeps_its_guide(tmp_path: Path) -> None:
    method, demos = replace(GUIDED, horizon=4, history=2), moving_demonstrations()
    options = FitOptions(device="cpu", cache=tmp_path / "cache", held_out=moving_demonstrations(1))
    run = train_run(tmp_path / "run", method, demos, options)
    assert json.loads(run.records.read_text().splitlines()[0])["settings"]["horizon"] == 4
    loaded = Run(tmp_path / "run").policy()
    assert loaded.guide is not None
    window, chunk = np.zeros((3, 2)), np.zeros((3, 4))
    expected = fit_with_options(method, demos, FitOptions(device="cpu")).policy.guide
    assert expected is not None
    assert np.array_equal(loaded.guide.cost(window, chunk), expected.cost(window, chunk))
    # A guide of other windows is another guide in the cache.
    names = {path.name for path in (tmp_path / "cache").rglob("*.safetensors")}
    train_run(tmp_path / "other", replace(GUIDED, horizon=2, history=4), demos, options)
    assert names < {path.name for path in (tmp_path / "cache").rglob("*.safetensors")}


def test_images_are_stacked_over_the_history() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (40, 36 * 36), dtype=np.uint8)
    demos = Demonstrations.from_arrays(images, rng.normal(size=(40, 1)), episode_ends=[20, 40])
    network, brief = Network(width=16, depth=1, image=(1, 36, 36)), Training(updates=2, batch=4)
    method = DBC(
        training=brief,
        network=network,
        guide=DiffusionGuide(training=brief, width=16),
        encoder=Encoder(training=brief, network=network, features=4, pool=6),
        history=2,
        horizon=3,
    )
    policy = fit(method, demos, device="cpu")
    assert policy.plan(demos.obs[None, :2].astype(np.float32)).shape == (1, 3, 1)
    assert policy.guide is not None
    assert policy.guide.cost(np.zeros((1, 2 * 36 * 36)), np.zeros((1, 3))).shape == (1,)


# Evaluation


SHORT = replace(TASKS["maze"], horizon=60)


@pytest.fixture(scope="module")
def mover() -> Policy:
    method = BC(training=Training(updates=200, lr=5e-3), network=Network(width=32, depth=2), horizon=8, history=2)
    return fit(method, TASKS["maze"].demonstrations(), seeds=(0, 1), device="cpu")


@pytest.mark.parametrize("settings", [{"execute": 1}, {"execute": 3}, {"execute": 8}, {"ensemble": 0.1}])
def test_an_evaluated_episode_is_one_played_by_hand(mover: Policy, settings: dict[str, Any]) -> None:
    policy = mover.acting(**settings)
    scores = evaluate(policy, SHORT, episodes=6)
    one, env = np.zeros(1, dtype=np.int64), TASKS["maze"].make(1)
    for member, episode in ((0, 0), (1, 5)):
        session = policy[member].session()
        env.reset(one, [np.random.default_rng(START_SEEDS["evaluation"] + episode)])
        length, outcome = 0, None
        while outcome is None or not (outcome.ended[0] or length == SHORT.horizon):
            outcome = env.step(one, session(env.observe(one)))
            length += 1
        assert (bool(outcome.success[0]), length) == (scores.success[member, episode], scores.length[member, episode])
    env.close()


def test_the_policy_is_called_once_for_each_chunk(mover: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    act = Policy.act

    def count(self: Policy, obs: torch.Tensor, call: int) -> torch.Tensor:
        rows.append(obs.shape[-2])
        return act(self, obs, call)

    monkeypatch.setattr(Policy, "act", count)
    found = {}
    for execute in (1, 8):
        rows.clear()
        scores = evaluate(mover[0].acting(execute=execute), SHORT, episodes=4)
        found[execute] = (sum(rows), int(np.ceil(scores.length / execute).sum()))
    assert all(calls == expected for calls, expected in found.values()), found


def test_rows_that_restart_forget_their_episode(mover: Policy) -> None:
    task = replace(SHORT, environments_per_member=2)
    few, all_at_once = (evaluate(mover.acting(execute=5), t, episodes=5) for t in (task, SHORT))
    assert np.array_equal(few.length, all_at_once.length)
    assert np.array_equal(few.success, all_at_once.success)
    evaluate(mover[0].acting(execute=5), replace(SHORT, horizon=10), protocol="paper")


# The command line


def test_commands_with_chunks(diffclone: Command, tmp_path: Path) -> None:
    flags = ["--training.updates", "20", "--network.width", "16", "--horizon", "4", "--execute", "2", "--history", "2"]
    run = tmp_path / "run"
    result = diffclone("train", "maze", "--out", run, "--method", "bc", "--seeds", "1", "--device", "cpu", *flags)
    assert result.code == 0, result.err
    assert diffclone("evaluate", run, "--episodes", "2").code == 0
    wrong = ["--method", "bc", "--horizon", "4", "--execute", "5"]
    assert_error(diffclone("train", "maze", "--out", tmp_path / "other", *wrong), "execute is 5, but a call returns 4")
    assert not (tmp_path / "other").exists()
