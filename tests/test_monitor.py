import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import (
    BC,
    BCGMM,
    DBC,
    Demonstrations,
    DiffusionGuide,
    Encoder,
    EnergyGuide,
    Network,
    Normaliser,
    Policy,
    Training,
    fit,
)
from diffclone.data.layout import Layout
from diffclone.deploy.calibration import Rule, calibrate, find_thresholds
from diffclone.deploy.monitor import CALIBRATION, WEIGHTS, EpisodeMonitor, Monitor
from diffclone.deploy.monitors import (
    SCORES,
    DisagreementScore,
    GuideScore,
    LogpZOScore,
    NearestScore,
    PairScore,
    RNDScore,
)
from diffclone.deploy.monitors.base import BATCH, Context, FittedScore
from diffclone.deploy.monitors.calibrated import Calibration
from diffclone.deploy.monitors.thresholds import Threshold
from diffclone.errors import DiffcloneError, InvalidData, InvalidFile, InvalidSettings
from diffclone.model import Dims, Model, init_parts
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict

OBS, ACT = 3, 2
GUIDE = DiffusionGuide(width=16, depth=2, steps=50)
DEMOS = Demonstrations.from_arrays(
    np.random.default_rng(0).normal(2, 3, (60, OBS)),
    np.random.default_rng(1).uniform(-1, 1, (60, ACT)),
    episode_ends=[20, 25, 60],
)
EPISODES = Demonstrations.from_arrays(
    np.random.default_rng(2).normal(2, 3, (160, OBS)),
    np.random.default_rng(3).uniform(-1, 1, (160, ACT)),
    episode_ends=range(8, 161, 8),
)
NORMALISER = Normaliser.from_demonstrations(DEMOS)
METHOD = DBC(guide=GUIDE, network=Network(width=8, depth=1))
SMALL = Training(updates=8, lr=1e-3)
QUICK: dict[str, PairScore[Any]] = {
    "nearest": NearestScore(),
    "guide": GuideScore(levels=4),
    "rnd": RNDScore(SMALL, Network(width=8, depth=1), 4),
    "logpzo": LogpZOScore(SMALL, width=8, depth=1, calls=3),
    "disagreement": DisagreementScore(),
}


def weights(seed: int = 0, guide: DiffusionGuide = GUIDE) -> Diffusion:
    return guide.init(Dims(OBS, ACT), Rng([seed])["init"])


def constant(value: float) -> Diffusion:
    """Return a denoiser with a constant output."""
    net = weights()
    with torch.no_grad():
        net.denoiser.out.weight.zero_()
        net.denoiser.out.bias.fill_(value)
    return net


def make_context(net: Diffusion | None = None, method: Model[Any] = METHOD) -> Context:
    members = METHOD.init(Dims(OBS, ACT), Rng([0, 1, 2])["init"])
    return Context(method, NORMALISER, {"guide": net or weights()}, members)


def make_monitor(*names: str, net: Diffusion | None = None, training: Demonstrations | None = DEMOS) -> Monitor:
    context = make_context(net)
    pairs = None if training is None else context.pairs(training)
    return Monitor(context, [FittedScore.fit(name, QUICK[name], context, pairs) for name in names])


def plain_guide(net: Diffusion | None = None, levels: int = 32, method: Model[Any] = METHOD) -> Monitor:
    context = make_context(net, method)
    return Monitor(context, [FittedScore.fit("guide", GuideScore(levels=levels), context, None)])


def calibrated(monitor: Monitor, alpha: float = 0.2, **rule: Any) -> Monitor:
    chosen = dataclasses.replace(Rule(threshold="constant", window=1), **rule)
    return dataclasses.replace(monitor, calibration=find_thresholds(monitor, EPISODES, alpha, chosen))


# The guide's score.


