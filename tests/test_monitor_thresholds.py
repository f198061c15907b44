"""Thresholds of a monitor: their values in examples, and the rate of false alarms over many calibrations."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.monitor_calibrations import PROCESSES, simulate
from diffclone.deploy.monitors.thresholds import (
    Threshold,
    calibrate_threshold,
    conformal_threshold,
    episodes_needed,
    false_alarm_interval,
    fit_shape,
    moving_average,
    split_shape,
)
from diffclone.errors import InvalidData, InvalidSettings


@pytest.mark.parametrize(
    ("n", "alpha", "rank"),
    [(19, 0.05, 19), (20, 0.05, 20), (39, 0.05, 38), (99, 0.01, 99), (9, 0.1, 9), (100, 0.3, 71)],
)
def test_thresholds_of_examples(n: int, alpha: float, rank: int) -> None:
    maxima = np.random.default_rng(0).permutation(np.arange(1, n + 1))
    assert conformal_threshold(maxima, alpha) == rank
    assert rank == math.ceil(round((n + 1) * (1 - alpha), 9))


@pytest.mark.parametrize(("alpha", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9), (0.3, 3), (0.5, 1)])
def test_an_alpha_below_one_in_n_plus_one_is_refused(alpha: float, needed: int) -> None:
    assert episodes_needed(alpha) == needed
    conformal_threshold(np.arange(needed), alpha)
    with pytest.raises(
        InvalidData, match=rf"needs at least {needed} .* there are {needed - 1}\. .* at least 1/{needed}"
    ):
        conformal_threshold(np.arange(needed - 1), alpha)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, float("nan")])
def test_alpha_must_be_a_probability(alpha: float) -> None:
    with pytest.raises(InvalidSettings, match="between 0 and 1"):
        conformal_threshold(np.arange(100), alpha)


def test_nan_maxima_are_refused() -> None:
    with pytest.raises(InvalidData, match="1 of 20 episodes"):
        conformal_threshold([*range(19), float("nan")], 0.1)


@pytest.mark.parametrize(("n", "alpha"), [(19, 0.05), (30, 0.1), (100, 0.2)])
def test_the_interval_of_false_alarms_holds_in_a_simulation(n: int, alpha: float) -> None:
    # The rate of one calibration is 1 − F(q); with uniform maxima, F is the identity.
    maxima: npt.NDArray[Any] = np.random.default_rng(0).random((4000, n))
    rates = np.array([1 - conformal_threshold(m, alpha) for m in maxima])
    low, high = false_alarm_interval(n, alpha)
    assert low < alpha < high
    assert np.mean(rates < low) == pytest.approx(0.025, abs=0.01)
    assert np.mean(rates > high) == pytest.approx(0.025, abs=0.01)


def test_a_moving_average() -> None:
    y = np.array([2.0, 4.0, 6.0, 8.0, np.nan, 2.0, 4.0, 6.0])
    assert moving_average(y, 1) is y
    np.testing.assert_allclose(moving_average(y, 3), [2, 3, 4, 6, np.nan, np.nan, np.nan, 4])
    assert len(moving_average(y[:2], 5)) == 2


def test_a_band_is_compared_in_units_of_its_width() -> None:
    band = Threshold(2.0, (0.0, 10.0), (1.0, 5.0))
    y, step = np.array([1.9, 2.1, 19.0, 21.0, np.nan]), np.array([0, 0, 1, 7, 0])  # step 7 has the last shape
    np.testing.assert_allclose(band.excess(y, step), [1.9, 2.1, 1.8, 2.2, np.nan])
    assert band.exceeded(y, step).tolist() == [False, True, False, True, True]


def test_the_shape_of_a_band() -> None:
    episodes = [np.arange(n, dtype=np.float64) + k for k, n in enumerate((10, 10, 10, 6))]
    centre, width = fit_shape(episodes)
    assert len(centre) == 10
    # Steps 1 to 3 of all four episodes around step 2.
    near = np.concatenate([y[1:4] for y in episodes])
    assert (centre[2], width[2]) == pytest.approx((near.mean(), near.std()))
    assert len(fit_shape([*episodes, np.zeros(50)])[0]) == 10  # fewer than three episodes are longer
    assert min(fit_shape([np.zeros(5)] * 4)[1]) > 0


def test_a_band_has_at_most_as_many_steps_as_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffclone.deploy.monitors.thresholds.MOST_STEPS", 4)
    assert len(fit_shape([np.arange(10.0)] * 4)[0]) == 4


def test_a_band_detects_what_a_constant_threshold_hides() -> None:
    # Scores are always high at the first step; an unusual one at a later step is below that.
    rng = np.random.default_rng(0)
    episodes = [np.concatenate([[10.0], np.zeros(9)]) + rng.normal(size=10) for _ in range(60)]
    shape, rest = split_shape(60, 0.1)
    assert not {*shape} & {*rest}
    unusual = np.concatenate([[10.0], np.zeros(4), [6.0], np.zeros(4)])
    steps = np.arange(10)
    constant = calibrate_threshold(episodes, 0.1)
    band = calibrate_threshold([episodes[k] for k in rest], 0.1, "band", [episodes[k] for k in shape])
    assert not constant.exceeded(unusual, steps).any()
    assert np.flatnonzero(band.exceeded(unusual, steps)).tolist() == [5]


def test_a_shape_needs_episodes_of_its_own() -> None:
    shape, rest = split_shape(14, 0.1)
    assert (len(shape), len(rest)) == (5, 9)
    assert split_shape(14, 0.1) == (shape, rest)
    with pytest.raises(InvalidData, match=r"at least 9 calibration episodes, and 5 more .* there are 13\."):
        split_shape(13, 0.1)


@pytest.mark.parametrize("process", ["heavy walks", "peaks", pytest.param("drifts", marks=pytest.mark.slow)])
@pytest.mark.parametrize("threshold", ["constant", "window", "band", "both"])
def test_false_alarms_are_at_most_alpha_and_not_far_below(process: str, threshold: str) -> None:
    alpha, repeats = 0.1, 200
    found = simulate(PROCESSES[process], threshold, alpha, calibrations=repeats, episodes=30, tests=5)
    # The exact rate is ⌊(n + 1) α⌋ / (n + 1), with 30 episodes for q, or 20 if there are 10 shape episodes.
    exact = 3 / 31 if threshold in ("constant", "window") else 2 / 21
    error = 4 * math.sqrt(alpha * (1 - alpha) * (1 / 20 + 1 / 5) / repeats)
    assert found.mean() <= alpha + error
    assert found.mean() == pytest.approx(exact, abs=error)
