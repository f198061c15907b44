from pathlib import Path
from typing import Any

import pytest

from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.records import Record
from diffclone.training.search_plan import Grid
from scripts import search_study
from scripts.search_study import choices, final, find, search
from scripts.selection_regret import read_settings

TINY = Grid(3, (4, 8), (1e-3,), (0.0, 0.1), (0.3,), (0.0, 1.0), 4)


@pytest.fixture
def few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_study, "VALIDATION_EPISODES", 2)
    monkeypatch.setattr(search_study, "EVALUATION_EPISODES", 2)
    monkeypatch.setattr(search_study, "FRESH_SEEDS", (100, 101))


@pytest.mark.usefixtures("few_episodes")
def test_every_candidate_has_metrics_and_outcomes_and_nothing_is_done_twice(tmp_path: Path) -> None:
    setting, out = TASK_SETTINGS["spiral-1"], tmp_path / "records.jsonl"
    search(setting, TINY, tmp_path / "runs", out)
    records = Record.read_all(out)
    methods = ("BC", "DBC (paper)", "DBC (ours)")
    assert sorted((r.results["method"], r.results["snapshot"]) for r in records) == sorted(
        (method, update) for method in methods for update in TINY.snapshots
    )
    for record in records:
        r = record.results
        assert (r["starts"], r["episodes"]) == ("validation", 2)
        assert len(r["outcomes"]["success"]) == len(record.members) == len(r["selection"]["error_absolute"])
        assert {m["away"] for m in record.members if "away" in m} == {"DBC (paper)": {0.0}, "DBC (ours)": {1.0}}.get(
            r["method"], set()
        )
    (found,) = read_settings(records)
    assert len(found.candidates()) == len(found.outcomes()) == 8  # two BC and two DBC configurations, two lengths
    search(setting, TINY, tmp_path / "elsewhere", out)
    assert Record.read_all(out) == records

    final(setting, TINY, tmp_path / "runs", out)
    last = find(Record.read_all(out), study="final")
    assert [r.results["method"] for r in last] == ["train", "BC, tuned", "DBC, tuned"]
    assert all(r.results["starts"] == "evaluation" for r in last)
    assert all([m["seed"] for m in r.members] == [100, 101] for r in last)
    final(setting, TINY, tmp_path / "runs", out)
    assert len(Record.read_all(out)) == len(records) + 3


def record(method: str, success: list[str], errors: list[float], **fields: float) -> Record:
    members: list[dict[str, Any]] = [{"seed": seed, **fields} for seed in range(len(success))]
    results = {
        "method": method,
        "snapshot": 500,
        "outcomes": {"success": success},
        "selection": {"error_absolute": errors},
    }
    return Record("evaluation", {}, members, {}, results, "cpu", 1.0)


def test_train_sees_its_own_seeds_and_tuning_sees_all_outcomes() -> None:
    records = [
        record("BC", ["00", "00", "11"], [1.0, 1.0, 9.0], state_noise=0.0),
        record("BC", ["00", "10", "00"], [2.0, 2.0, 2.0], state_noise=0.1),
        record("DBC (ours)", ["11", "11", "11"], [3.0, 3.0, 0.0], coefficient=0.3),
        record("DBC (paper)", ["10", "10", "10"], [4.0, 4.0, 0.0], coefficient=3.0),
    ]
    found = choices(records, range(2))
    assert found["train"].fields == {"state_noise": 0.0}  # the lowest error of seeds 0 and 1
    assert found["BC, tuned"].fields == {"state_noise": 0.0}  # 2 of 6, against 1 of 6
    assert found["DBC, tuned"].method == "DBC (ours)"
    assert choices(records, range(3))["train"].fields == {"state_noise": 0.1}