def test_draws_are_stratified_with_noise_of_both_signs() -> None:
    monitor, levels = plain_guide(), 32
    t, eps, _ = GuideScore().draw(monitor.scores[0].weights, monitor.context, OBS + ACT)  # pyright: ignore[reportArgumentType]
    assert t.shape == (2 * levels,)
    assert torch.equal(t[:levels], t[levels:])
    assert torch.equal(eps[:levels], -eps[levels:])
    parts = (t[:levels].double() + 1) / GUIDE.steps * levels
    assert bool((parts - torch.arange(levels) > 0).all())
    assert bool((parts - torch.arange(levels) < 1 + 2 * levels / GUIDE.steps).all())
    some = FittedScore.fit("guide", GuideScore(low=0.4, high=0.6), monitor.context, None)
    t = GuideScore(low=0.4, high=0.6).draw(some.weights, monitor.context, OBS + ACT)[0]  # pyright: ignore[reportArgumentType]
    assert int(t.min()) >= 20
    assert int(t.max()) < 30


def test_guide_score_of_a_constant_denoiser() -> None:
    # With ε and −ε the cross terms cancel: mean of (±ε − c)² = ε² + c².
    monitor = plain_guide(constant(0.5))
    eps = GuideScore().draw(monitor.scores[0].weights, monitor.context, OBS + ACT)[1]  # pyright: ignore[reportArgumentType]
    squares = eps[:32].double().square().mean(0).numpy()
    score = monitor.score(DEMOS.obs[0], DEMOS.act[0])
    assert score.state == pytest.approx(squares[:OBS].mean() + 0.25, rel=1e-5)
    assert score.action == pytest.approx(squares[OBS:].mean() + 0.25, rel=1e-5)
    assert score.both == pytest.approx(squares.mean() + 0.25, rel=1e-5)


def test_guide_score_is_standardised_per_level() -> None:
    monitor, plain = make_monitor("guide"), plain_guide(levels=4)
    score = monitor.score(DEMOS.obs, DEMOS.act)
    for part in ("state", "action", "both"):
        assert getattr(score, part).mean() == pytest.approx(0, abs=1e-6)
    s, a = next(monitor.context.batches(DEMOS.obs, DEMOS.act))
    errors = QUICK["guide"].errors(plain.scores[0].weights, plain.context, s, a)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    expected = (errors - errors.mean(1, keepdim=True)) / errors.std(1, keepdim=True)  # pyright: ignore[reportUnknownMemberType]
    np.testing.assert_allclose(score.both, expected[2].mean(-1).detach().numpy())  # pyright: ignore[reportUnknownMemberType]


def test_images_are_scored_by_their_features() -> None:
    encoder = Encoder(network=Network(width=8, depth=1, activation="relu", image=(1, 36, 36)), features=4, pool=6)
    method = DBC(guide=GUIDE, encoder=encoder)
    rng = np.random.default_rng(0)
    demos = Demonstrations.from_arrays(
        rng.integers(0, 256, (12, 36 * 36)).astype(np.uint8), rng.normal(size=(12, ACT)), episode_ends=[12]
    )
    context = Context(method, Normaliser.from_demonstrations(demos), init_parts(method, Dims(36 * 36, ACT), Rng([0])))
    assert context.encodes
    monitor = Monitor(context, [FittedScore.fit("nearest", NearestScore(), context, context.pairs(demos))])
    assert monitor.scores[0].weights.state_dict()["x"].shape == (12, 4 + ACT)
    assert monitor.score(demos.obs, demos.act).both.shape == (12,)
    assert any(name.startswith("parts.encoder") for name in monitor.tensors())
    guide = Monitor(context, [FittedScore.fit("guide", GuideScore(), context, None)]).score(demos.obs, demos.act)
    np.testing.assert_allclose(guide.both, (4 * guide.state + ACT * guide.action) / (4 + ACT))


# The other scores.


def test_nearest_is_the_distance_to_the_kth_pair() -> None:
    context = make_context()
    fitted = FittedScore.fit("nearest", NearestScore(k=3, action_weight=0.5), context, context.pairs(DEMOS))
    s, a = next(context.batches(EPISODES.obs[:9], EPISODES.act[:9]))
    known = context.pairs(DEMOS)
    x, y = (torch.cat([u, 0.5 * v], -1).double() for u, v in ((s, a), (known.obs, known.act)))
    expected = ((x[:, None] - y[None]).square().mean(-1).sqrt()).sort(-1).values[:, 2]
    np.testing.assert_allclose(fitted.score(context, s, a)[0].numpy(), expected.numpy(), rtol=1e-6)


