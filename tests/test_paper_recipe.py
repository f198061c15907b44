import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from diffclone.records import Record
from diffclone.training import Progress
from diffclone.training.display import Bars
from diffclone.training.runs import Run
from docs import recipe_tables

pytest.importorskip("fcntl")

from scripts.paper_recipe import main, parse_seeds


def run(out: Path, *arguments: str) -> list[Record]:
    main([*arguments, "--out", str(out), "--device", "cpu", "--quick"])
    return Record.read_all(out / "records.jsonl")


def test_a_guide_is_trained_once_and_shared_by_all_seeds(tmp_path: Path) -> None:
    for _ in range(2):
        records = run(tmp_path, "guide", "maze")
        assert [record.results["job"] for record in records] == ["guide maze_bundled_dbc_paper_0-9_quick"]
    for _ in range(2):
        records = run(tmp_path, "train", "maze", "dbc", "0-1")
        assert [record.members for record in records] == [[{"seed": 0}], [{"seed": 0}, {"seed": 1}]]
    # Both presets use the same guide, which is not trained again.
    run(tmp_path, "train", "maze", "dbc", "0-1", "--preset", "release")
    assert len(list((tmp_path / "guides").iterdir())) == 1
    policy = Run(tmp_path / "runs" / "maze_bundled_dbc_paper_0-1_quick").policy()
    assert policy.guide is not None
    assert len(policy) == 2
    assert len(policy.guide) == 1


def test_another_precision_has_its_own_guide_and_run(tmp_path: Path) -> None:
    run(tmp_path, "guide", "maze", "dbc", "0-1")
    run(tmp_path, "train", "maze", "dbc", "0-1")
    run(tmp_path, "guide", "maze", "dbc", "0-1", "--precision", "tf32")
    assert len(list((tmp_path / "guides").iterdir())) == 2
    run(tmp_path, "train", "maze", "dbc", "0-1", "--precision", "tf32")
    records = run(tmp_path, "evaluate", "maze", "dbc", "0-1", "--precision", "tf32")
    assert [record.results["precision"] for record in records] == ["float32"] * 2 + ["tf32"] * 3
    assert records[3].results["job"] == "train maze_bundled_dbc_paper_0-1_tf32_quick"
    assert Run(tmp_path / "runs" / "maze_bundled_dbc_paper_0-1_tf32_quick").identity()["precision"] == "tf32"


@pytest.mark.parametrize("command", ["guide", "train"])
def test_an_interrupted_training_writes_a_checkpoint(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Bars, name: str, now: Progress) -> None:
        if now.losses:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Bars, "training", interrupt)
        with pytest.raises(SystemExit, match="interrupted"):
            run(tmp_path, command, "maze", "dbc", "0-1")
    assert list(tmp_path.rglob("checkpoints/**/guide.safetensors"))
    assert not (tmp_path / "records.jsonl").exists()
    assert len(run(tmp_path, command, "maze", "dbc", "0-1")) == 1


def test_episodes_are_run_once_and_the_tables_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Record] = []
    for method, seeds in (("bc", "0-2"), ("dbc", "1-2")):
        run(tmp_path, "train", "maze", method, seeds)
        for _ in range(2):
            records = run(tmp_path, "evaluate", "maze", method, seeds)
    assert [record.results.get("protocol") for record in records] == [None, "fixed"] * 2
    assert all(record.quick for record in records)
    assert [len(member) for member in records[-1].results["outcomes"]["success"]] == [2, 2]
    for record in records:
        replace(record, quick=False).append_to(tmp_path / "full.jsonl")
    monkeypatch.setattr(recipe_tables, "RECORDS", tmp_path / "full.jsonl")
    recipe_tables.read_records.cache_clear()
    bc, dbc, release = recipe_tables.task_table("maze").splitlines()[2:5]
    training = recipe_tables.training_table()
    recipe_tables.read_records.cache_clear()
    assert bc.startswith("| BC `paper` | bundled | ")
    assert bc.endswith("| 92.1 ± 3.6 | 3 × 2 |")
    assert "(2 seeds)" in dbc
    assert dbc.count("not run") == 1  # the paper's protocol
    assert release.count("not run") == 2
    assert "| maze | DBC `paper` | 1 to 2 | 64 |" in training


def test_a_row_is_compared_with_bc_of_its_own_precision_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "train", "maze", "bc", "0-1")
    bc = run(tmp_path, "evaluate", "maze", "bc", "0-1")[-1]
    monkeypatch.setattr(recipe_tables, "RECORDS", tmp_path / "full.jsonl")

    def append(preset: str, precision: str, success: list[str]) -> list[list[str]]:
        outcomes = {**bc.results["outcomes"], "success": success}
        results = {**bc.results, "preset": f"maze/{preset}", "precision": precision, "outcomes": outcomes}
        replace(bc, results=results, quick=False).append_to(tmp_path / "full.jsonl")
        recipe_tables.read_records.cache_clear()
        rows = [line.split(" | ") for line in recipe_tables.task_table("maze").splitlines()[2:]]
        recipe_tables.read_records.cache_clear()
        return [[row[0], row[3]] for row in rows if row[2] != "not run"]

    append("bc/paper", "float32", ["00", "00"])
    rows = append("dbc/paper", "tf32", ["11", "11"])
    assert rows[1] == ["| DBC `paper`, TF32", "+100.0 (+100.0 … +100.0), to float32 BC"]
    rows = append("bc/paper", "tf32", ["10", "10"])
    assert [name for name, _ in rows] == ["| BC `paper`", "| BC `paper`, TF32", "| DBC `paper`, TF32"]
    assert rows[2][1].startswith("+50.0 (")
    assert rows[2][1].endswith(")")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert parse_seeds("0-9") == tuple(range(10))
    assert parse_seeds("3") == (3,)
    for arguments, message in (
        (("train", "maze", "bc", "a-b"), "seeds must be like 0-9 or 3; they are 'a-b'"),
        (("guide", "maze", "bc"), "bc has no guide"),
        (("evaluate", "maze", "bc", "0"), "is not a run"),
        (("train", "moon", "bc", "0"), "moon/bc/paper"),
    ):
        with pytest.raises(SystemExit, match=message):
            run(tmp_path, *arguments)
