from typing import Any

import pytest

from diffclone.records import Record
from diffclone.training.choice import Candidate, choose
from diffclone.training.search_plan import Grid
from scripts.selection_regret import in_grid, last, lowest, make_record, read_settings, regrets


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
    assert (made["candidates"], made["seeds"], made["metric"]) == (4, 2, "error_absolute")
    assert made["regret"]["the rule"] > 0
    assert set(made["regret_split"]) == set(made["regret"])


@pytest.mark.parametrize(
    ("method", "fields", "updates", "tried"),
    [
        ("BC", {"state_noise": 0.1, "training.weight_decay": 0.1}, 500, True),
        ("BC", {"state_noise": 0.1, "training.weight_decay": 0.0}, 500, False),
        ("BC", {"state_noise": 0.05, "training.weight_decay": 0.1}, 500, False),
        ("DBC (paper)", {"coefficient": 3.0}, 500, True),
        ("DBC (paper)", {"coefficient": 1.0}, 500, False),
        ("DBC (paper)", {"coefficient": 3.0}, 2000, False),
        ("DBC (ours)", {"coefficient": 3.0}, 500, False),
    ],
)
def test_a_grid_tries_some_candidates_of_the_study(
    method: str,
    fields: dict[str, float],
    updates: int,
    tried: bool,  # noqa: FBT001
) -> None:
    grid = Grid(2, (500, 1_000), state_noise=(0.0, 0.1), coefficient=(0.3, 3.0))
    assert in_grid(Candidate(method, {"training.lr": 1e-3, **fields}, updates, {}), grid) is tried
    assert not in_grid(Candidate(method, {"training.lr": 3e-4, **fields}, updates, {}), grid)