def test_nearest_keeps_a_bounded_number_of_pairs_and_small_distances_have_all_digits() -> None:
    context = make_context()
    fitted = FittedScore.fit("nearest", NearestScore(k=1, limit=20), context, context.pairs(DEMOS))
    kept = fitted.weights.state_dict()["x"]
    assert kept.shape == (20, OBS + ACT)
    assert len(kept.unique(dim=0)) == 20
    near = kept + 1e-6
    found = fitted.score(context, near[:, :OBS], near[:, OBS:])[0]
    np.testing.assert_allclose(found.numpy(), 1e-6, rtol=0.2)


def test_disagreement_is_the_spread_of_the_members() -> None:
    monitor = make_monitor("disagreement")
    s, _ = next(monitor.context.batches(DEMOS.obs, DEMOS.act))
    net: Any = monitor.context.net
    with torch.no_grad():
        actions = METHOD.act(net, s.expand(3, -1, -1), Rng([0, 1, 2])).double().numpy()
    np.testing.assert_allclose(monitor.score(DEMOS.obs, DEMOS.act).both, actions.std(0, ddof=1).mean(-1), rtol=1e-5)
    one = dataclasses.replace(monitor.context, net=METHOD.init(Dims(OBS, ACT), Rng([0])["init"]))
    with pytest.raises(InvalidSettings, match=r"needs at least 2 members; the policy has 1\. Train more: --seeds 5"):
        FittedScore.fit("disagreement", DisagreementScore(), one, None)


def test_disagreement_of_members_that_sample_does_not_depend_on_the_row() -> None:
    method = BCGMM(network=Network(width=8, depth=1), low_noise=False)
    net = method.init(Dims(OBS, ACT), Rng([0, 1, 2])["init"])
    context = Context(method, NORMALISER, {}, net)
    monitor = Monitor(context, [FittedScore.fit("disagreement", DisagreementScore(), context, None)])
    together = monitor.values(DEMOS.obs, DEMOS.act)["both"]
    for k in (0, 7, 59):
        assert monitor.values(DEMOS.obs[k], DEMOS.act[k])["both"] == together[k]
    assert len(np.unique(together)) == len(together)


def test_a_latent_is_found_by_euler_steps() -> None:
    # With v = x₀ constant, every number of steps leads to z = x − x₀.
    context = make_context()
    pairs = context.pairs(DEMOS)
    for calls in (1, 4):
        fitted = FittedScore.fit("logpzo", dataclasses.replace(QUICK["logpzo"], calls=calls), context, pairs)
        with torch.no_grad():
            fitted.weights.get_parameter("out.weight").zero_()
            fitted.weights.get_parameter("out.bias").fill_(0.5)
        x = torch.cat([pairs.obs, pairs.act], -1).double()
        found = fitted.score(context, pairs.obs, pairs.act)[0]
        np.testing.assert_allclose(found.numpy(), (x - 0.5).square().mean(-1).numpy(), rtol=1e-4)


@pytest.mark.parametrize("name", ["nearest", "rnd", "logpzo"])
def test_fitted_scores_are_higher_far_from_the_demonstrations(name: str) -> None:
    training = Training(updates=160, batch=32, lr=1e-2, clip=None)
    long = {"rnd": RNDScore(training, Network(width=32, depth=2)), "logpzo": LogpZOScore(training, width=32)}
    context = make_context()
    fitted = FittedScore.fit(name, long.get(name, QUICK[name]), context, context.pairs(DEMOS))
    monitor = Monitor(context, [fitted])
    near, far = monitor.score(DEMOS.obs, DEMOS.act).both, monitor.score(4 * DEMOS.obs + 9, -4 * DEMOS.act).both
    assert np.quantile(far, 0.1) > np.quantile(near, 0.9)


