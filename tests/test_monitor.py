import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Encoder, EnergyGuide, Network, Normaliser
from diffclone.deploy.calibration import conformal_threshold, episodes_needed
from diffclone.deploy.monitor import NOISE_LEVELS, PARTS, WEIGHTS, Calibration, Monitor
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings
from diffclone.model import Dims, Model, init_parts
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng
from diffclone.training.guide import BATCH, TrainedGuide

OBS, ACT = 3, 2
GUIDE = DiffusionGuide(width=16, depth=2, steps=50)
DEMOS = Demonstrations.from_arrays(
    np.random.default_rng(0).normal(2, 3, (60, OBS)),
    np.random.default_rng(1).uniform(-1, 1, (60, ACT)),
    episode_ends=[20, 25, 60],
)
NORMALISER = Normaliser.from_demonstrations(DEMOS)
METHOD = DBC(guide=GUIDE)


def weights(seed: int = 0, guide: DiffusionGuide = GUIDE) -> Diffusion:
    return guide.init(Dims(OBS, ACT), Rng([seed])["init"])


def constant(value: float) -> Diffusion:
    """Return a denoiser with a constant output."""
    net = weights()
    with torch.no_grad():
        net.denoiser.out.weight.zero_()
        net.denoiser.out.bias.fill_(value)
    return net


def make_monitor(net: Diffusion, method: Model[Any] = METHOD) -> Monitor:
    return Monitor(TrainedGuide(method, NORMALISER, lambda: {"guide": net}))


def calibration(monitor: Monitor, **changes: Any) -> Calibration:
    guide, source = monitor.fingerprint, {"task": "maze"}
    known = Calibration(0.1, 9, state=1.0, action=2.0, both=1.5, member=0, guide=guide, source=source)
    return dataclasses.replace(known, **changes)


MONITOR = make_monitor(weights())


# Scores.


def test_draws_are_stratified_with_noise_of_both_signs() -> None:
    t, eps = MONITOR.draws
    assert t.shape == (2 * NOISE_LEVELS,)
    assert torch.equal(t[:NOISE_LEVELS], t[NOISE_LEVELS:])
    assert torch.equal(eps[:NOISE_LEVELS], -eps[NOISE_LEVELS:])
    parts = (t[:NOISE_LEVELS].double() + 1) / GUIDE.steps * NOISE_LEVELS
    assert bool((parts - torch.arange(NOISE_LEVELS) > 0).all())
    assert bool((parts - torch.arange(NOISE_LEVELS) < 1 + 2 * NOISE_LEVELS / GUIDE.steps).all())


def test_score_of_a_constant_denoiser() -> None:
    # With ε and −ε the cross terms cancel: mean of (±ε − c)² = ε² + c².
    monitor = make_monitor(constant(0.5))
    squares = monitor.draws[1][:NOISE_LEVELS].double().square().mean(0).numpy()
    score = monitor.score(DEMOS.obs[0], DEMOS.act[0])
    assert score.state == pytest.approx(squares[:OBS].mean() + 0.25, rel=1e-5)
    assert score.action == pytest.approx(squares[OBS:].mean() + 0.25, rel=1e-5)
    assert score.both == pytest.approx(squares.mean() + 0.25, rel=1e-5)


def test_both_is_the_denoising_error_and_the_mean_of_its_parts() -> None:
    obs, act = DEMOS.obs[:7], DEMOS.act[:7]
    score = MONITOR.score(obs, act)
    s, a = NORMALISER.normalise_obs(torch.tensor(obs)), NORMALISER.normalise_act(torch.tensor(act))
    t, eps = MONITOR.draws
    for row in range(7):
        x = torch.cat([s[row], a[row]]).expand(1, len(t), -1)
        with torch.no_grad():
            error = MONITOR.weights.denoising_error(x, t[None], eps[None]).mean()
        assert score.both[row] == pytest.approx(float(error), rel=1e-4)
    np.testing.assert_allclose(score.both, (OBS * score.state + ACT * score.action) / (OBS + ACT))


