from pathlib import Path

import pytest

from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.records import Record
from diffclone.training.choice import Candidate, choose
from diffclone.training.search_plan import Grid
from scripts import search_study
from scripts.search_study import find, study
from scripts.selection_regret import read_settings

TINY = Grid(2, (4, 8), (1e-3,), (0.0, 0.1), (0.3,), (0.0,), 4, (6,))


@pytest.fixture
def few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_study, "VALIDATION_EPISODES", 2)
    monkeypatch.setattr(search_study, "EVALUATION_EPISODES", 3)
    monkeypatch.setattr(search_study, "FRESH_SEEDS", (100, 101))


@pytest.mark.usefixtures("few_episodes")
def test_every_candidate_has_metrics_and_outcomes_and_nothing_is_done_twice(tmp_path: Path) -> None:
    setting, out = TASK_SETTINGS["spiral-1"], tmp_path / "records.jsonl"
    study(setting, TINY, tmp_path / "runs", out)
    records = Record.read_all(out)
    tried = find(records, study="search")
    expected = [("bc", 4), ("bc", 4), ("bc", 8), ("bc", 8), ("dbc", 4), ("dbc", 8), ("flow-matching", 6)]
    assert sorted((r.results["method"], r.results["snapshot"]) for r in tried) == expected
    for record in tried:
        r = record.results
        assert (r["starts"], r["episodes"]) == ("validation", 2)
        assert [m["seed"] for m in record.members] == [100, 101], "fresh seeds, unlike the search"
        assert len(r["outcomes"]["success"]) == 2
        assert r["metrics"]["error_absolute"] > 0
        assert record.data == tried[0].data, "trained on all demonstrations"
    (found,) = read_settings(records)
    assert len(found.candidates()) == len(found.outcomes()) == 7

    final = {r.results["method"]: r.results for r in find(records, study="final")}
    assert list(final) == ["train", "BC, tuned", "BC, plain"]
    assert all((r["starts"], r["episodes"]) == ("evaluation", 3) for r in final.values())
    seen = [Candidate.from_dict({**r.results, "updates": r.results["snapshot"]}) for r in tried]
    choice = seen[choose(seen)]
    assert final["train"]["chosen"] == {
        "method": choice.method,
        "fields": dict(choice.fields),
        "updates": choice.updates,
    }
    assert final["BC, tuned"]["chosen"]["method"] == "bc"
    study(setting, TINY, tmp_path / "runs", out)
    assert Record.read_all(out) == records