def test_the_target_of_the_distillation_is_not_trained() -> None:
    first, again, longer = (
        FittedScore.fit("rnd", RNDScore(Training(updates=n), Network(width=8, depth=1), 4), c, c.pairs(DEMOS))
        for n, c in ((8, make_context()), (8, make_context()), (16, make_context()))
    )
    tensors = [f.weights.state_dict() for f in (first, again, longer)]
    assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])  # named streams
    for key, tensor in tensors[0].items():
        assert torch.equal(tensor, tensors[2][key]) == key.startswith("target")


# All scores.


@pytest.mark.parametrize("name", list(QUICK))
def test_scores_are_equal_alone_and_in_a_batch(name: str) -> None:
    monitor, again = make_monitor(name), make_monitor(name)
    rows = np.tile(DEMOS.obs, (6, 1)), np.tile(DEMOS.act, (6, 1))
    assert len(rows[0]) > BATCH
    first, second = monitor.score(*rows), again.score(*rows)
    assert np.array_equal(first.both, second.both)
    assert first.both.shape == (360,)
    assert first.both.dtype == np.float64
    one = monitor.score(rows[0][5], rows[1][5])
    assert one.both.shape == ()
    assert float(one.both) == pytest.approx(first.both[5], rel=1e-4, abs=1e-6)
    assert monitor.fingerprint == again.fingerprint
    assert monitor.score(np.zeros((0, OBS)), np.zeros((0, ACT))).both.shape == (0,)
    assert np.isnan(monitor.score(np.full((2, OBS), np.nan), np.zeros((2, ACT))).both).all()


@pytest.mark.parametrize("name", list(QUICK))
@pytest.mark.parametrize("rule", [{}, {"threshold": "band", "window": 3}])
def test_saving_and_loading(name: str, rule: dict[str, Any], tmp_path: Path) -> None:
    monitor = calibrated(make_monitor(name), **rule)
    monitor.save(tmp_path)
    loaded = Monitor.load(tmp_path, METHOD, NORMALISER)
    assert loaded.calibration == monitor.calibration
    assert [fitted.settings for fitted in loaded.scores] == [QUICK[name]]
    ours, theirs = (m.score_episodes(EPISODES) for m in (monitor, loaded))
    assert np.array_equal(ours.both, theirs.both)
    assert ours.alarm is not None
    assert theirs.alarm is not None
    assert np.array_equal(ours.alarm.both, theirs.alarm.both)
    assert (name == "guide") == any(key.startswith("parts.") for key in monitor.tensors())
    assert (name == "disagreement") == any(key.startswith("net.") for key in monitor.tensors())


def test_settings_of_every_registered_score_are_read_back() -> None:
    assert set(SCORES) == set(QUICK)
    for settings in QUICK.values():
        assert from_dict(SCORES, json.loads(json.dumps(to_dict(settings)))) == settings