def test_scores_are_equal_alone_and_in_a_batch() -> None:
    again = make_monitor(weights())
    rows = np.tile(DEMOS.obs, (6, 1)), np.tile(DEMOS.act, (6, 1))
    assert len(rows[0]) > BATCH
    first, second = MONITOR.score(*rows), again.score(*rows)
    assert np.array_equal(first.both, second.both)
    assert first.both.shape == (360,)
    one = MONITOR.score(rows[0][5], rows[1][5])
    assert one.both.shape == ()
    assert float(one.action) == pytest.approx(first.action[5], rel=1e-5)
    assert MONITOR.fingerprint == again.fingerprint != make_monitor(weights(1)).fingerprint


def test_scores_do_not_depend_on_the_range_of_t_of_the_cost() -> None:
    narrow = dataclasses.replace(GUIDE, t_low=10, t_high=20, draws=3)
    other = make_monitor(weights(), DBC(guide=narrow))
    assert np.array_equal(other.score(DEMOS.obs, DEMOS.act).both, MONITOR.score(DEMOS.obs, DEMOS.act).both)


def test_an_empty_batch_has_no_scores() -> None:
    assert MONITOR.score(np.zeros((0, OBS)), np.zeros((0, ACT))).both.shape == (0,)


@pytest.mark.parametrize(("obs", "act"), [((OBS,), (OBS,)), ((4, OBS), (3, ACT)), ((OBS,), (1, ACT)), ((), ())])
def test_wrong_shapes_are_refused(obs: tuple[int, ...], act: tuple[int, ...]) -> None:
    with pytest.raises(InvalidData, match=r"this guide expects \(3,\) and \(2,\)"):
        MONITOR.score(np.zeros(obs), np.zeros(act))


def test_images_are_scored_by_their_features() -> None:
    encoder = Encoder(network=Network(width=8, depth=1, activation="relu", image=(1, 36, 36)), features=4, pool=6)
    method = DBC(guide=GUIDE, encoder=encoder)
    rng = np.random.default_rng(0)
    demos = Demonstrations.from_arrays(
        rng.integers(0, 256, (5, 36 * 36)).astype(np.uint8), rng.normal(size=(5, ACT)), episode_ends=[5]
    )
    normaliser = Normaliser.from_demonstrations(demos)
    parts = init_parts(method, Dims(36 * 36, ACT), Rng([0]))
    monitor = Monitor(TrainedGuide(method, normaliser, lambda: parts))
    score = monitor.score(demos.obs, demos.act)
    assert score.state.shape == (5,)
    np.testing.assert_allclose(score.both, (4 * score.state + ACT * score.action) / (4 + ACT))


# Alarms.


def test_scores_above_the_threshold_raise_an_alarm() -> None:
    plain = MONITOR.score(DEMOS.obs, DEMOS.act)
    assert plain.alarm is None
    q = calibration(MONITOR, **{name: float(np.median(getattr(plain, name))) for name in PARTS})
    alarm = dataclasses.replace(MONITOR, calibration=q).score(DEMOS.obs, DEMOS.act).alarm
    assert alarm is not None
    for name in PARTS:
        assert np.array_equal(getattr(alarm, name), getattr(plain, name) > getattr(q, name))
        assert getattr(alarm, name).sum() == 30


def test_nan_scores_raise_an_alarm() -> None:
    monitor = dataclasses.replace(MONITOR, calibration=calibration(MONITOR, state=1e9, action=1e9, both=1e9))
    nan = monitor.score(np.full((2, OBS), np.nan), np.zeros((2, ACT)))
    assert nan.alarm is not None
    assert nan.alarm.both.all()
    assert nan.to_dict()["both"] == [None, None]
    normal = monitor.score(DEMOS.obs[0], DEMOS.act[0]).to_dict()
    assert type(normal["both"]) is float
    assert json.loads(json.dumps(normal))["alarm"] == {"state": False, "action": False, "both": False}


def test_maxima_of_each_episode() -> None:
    score, maxima = MONITOR.score(DEMOS.obs, DEMOS.act), MONITOR.episode_maxima(DEMOS)
    for name in PARTS:
        s = getattr(score, name)
        np.testing.assert_array_equal(maxima[name], [s[:20].max(), s[20:25].max(), s[25:].max()])


# Files.


def test_saving_and_loading(tmp_path: Path) -> None:
    monitor = dataclasses.replace(MONITOR, calibration=calibration(MONITOR))
    monitor.save(tmp_path)
    loaded = Monitor.load(tmp_path, METHOD, NORMALISER)
    assert loaded.calibration == monitor.calibration
    assert np.array_equal(loaded.score(DEMOS.obs, DEMOS.act).both, monitor.score(DEMOS.obs, DEMOS.act).both)


