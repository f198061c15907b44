from typing import Any

import numpy as np
import pytest
from scipy import stats

from diffclone import statistics
from diffclone.statistics import (
    Estimate,
    constant_interval,
    difference_interval,
    estimate_contrast,
    mean_interval,
    paired_permutation_p,
    permutation_p,
    student_quantile,
    student_tail,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)],
)
def test_wilson_has_the_known_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_one_seed_of_successes_has_wilsons_interval() -> None:
    outcomes = np.array([True] * 8 + [False] * 2)
    assert mean_interval(outcomes[None]) == wilson(8, 10)


@pytest.mark.parametrize("success", [True, False])
def test_constant_outcomes_have_an_interval(success: bool) -> None:  # noqa: FBT001
    # Five seeds on ten starts that all succeed are evidence about five seeds, not about fifty episodes: 0.025^(1/5).
    low, high = mean_interval(np.full((5, 10), success))
    assert (low, high) == constant_interval(float(success), 5)
    assert high - low == pytest.approx(1 - 0.478, abs=5e-4)


def test_an_interval_contains_the_mean_and_narrows_with_more_starts() -> None:
    outcomes = np.random.default_rng(0).random((8, 400)) < 0.7
    few, many = mean_interval(outcomes[:, :50]), mean_interval(outcomes)
    assert few[0] < outcomes[:, :50].mean() < few[1]
    assert many[0] < outcomes.mean() < many[1]
    assert many[1] - many[0] < few[1] - few[0]


def test_the_variation_between_seeds_counts() -> None:
    # There are two kinds of seeds; more starts do not say which kind the next seed is.
    outcomes = np.repeat([[1.0], [0.0]], 5, axis=0).repeat(10_000, axis=1)
    low, high = mean_interval(outcomes)
    assert low < 0.3
    assert high > 0.7


def test_equal_tables_do_not_differ() -> None:
    table = np.random.default_rng(0).random((4, 30)) < 0.5
    assert difference_interval(table, table) == (0.0, 0.0)


def test_a_difference_is_paired() -> None:
    # A gain of 0.1 everywhere is sure, though starts differ by far more.
    table = 100 * np.random.default_rng(0).random((4, 30))
    assert difference_interval(table + 0.1, table) == pytest.approx((0.1, 0.1))
    low, high = difference_interval(table, table + 0.1)
    assert low <= high < 0


def test_coverage_is_about_95_percent() -> None:
    rng, trials, covered = np.random.default_rng(0), 150, 0
    for _ in range(trials):
        outcomes = 3 + rng.normal(size=(20, 1)) + rng.normal(size=(1, 25)) + rng.normal(size=(20, 25))
        low, high = mean_interval(outcomes)
        covered += low <= 3 <= high
    assert 0.88 <= covered / trials <= 0.99


def test_a_permutation_test_by_hand() -> None:
    # 3 against 3, all of ours above: of 20 ways to deal, this one and its mirror are as far apart.
    assert permutation_p([0.7, 0.8, 0.9], [0.1, 0.2, 0.3]) == pytest.approx(0.1, abs=0.01)
    assert permutation_p([0.5, 0.5], [0.5, 0.5]) == 1
    assert permutation_p([0.9] * 8, [0.1] * 8) < 0.001
    ours, theirs = np.random.default_rng(1).normal(5100.1, 30, 5), np.random.default_rng(2).normal(3000.3, 30, 5)
    assert permutation_p(ours.tolist(), theirs.tolist()) == permutation_p(
        (ours / 1e3).tolist(), (theirs / 1e3).tolist()
    )


def test_a_permutation_test_is_fair() -> None:
    rng = np.random.default_rng(0)
    found = [permutation_p(rng.normal(size=6).tolist(), rng.normal(size=6).tolist()) for _ in range(200)]
    assert 0.01 < np.mean(np.array(found) < 0.05) < 0.1


def test_a_paired_permutation_test_by_hand() -> None:
    # Of the 8 signs of (1, 2, 3), only +++ and --- have a sum of at least 6; of (1, 2, -3), all have at least 0.
    assert paired_permutation_p([1.0, 2.0, 3.0]) == 2 / 8
    assert paired_permutation_p([1.0, 2.0, -3.0]) == 1
    assert paired_permutation_p([0.1] * 10) == 2 / 1024
    assert paired_permutation_p([0.0, 0.0]) == 1


def test_a_paired_permutation_test_of_many_seeds_samples_the_signs() -> None:
    differences = np.random.default_rng(0).normal(0.5, 1.0, 14)
    exact, zeros = paired_permutation_p(differences.tolist()), [0.0] * 6  # zeros do not change p
    assert paired_permutation_p([*differences, *zeros]) == pytest.approx(exact, abs=0.01)
    assert 0 < paired_permutation_p([1.0] * 30) < 0.001