def test_a_score_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCORES, "_entries", dict(SCORES))

    @SCORES.register("far-left")
    @dataclasses.dataclass(frozen=True)
    class FarLeft(PairScore[torch.nn.Module]):
        def init(self, context: Context, dims: Dims, rng: Rng) -> torch.nn.Module:
            return torch.nn.Module()

        def fit(self, context: Context, pairs: Any, rng: Rng) -> torch.nn.Module:
            return torch.nn.Module()

        def score(self, weights: torch.nn.Module, context: Context, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return -s[None, :, 0].double()

    context = make_context()
    monitor = Monitor(context, [FittedScore.fit("far-left", FarLeft(), context, context.pairs(DEMOS))])
    calibrated(monitor).save(tmp_path)
    loaded = Monitor.load(tmp_path, METHOD, NORMALISER)
    np.testing.assert_array_equal(loaded.score(DEMOS.obs, DEMOS.act).both, monitor.score(DEMOS.obs, DEMOS.act).both)


@pytest.mark.parametrize(
    ("obs", "act"), [((OBS,), (OBS,)), ((4, OBS), (3, ACT)), ((OBS,), (1, ACT)), ((), ()), ((OBS,), ())]
)
def test_wrong_shapes_are_refused(obs: tuple[int, ...], act: tuple[int, ...]) -> None:
    with pytest.raises(InvalidData, match=r"this monitor expects \(3,\) and \(2,\)"):
        make_monitor("nearest").score(np.zeros(obs), np.zeros(act))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NearestScore(k=0), "k must be at least 1"),
        (lambda: GuideScore(low=0.5, high=0.5), "the range of t must satisfy"),
        (lambda: GuideScore(levels=10**9), "levels must be from 1 to 1000"),
        (lambda: RNDScore(outputs=0), "outputs must be from 1"),
        (lambda: LogpZOScore(calls=0), "calls must be from 1 to 100"),
        (lambda: Rule(window=0), "window must be from 1"),
        (lambda: Rule(("rnd", "rnd")).settings(with_training=True), "'rnd' is listed twice"),
        (lambda: Rule("nearst").settings(with_training=True), "did you mean 'nearest'"),
        (lambda: make_monitor("rnd", training=None), "'rnd' is fitted to the demonstrations"),
        (lambda: plain_guide(method=BC()), "BC policy has no guide. Use another --score"),
        (lambda: plain_guide(method=DBC(guide=EnergyGuide())), "needs a DiffusionGuide; this guide is EnergyGuide"),
        (lambda: make_monitor("nearest").save(Path("nowhere")), "only a calibrated monitor"),
        (lambda: EpisodeMonitor(make_monitor("nearest")), "this monitor is not calibrated"),
        (lambda: EpisodeMonitor(None), "this policy has no calibrated monitor"),
        (lambda: make_monitor("nearest").score(DEMOS.obs, DEMOS.act).state, "has no 'state'; it has both"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(DiffcloneError, match=message):
        make()


# Alarms.


def test_scores_above_the_threshold_raise_an_alarm() -> None:
    monitor = make_monitor("guide")
    plain = monitor.score(DEMOS.obs, DEMOS.act)
    assert plain.alarm is None
    limits = {name: float(np.median(values)) for name, values in plain.values.items()}
    known = dataclasses.replace(
        find_thresholds(monitor, EPISODES, 0.2, Rule(threshold="constant", window=1)), single=limits
    )
    alarm = dataclasses.replace(monitor, calibration=known).score(DEMOS.obs, DEMOS.act).alarm
    assert alarm is not None
    for name in ("state", "action", "both"):
        assert np.array_equal(getattr(alarm, name), plain.values[name] > limits[name])
        assert getattr(alarm, name).sum() == 30


def test_nan_scores_raise_an_alarm() -> None:
    monitor = calibrated(make_monitor("guide"), threshold="band", window=2)
    nan = monitor.score(np.full((2, OBS), np.nan), np.zeros((2, ACT)))
    assert nan.alarm is not None
    assert nan.alarm.both.all()
    assert nan.to_dict()["both"] == [None, None]
    normal = monitor.score(DEMOS.obs[0], DEMOS.act[0]).to_dict()
    assert type(normal["both"]) is float
    assert set(json.loads(json.dumps(normal))["alarm"]) == {"state", "action", "both"}
    watch = EpisodeMonitor(monitor)
    for k, expected in enumerate((False, True, True, False)):  # the window contains the NaN for two steps
        obs = np.full(OBS, np.nan) if k == 1 else DEMOS.obs.mean(0)
        alarm = watch(obs, DEMOS.act.mean(0)).alarm
        assert alarm is not None
        assert bool(alarm.both) == expected


@pytest.mark.parametrize("names", [("nearest",), ("guide",), ("nearest", "rnd")])
@pytest.mark.parametrize("rule", [{}, {"window": 3}, {"threshold": "band"}, {"threshold": "band", "window": 3}])
def test_an_episode_that_is_followed_equals_a_whole_one(names: tuple[str, ...], rule: dict[str, Any]) -> None:
    monitor = calibrated(make_monitor(*names), **rule)
    whole, watch, begin = monitor.score_episodes(EPISODES), EpisodeMonitor(monitor), 0
    assert whole.alarm is not None
    for end in EPISODES.episode_ends[:3]:
        watch.reset()
        for k in range(begin, end):
            step = watch(EPISODES.obs[k], EPISODES.act[k])
            assert step.alarm is not None
            for part in monitor.parts:
                assert step.values[part] == pytest.approx(whole.values[part][k], rel=1e-4, abs=1e-6)
            assert bool(step.alarm.both) == whole.alarm.both[k]
        begin = end


def test_observations_may_be_parts_and_stored_rows() -> None:
    rng, layout = np.random.default_rng(0), Layout((1, 36, 36), 2)
    parts = {"image": rng.integers(0, 256, (60, 1, 36, 36), np.uint8), "state": rng.normal(size=(60, 2))}
    meta = {"observation_keys": [["image", 36 * 36], ["state", 2]], "image": [1, 36, 36], "state_size": 2}
    stored = layout.pack(parts["image"].reshape(60, -1), parts["state"])
    demos = Demonstrations.from_arrays(stored, DEMOS.act, episode_ends=range(3, 61, 3), meta=meta)
    context = Context(BC(), Normaliser.from_demonstrations(demos))
    monitor = Monitor(
        context, [FittedScore.fit("nearest", NearestScore(), context, context.pairs(demos))], meta=demos.meta
    )
    expected = monitor.score(demos.observe(slice(None)), demos.act).both
    for given in (demos.obs, parts):
        np.testing.assert_array_equal(monitor.score(given, demos.act).both, expected)
    calibration = find_thresholds(monitor, demos, 0.2, Rule(threshold="constant", window=1))
    watch = EpisodeMonitor(dataclasses.replace(monitor, calibration=calibration))
    for given in (demos.obs[0], {name: values[0] for name, values in parts.items()}):
        assert watch(given, demos.act[0]).both == pytest.approx(expected[0], rel=1e-4)


def test_a_saved_policy_with_named_parts_is_followed(tmp_path: Path) -> None:
    meta = {"observation_keys": [["position", 2], ["speed", 1]]}
    train, held_out = (
        Demonstrations.from_arrays(d.obs, d.act, episode_ends=d.episode_ends, meta=meta) for d in (DEMOS, EPISODES)
    )
    policy = fit(BC(training=SMALL, network=Network(width=8, depth=1)), train, device="cpu", suggest=False)
    policy = calibrate(policy, held_out, 0.2, rule=Rule("nearest", window=1), training=train)
    policy.save(tmp_path / "policy")
    obs = {"position": DEMOS.obs[0, :2], "speed": DEMOS.obs[0, 2:]}
    action = policy(obs)
    for known in (policy, Policy.load(tmp_path / "policy")[0]):
        watch = EpisodeMonitor(known.calibrated_monitor)
        assert watch(obs, action).both == known.monitor(obs, action).both == known.monitor(DEMOS.obs[0], action).both


def test_two_scores_must_agree() -> None:
    monitor = calibrated(make_monitor("nearest", "rnd"), alpha=0.1)
    q = monitor.checked_calibration
    assert (q.episodes, q.shape_episodes) == (13, 7)
    score = monitor.score(EPISODES.obs, EPISODES.act)
    assert score.alarm is not None
    (c_1, u_1), (c_2, u_2) = q.units
    z = [(score.values["nearest"] - c_1) / u_1, (score.values["rnd"] - c_2) / u_2]
    np.testing.assert_allclose(score.both, np.minimum(*z))
    limit = q.single["both"]
    assert np.array_equal(score.alarm.both, (z[0] > limit) & (z[1] > limit))
    assert set(score.to_dict()["alarm"]) == {"both"}


# Files.


def test_a_calibration_of_other_weights_is_refused(tmp_path: Path) -> None:
    ours, other = calibrated(make_monitor("guide")), calibrated(make_monitor("guide", net=weights(1)))
    ours.save(tmp_path)
    other.save(tmp_path / "other")
    (tmp_path / "other" / WEIGHTS).rename(tmp_path / WEIGHTS)
    message = f"belongs to weights {ours.fingerprint}, .* has weights {other.fingerprint}. Calibrate again"
    with pytest.raises(InvalidFile, match=message):
        Monitor.load(tmp_path, METHOD, NORMALISER)
    wider = DBC(guide=dataclasses.replace(GUIDE, width=17))
    with pytest.raises(InvalidFile, match=rf"{WEIGHTS}: the settings require guide.*17.*; it has \(1, 5, 16\)"):
        Monitor.load_context(wider, NORMALISER, ours.tensors(), WEIGHTS)


def test_a_calibration_as_json() -> None:
    known = calibrated(make_monitor("guide"), threshold="band").checked_calibration
    assert Calibration.from_dict(json.loads(json.dumps(known.to_dict()))) == known
    band = {"q": 1.0, "centre": [1.0], "width": []}
    for broken, message in (
        ({**known.to_dict(), "format": 9}, "has format 9; this version of diffclone reads formats 1 and 2"),
        ([], "has format None"),
        ({**known.to_dict(), "single": {"both": "high"}}, "single missing or invalid"),
        ({**known.to_dict(), "thresholds": {"both": band}}, "thresholds missing or invalid"),
        ({**known.to_dict(), "window": 10**12}, "window missing or invalid"),
        ({**known.to_dict(), "units": [[1.0]]}, "units missing or invalid"),
        ({**known.to_dict(), "units": [[0.0, 0.0]]}, "units missing or invalid"),
        ({**known.to_dict(), "single": {"both": math.nan}}, "single missing or invalid"),
        ({**known.to_dict(), "thresholds": {"both": {**band, "width": [-1.0]}}}, "thresholds missing or invalid"),
        ({**known.to_dict(), "thresholds": {"both": {"q": math.inf, "centre": [], "width": []}}}, "thresholds missing"),
        ({k: v for k, v in known.to_dict().items() if k not in ("alpha", "fingerprint")}, "alpha, fingerprint missing"),
    ):
        with pytest.raises(InvalidFile, match=message):
            Calibration.from_dict(broken)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": {}}, "scores missing or invalid"),
        ({"scores": {"guide": {"type": "nothing"}}}, "nothing"),
        ({"scores": {"guide": {"type": "guide", "levels": 5}}}, r"require guide.mean \(3, 5\); it has \(3, 4\)"),
        ({"units": [[0.0, 1.0], [0.0, 1.0]]}, "scores missing or invalid"),
        ({"single": {"both": 1.0}}, "lacks thresholds of state, action, both"),
    ],
)
def test_a_changed_file_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    calibrated(make_monitor("guide")).save(tmp_path)
    path = tmp_path / CALIBRATION
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(InvalidFile, match=message):
        Monitor.load(tmp_path, METHOD, NORMALISER)


