import json
from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from diffclone.experiments import EXPERIMENTS
from diffclone.experiments.plan import plan
from diffclone.experiments.record_index import QUICK_PAIRS
from diffclone.experiments.specification import RunOptions
from diffclone.tasks import TASKS


def test_a_quick_experiment_runs_and_is_not_repeated(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache"]
    code, out, _ = diffclone("reproduce", "manifold", *flags, "--json")
    assert code == 0
    (table,) = json.loads(out)
    assert table["quick"]
    assert [cell["ours"]["seeds"] for cell in table["cells"]] == [2, 2, 2]
    (samples,) = table["measured"]["samples"]
    shapes = [np.array(samples["results"][key]).shape for key in ("states", "expert", "sampled")]
    assert shapes == [(20, 2)] * 3
    assert [r["results"]["label"] for r in table["measured"]["trajectories"]] == ["expert", "BC", "DM", "DBC"]
    assert np.array(table["measured"]["trajectories"][1]["results"]["paths"]).shape == (2, 160, 2)

    before = (tmp_path / "out" / "records.jsonl").read_text()
    code, out, err = diffclone("reproduce", "manifold", *flags)
    assert code == 0
    assert "Everything is done already" in err
    assert "says nothing about the methods" in out
    assert (tmp_path / "out" / "records.jsonl").read_text() == before
    code, out, _ = diffclone("reproduce", "manifold", *flags, "--plan", "--json")
    assert json.loads(out) == []


def test_pairs_are_generated_once(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache", "--json"]
    code, out, err = diffclone("reproduce", "augmentation", *flags)
    assert code == 0, err
    real, both, gain = json.loads(out)[0]["cells"]
    assert both["ours"]["record"]["data"]["steps"] == real["ours"]["record"]["data"]["steps"] + QUICK_PAIRS
    assert gain["ours"]["mean"] == pytest.approx(both["ours"]["mean"] - real["ours"]["mean"])
    assert len(list((tmp_path / "out" / "data").iterdir())) == 1
    _, _, err = diffclone("reproduce", "augmentation", *flags)
    assert "Everything is done already" in err


def test_two_workers(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--only", "spiral,walker", "--workers", "2", "--out", tmp_path / "out", "--json"]
    code, out, err = diffclone("reproduce", "multimodality", *flags)
    assert code == 0, err
    (table,) = json.loads(out)
    ratios = [record["results"]["ratio"] for record in table["measured"]["multimodality"]]
    assert len(ratios) == 2
    assert all(0.1 < ratio <= 1 for ratio in ratios)


def test_demonstrations_from_a_file(tmp_path: Path, diffclone: Command) -> None:
    demos = TASKS["spiral"].demonstrations().take([0, 1, 2])
    demos.save(tmp_path / "mine.npz")
    flags = ["--quick", "--only", "spiral", "--data", f"spiral={tmp_path / 'mine.npz'}", "--out", tmp_path / "out"]
    code, out, _ = diffclone("reproduce", "multimodality", *flags, "--json")
    assert code == 0
    (record,) = json.loads(out)[0]["measured"]["multimodality"]
    assert record["data"]["fingerprint"] == demos.fingerprint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["multimodalty"], "did you mean 'multimodality'"),
        ([], "name the experiments to run"),
        (["pixels", "--only", "pixel"], "neither"),
        (["pixels", "--seeds", "0"], "at least one seed"),
        (["claims", "pixels"], "claims is run alone"),
        (["pixels", "--workers", "0"], "at least one worker"),
        (["pixels", "--plan", "--device", "gpu"], "unknown device"),
        (["pixels", "--data", "car-racing"], "TASK=FILE"),
        (["pixels", "--data", "car=x.npz"], "unknown task"),
        (["pixels", "--data", "car-racing=nowhere.npz"], "nowhere.npz"),
    ],
)
def test_a_user_error_is_one_line(arguments: list[str], said: str, tmp_path: Path, diffclone: Command) -> None:
    code, _, err = diffclone("reproduce", *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_another_folder_is_not_changed(tmp_path: Path, diffclone: Command) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    code, _, err = diffclone("reproduce", "pixels", "--quick", "--out", tmp_path)
    assert code == 2
    assert "Nothing was changed" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_claims_are_planned_run_and_decided(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--only", "spiral", "--device", "cpu", "--out", tmp_path / "out", "--no-cache"]
    code, out, err = diffclone("reproduce", "claims", *flags, "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    spiral = [row for row in rows if row["on"] == "Spiral, brief schedule"]
    assert len(spiral) >= 4
    assert {(row["verdict"], row["reason"], row["quick"]) for row in spiral} == {("unresolved", "quick", True)}
    assert {row["verdict"] for row in rows if row not in spiral} == {"not run"}
    code, out, _ = diffclone("reproduce", "claims", *flags, "--plan", "--json")
    assert json.loads(out) == []
    code, out, _ = diffclone("reproduce", "claims", "--plan", "--json", "--device", "cuda", "--out", tmp_path / "new")
    planned = json.loads(out)
    jobs, stages = ([row for row in planned if (key in row)] for key in ("name", "setting"))
    assert {job["name"].split("-")[-2] for job in jobs if job["name"].startswith("walker-dbc")} >= {"paper"}
    assert all(job["members"] % 10 == 0 for job in jobs)
    assert {stage["method"] for stage in stages} == {"BC", "DBC (paper)", "Diffusion Policy", "IBC"}


def test_a_plan_runs_nothing(tmp_path: Path, diffclone: Command) -> None:
    code, out, _ = diffclone("reproduce", "all", "--plan", "--device", "cuda", "--out", tmp_path / "out", "--json")
    assert code == 0
    planned = json.loads(out)
    assert len(planned) == len(plan(list(EXPERIMENTS.values()), RunOptions(), []))
    assert all(job["seconds"] >= 0 for job in planned)
    assert not (tmp_path / "out").exists()


def test_a_training_keeps_its_precision(tmp_path: Path, diffclone: Command) -> None:
    flags = ["gradient-field", "--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache", "--json"]
    assert diffclone("reproduce", *flags, "--precision", "bfloat16")[0] == 0
    (tmp_path / "out" / "records.jsonl").unlink()
    code, out, err = diffclone("reproduce", *flags)
    assert code == 0, err
    (table,) = json.loads(out)
    assert len(table["measured"]["field"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_with_quick(name: str, tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache", "--json"]
    code, out, err = diffclone("reproduce", name, *flags)
    assert code == 0, err
    (table,) = json.loads(out)
    # Policies with so little training may never succeed: then a drop cannot be computed.
    absent = {cell["reason"] for cell in table["cells"] if cell["ours"] is None}
    assert absent <= {"division by 0"}
    count = sum(len(records) for records in table["measured"].values())
    assert count == len(EXPERIMENTS[name].measurements)
