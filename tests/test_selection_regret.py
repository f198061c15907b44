from typing import Any

import pytest

from diffclone.records import Record
from diffclone.training.choice import choose
from scripts.selection_regret import last, last_of, lowest, make_record, read_settings, regrets


def record(snapshot: int, success: list[str], errors: list[float], **more: Any) -> Record:
    members = [{"seed": seed, "training.lr": lr} for lr in (1e-3, 3e-4) for seed in (0, 1)]
    results = {
        "study": "tuning",
        "setting": "fetch-pick-27",
        "task": "fetch-pick",
        "method": "BC",
        "snapshot": snapshot,
        "starts": "validation",
        "episodes": 4,
        "outcomes": {"success": success, "returns": []},
        "selection": {"error_absolute": errors, "error_squared": [error**2 for error in errors]},
        **more,
    }
    return Record("evaluation", {}, members, {}, results, "cpu", 1.0)


# Success of (lr, snapshot): (1e-3, 10) 100 %, (3e-4, 10) 50 %, (1e-3, 20) 25 %, (3e-4, 20) 0 %.
RECORDS = [
    record(10, ["1111", "1111", "1100", "1100"], [2.0, 4.0, 1.0, 1.5]),
    record(20, ["1000", "0001", "0000", "0000"], [3.0, 3.0, 9.0, 9.0]),
]


def test_regret_is_the_best_score_minus_that_of_the_choice() -> None:
    (setting,) = read_settings(RECORDS)
    unit = 1 / setting.expert
    found = regrets(setting, {"lowest": lowest("error_absolute"), "last": last, "rule": choose}, 2, split=False)
    assert found["lowest"] == pytest.approx(50 * unit)
    assert found["last"] == pytest.approx(75 * unit), "of the last snapshots, lr 1e-3 has the lower squared error"
    assert found["rule"] == found["lowest"], "without rollouts the rule is the absolute error"
    assert found["random"] == pytest.approx((100 - 43.75) * unit)
    assert found["tuned BC"] == 0


def test_a_rule_sees_only_some_seeds() -> None:
    swapped = [record(10, ["1111", "1111", "0000", "0000"], [1.0, 4.0, 2.0, 2.0])]
    (setting,) = read_settings(swapped)
    one, both = (regrets(setting, {"lowest": lowest("error_absolute")}, n, split=False)["lowest"] for n in (1, 2))
    assert one == pytest.approx(50 / setting.expert), "seed 0 chooses well, seed 1 does not"
    assert both == pytest.approx(100 / setting.expert), "their mean does not"


def test_records_without_metrics_are_left_out() -> None:
    other = record(30, ["0000"] * 4, [0.0] * 4, selection=None)
    fresh = record(30, ["0000"] * 4, [0.0] * 4, study="fresh")
    (setting,) = read_settings([*RECORDS, other, fresh])
    assert len(setting.candidates()) == 4
    assert read_settings(RECORDS, ["DBC (paper)"]) == []


def test_the_record_has_both_kinds_of_regret() -> None:
    (setting,) = read_settings(RECORDS)
    made = make_record(setting, {"the rule": choose, "last": last}, 2, RECORDS).results
    assert (made["candidates"], made["seeds"]) == (4, 2)
    assert made["regret"]["the rule"] > 0
    assert set(made["regret_split"]) == set(made["regret"])


def seen(method: str, snapshot: int, success: list[str], error: float) -> Record:
    members: list[dict[str, Any]] = [{"seed": seed, "training.lr": 1e-3} for seed in (100, 101)]
    results = {
        **RECORDS[0].results,
        "study": "search",
        "method": method,
        "snapshot": snapshot,
        "outcomes": {"success": success, "returns": []},
        "fields": {"training.lr": 1e-3},
        "metrics": {"error_absolute": error, "error_squared": 1.0, "track_5": None},
    }
    return Record("evaluation", {}, members, {}, {k: v for k, v in results.items() if k != "selection"}, "cpu", 1.0)


def test_metrics_that_train_saw_belong_to_other_seeds_than_the_outcomes() -> None:
    records = [
        seen("bc", 10, ["1111", "1100"], 2.0),
        seen("bc", 20, ["0000", "0000"], 3.0),
        seen("flow-matching", 30, ["1111", "0000"], 1.0),
    ]
    (setting,) = read_settings(records)
    rules = {"rule": choose, "bc": last_of("bc"), "flow": last_of("flow-matching"), "dbc": last_of("dbc")}
    found = regrets(setting, rules, 2, split=False)
    unit = 100 / setting.expert
    assert found["rule"] == found["flow"] == found["dbc"] == pytest.approx(0.25 * unit)
    assert found["bc"] == pytest.approx(0.75 * unit)
    assert found["tuned bc"] == 0
    assert found["tuned flow-matching"] == pytest.approx(0.25 * unit)