@pytest.mark.parametrize(("width", "depth"), [(65536, 1), (8, 1000)])
def test_networks_larger_than_the_file_are_not_made(width: int, depth: int, tmp_path: Path) -> None:
    calibrated(make_monitor("logpzo")).save(tmp_path)
    path = tmp_path / CALIBRATION
    values = json.loads(path.read_text())
    values["scores"]["logpzo"] |= {"width": width, "depth": depth}
    path.write_text(json.dumps(values))
    with pytest.raises(InvalidFile, match="the settings require logpzo"):
        Monitor.load(tmp_path, METHOD, NORMALISER)


@pytest.mark.parametrize("key", ["net.unknown", "net.out.bias"])
def test_a_tensor_without_dimensions_is_refused(key: str) -> None:
    tensors = make_monitor("disagreement").tensors() | {key: torch.tensor(1.0)}
    with pytest.raises(InvalidFile, match=f"{key} does not fit the settings of the policy"):
        Monitor.load_context(METHOD, NORMALISER, tensors, "the file")


def test_the_file_of_an_older_version(tmp_path: Path) -> None:
    monitor = plain_guide()
    q = {name: Threshold(float(k)) for k, name in enumerate(("state", "action", "both"))}
    old = {"format": 1, "alpha": 0.1, "episodes": 9, "member": 1, "guide": "0", "source": {}}
    loaded = Calibration.from_dict({**old, **{name: t.q for name, t in q.items()}})
    assert loaded == Calibration(0.1, 9, {n: t.q for n, t in q.items()}, q, "0", member=1)
    # It is saved again in the format of this version.
    dataclasses.replace(monitor, calibration=loaded).save(tmp_path)
    again = Monitor.load(tmp_path, METHOD, NORMALISER)
    np.testing.assert_array_equal(again.score(DEMOS.obs, DEMOS.act).both, monitor.score(DEMOS.obs, DEMOS.act).both)