@pytest.mark.parametrize("freedom", [1.0, 1.5, 9.0, 40.0, 500.0])
def test_students_t_has_the_known_tails(freedom: float) -> None:
    for t in (-3.0, 0.0, 0.5, 2.0, 5.0, 20.0):
        assert student_tail(t, freedom) == pytest.approx(float(stats.t.sf(t, freedom)), rel=1e-4, abs=1e-12)
    assert student_quantile(0.975, freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=1e-6)


def test_a_paired_contrast_of_seeds_alone_is_the_paired_t_test() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 12, 1))
    estimate = estimate_contrast([a, b], [1.0, -1.0], paired=True)
    test: Any = stats.ttest_rel(a[:, 0], b[:, 0])
    assert 2 * min(estimate.p_above(0.0), estimate.p_below(0.0)) == pytest.approx(test.pvalue, rel=1e-4)
    assert estimate.interval() == pytest.approx(tuple(test.confidence_interval()), rel=1e-4)


def test_an_unpaired_contrast_of_seeds_alone_is_welchs_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.0, 1.0, (12, 1)), rng.normal(0.5, 3.0, (20, 1))
    estimate = estimate_contrast([a, b], [1.0, -1.0], paired=False)
    test: Any = stats.ttest_ind(a[:, 0], b[:, 0], equal_var=False)
    assert 2 * min(estimate.p_above(0.0), estimate.p_below(0.0)) == pytest.approx(test.pvalue, rel=1e-4)


def test_a_contrast_by_hand() -> None:
    # Seeds have means 2 and 4 (variance 2), starts 1, 3 and 5 (variance 4); nothing is left unexplained.
    table = np.array([[0.0, 2.0, 4.0], [2.0, 4.0, 6.0]])
    estimate = estimate_contrast([table], [1.0], paired=True)
    assert (estimate.mean, estimate.error**2) == (pytest.approx(3.0), pytest.approx(2 / 2 + 4 / 3))


def test_constant_outcomes_have_the_p_value_of_a_sign_test() -> None:
    estimate = estimate_contrast([np.ones((10, 20)), np.zeros((10, 20))], [1.0, -1.0], paired=True)
    assert (estimate.mean, estimate.error) == (1.0, 0.0)
    assert (estimate.p_above(0.0), estimate.p_below(0.0), estimate.p_above(1.0)) == (2.0**-10, 1.0, 1.0)
    assert Estimate(0.0, 0.0, 9.0, 10).p_above(0.0) == 1


@pytest.mark.parametrize("seeds", range(1, 12))
def test_the_interval_of_a_constant_difference_agrees_with_the_sign_test(seeds: int) -> None:
    always, never = np.ones((seeds, 10), dtype=np.bool_), np.zeros((seeds, 10), dtype=np.bool_)
    estimate = estimate_contrast([always, never], [100.0, -100.0], paired=True)
    low, high = estimate.interval()
    trials = seeds if seeds > 1 else 10  # a single seed is compared over its starts
    rate = constant_interval(1.0, trials)[0]
    assert (low, high) == (pytest.approx(100 * rate - 100 * (1 - rate)), 100.0)
    assert (low > 0) == (2 * 0.5**trials <= 0.05)
    assert estimate_contrast([never, always], [100.0, -100.0], paired=True).interval() == (-high, -low)
    assert estimate_contrast([always, always], [100.0, -100.0], paired=True).interval() == (0.0, 0.0)


@pytest.mark.parametrize("paired", [True, False])
def test_a_contrast_errs_as_often_as_it_says(paired: bool) -> None:  # noqa: FBT001
    rng, trials, wrong = np.random.default_rng(0), 400, 0
    for _ in range(trials):
        start = rng.normal(size=(1, 30))
        a, b = (start + 0.5 * rng.normal(size=(10, 1)) + rng.normal(size=(10, 30)) for _ in range(2))
        wrong += estimate_contrast([a, b], [1.0, -1.0], paired=paired).p_above(0.0) < 0.05
    assert 0.02 < wrong / trials < 0.08


def test_resampled_rates_are_exact_fractions_so_that_every_machine_prints_the_same_digits() -> None:
    outcomes = np.random.default_rng(0).random((7, 30)) < 0.6
    means = statistics._resampled_means(outcomes)  # pyright: ignore[reportPrivateUsage]
    assert np.array_equal(means, np.round(means * outcomes.size) / outcomes.size)
