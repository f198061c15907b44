"""The benchmark of the monitor: its metrics in examples, and the tables of the docs."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.monitoring import Split, auroc, combine, detect, summarise
from diffclone.records import Record
from docs import monitor_tables

PAGE = Path(__file__).parents[1] / "docs" / "monitor.md"


def test_auroc_of_an_example() -> None:
    assert auroc(np.array([3.0, 1.0]), np.array([2.0, 1.0])) == (1 + 1 + 0 + 0.5) / 4


def test_metrics_of_an_example() -> None:
    # Ten calibration successes of five steps with maxima 1 … 10, so q = 10 at α = 0.1; the first five give a shape.
    calibration = [np.full(5, float(k)) for k in range(1, 11)]
    quiet, loud = np.zeros(5), np.array([0.0, 0, 11, 0, 0])
    late = np.concatenate([np.zeros(7), [99.0]])  # the alarm comes after the failure is evident
    episodes = [*calibration, quiet, loud, loud, late, np.array([0.0, 0, 0, 12, 0, 0])]
    failed = np.array([False] * 12 + [True] * 3)
    found = detect(episodes, failed, Split(list(range(5)), list(range(5, 10))), "constant", 1)
    assert found["false_alarms"] == 1 / 2
    assert found["detected"] == pytest.approx(2 / 3)
    assert found["balanced"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found["time"] == pytest.approx((3 / 5 + 4 / 5) / 2)
    assert found["auroc"] == pytest.approx((1 + 0.5 + 0.5 + 0 + 1 + 1) / 6)  # maxima 11, 0 and 12 against 0 and 11


def test_two_scores_are_combined_in_units_of_the_shape_episodes() -> None:
    first, second = [np.array([0.0, 2.0]), np.array([5.0])], [np.array([10.0, 30.0]), np.array([20.0])]
    [known, new] = combine([first, second], [0])
    assert known.tolist() == [-1.0, 1.0]
    assert new.tolist() == [0.0]


def test_a_split_uses_half_of_the_successes() -> None:
    success = np.arange(60) % 3 > 0
    split = Split.draw(success, 0)
    used = split.shape + split.quantile
    assert len(used) == len(set(used)) == 20
    assert success[used].all()
    assert split != Split.draw(success, 1)


def test_means_ignore_levels_without_a_value() -> None:
    assert summarise({(0, 0): [1.0, 3.0], (0, 1): [float("nan"), 4.0]}) == [3.0, 2.05, 3.95]
    assert summarise({(0, 0): [float("nan")]}) == [None, None, None]


def test_the_default_is_the_one_that_the_docs_name() -> None:
    from diffclone.deploy.calibration import DEFAULT_SCORE

    assert f"**The default is `{DEFAULT_SCORE}`" in PAGE.read_text(encoding="utf-8")


def test_false_alarms_of_the_records_hold_alpha() -> None:
    records = monitor_tables.latest("monitor-calibrations").values()
    assert all(isinstance(record, Record) for record in records)
    for record in records:
        alpha, count = record.settings["alpha"], record.settings["calibrations"]
        for by_rule in record.results["rates"].values():
            for mean, low, high in by_rule.values():
                assert low <= mean <= high
                assert mean <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / 20 / count)