def test_a_calibration_of_other_weights_is_refused(tmp_path: Path) -> None:
    dataclasses.replace(MONITOR, calibration=calibration(MONITOR)).save(tmp_path)
    other = make_monitor(weights(1))
    with pytest.raises(InvalidFile, match=f"to guide {MONITOR.fingerprint}, the weights are guide {other.fingerprint}"):
        dataclasses.replace(other, calibration=calibration(MONITOR))
    wider = DBC(guide=dataclasses.replace(GUIDE, width=17))
    with pytest.raises(InvalidFile, match=rf"{WEIGHTS}: the settings require guide.*17.*; it has \(1, 5, 16\)"):
        Monitor.load(tmp_path, wider, NORMALISER)


def test_methods_without_a_diffusion_guide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="BC has no guide"):
        make_monitor(weights(), BC())
    with pytest.raises(InvalidSettings, match="needs a DiffusionGuide; this guide is EnergyGuide"):
        make_monitor(weights(), DBC(guide=EnergyGuide()))
    with pytest.raises(InvalidSettings, match="the guide of one member; this guide has 2"):
        make_monitor(GUIDE.init(Dims(OBS, ACT), Rng([0, 1])["init"]))
    with pytest.raises(InvalidSettings, match="only a calibrated monitor"):
        MONITOR.save(tmp_path)


# Conformal thresholds.


@pytest.mark.parametrize(
    ("n", "alpha", "rank"),
    [(19, 0.05, 19), (20, 0.05, 20), (39, 0.05, 38), (99, 0.01, 99), (9, 0.1, 9), (100, 0.3, 71)],
)
def test_thresholds_of_examples(n: int, alpha: float, rank: int) -> None:
    maxima = np.random.default_rng(0).permutation(np.arange(1, n + 1))
    assert conformal_threshold(maxima, alpha) == rank
    assert rank == math.ceil(round((n + 1) * (1 - alpha), 9))


@pytest.mark.parametrize(("alpha", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9), (0.3, 3), (0.5, 1)])
def test_too_few_episodes_are_refused(alpha: float, needed: int) -> None:
    assert episodes_needed(alpha) == needed
    conformal_threshold(np.arange(needed), alpha)
    with pytest.raises(InvalidData, match=rf"needs at least {needed} .* there are {needed - 1}\."):
        conformal_threshold(np.arange(needed - 1), alpha)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, float("nan")])
def test_alpha_must_be_a_probability(alpha: float) -> None:
    with pytest.raises(InvalidSettings, match="between 0 and 1"):
        conformal_threshold(np.arange(100), alpha)


def test_nan_maxima_are_refused() -> None:
    with pytest.raises(InvalidData, match="1 of 20 episodes"):
        conformal_threshold([*range(19), float("nan")], 0.1)


@pytest.mark.parametrize(("n", "alpha"), [(19, 0.05), (30, 0.1), (60, 0.05), (47, 0.2)])
def test_false_alarms_are_at_most_alpha_and_not_far_below(n: int, alpha: float) -> None:
    # Scores within an episode are correlated and have heavy tails; episodes are exchangeable.
    rng, repeats = np.random.default_rng(n), 4000
    walks = np.abs(rng.standard_t(2, (repeats, n + 1, 10)).cumsum(-1)).max(-1)
    alarms = np.mean([m[-1] > conformal_threshold(m[:-1], alpha) for m in walks])
    exact = math.floor((n + 1) * alpha + 1e-9) / (n + 1)
    noise = 4 * math.sqrt(alpha * (1 - alpha) / repeats)
    assert alarms <= alpha + noise
    assert alarms == pytest.approx(exact, abs=noise)


def test_a_calibration_as_json() -> None:
    known = calibration(MONITOR)
    assert Calibration.from_dict(json.loads(json.dumps(known.to_dict()))) == known
    for broken, message in (
        ({**known.to_dict(), "format": 9}, "has format 9; this version of diffclone reads format 1"),
        ([], "has format None"),
        ({**known.to_dict(), "both": "high"}, "both missing or invalid"),
        ({k: v for k, v in known.to_dict().items() if k not in ("alpha", "guide")}, "alpha, guide missing or invalid"),
    ):
        with pytest.raises(InvalidFile, match=message):
            Calibration.from_dict(broken)
