"""Files that version 0.1.0 wrote still work. tests/fixtures/make_version_0_1_0.py made them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diffclone import Demonstrations, Policy
from diffclone.deploy import runtime
from diffclone.files import read_json, read_lines
from diffclone.fit import FitOptions
from diffclone.methods import METHODS
from diffclone.records import Record
from diffclone.settings import differences, from_dict, to_dict
from diffclone.training.runs import Run, train_run

OLD = Path(__file__).parent / "fixtures" / "version_0_1_0"
EXPECTED: dict[str, npt.NDArray[Any]] = dict(np.load(OLD / "expected.npz"))
OBS = EXPECTED["obs"]
POLICIES = sorted(path.name for path in (OLD / "policies").iterdir())


def assert_close(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Compare to the digits in which processors agree."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_there_is_a_policy_of_every_method_and_guide() -> None:
    assert [
        "bc",
        *(f"dbc-{guide}" for guide in ("diffusion", "energy", "gan", "vae")),
        "diffusion-policy",
        "ibc",
        "ibc-langevin",
    ] == POLICIES


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_loads_and_acts_the_same(name: str) -> None:
    policy = Policy.load(OLD / "policies" / name)
    assert [member["seed"] for member in policy.members] == [1, 2]
    assert_close(policy(OBS), EXPECTED[name])


@pytest.mark.parametrize("name", POLICIES)
def test_settings_are_written_as_before(name: str) -> None:
    check_settings(read_json(OLD / "policies" / name / "config.json")["method"])


def test_settings_with_an_encoder_are_written_as_before() -> None:
    check_settings(read_json(OLD / "settings.json"))


def check_settings(old: dict[str, Any]) -> None:
    """Settings identify runs and Records: what is the same must read the same."""
    again = json.loads(json.dumps(to_dict(from_dict(METHODS, old))))
    assert not differences(again, old)


def test_demonstrations_have_the_same_fingerprint() -> None:
    demos = Demonstrations.load(OLD / "demonstrations.npz")
    assert demos.fingerprint == read_json(OLD / "run" / "run.json")["data"]["fingerprint"]


def test_a_finished_run_loads_with_its_guide_monitor_and_records() -> None:
    run = Run(OLD / "run")
    policy = run.policy()
    assert_close(policy(OBS), EXPECTED["run"])
    assert policy.guide is not None
    assert len(policy.guide) == 4
    assert policy.guide.cost(OBS, EXPECTED["run"][1]).shape == (4, len(OBS))
    score = policy.monitor(OBS, EXPECTED["run"][1])
    for part in ("state", "action", "both"):
        np.testing.assert_allclose(getattr(score, part), EXPECTED[f"score-{part}"], rtol=1e-3)
    assert score.alarm is not None
    training, evaluation = Record.read_all(run.records)
    assert (training.kind, evaluation.kind) == ("training", "evaluation")
    assert training.settings == read_json(run.folder / "run.json")["method"]
    assert evaluation.results["episodes"] == 2
    assert {line["stage"] for line in read_lines(run.metrics)} == {"guide", "policy"}


def resume(folder: Path) -> Run:
    identity = read_json(folder / "run.json")
    method = from_dict(METHODS, identity["method"])
    options = FitOptions(seeds=identity["seeds"], vary=identity["vary"], device="cpu")
    return train_run(folder, method, Demonstrations.load(OLD / "demonstrations.npz"), options, task=identity["task"])


def test_training_again_does_not_change_a_finished_run(tmp_path: Path) -> None:
    shutil.copytree(OLD / "run", tmp_path / "run")
    assert_close(resume(tmp_path / "run").policy()(OBS), EXPECTED["run"])
    for name in ("policy/model.safetensors", "records.jsonl", "metrics.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (OLD / "run" / name).read_bytes()


@pytest.mark.parametrize("stage", ["guide", "policy"])
def test_an_interrupted_run_resumes_as_the_old_version_would(stage: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(OLD / f"interrupted-{stage}", folder)
    run = resume(folder)
    assert_close(run.policy()(OBS), EXPECTED[f"interrupted-{stage}"])
    updates = [line["update"] for line in read_lines(run.metrics) if line["stage"] == stage]
    assert updates == sorted(set(updates))
    assert updates[0] < 64


def test_an_exported_file_acts_the_same() -> None:
    policy = runtime.load(OLD / "exported.npz")
    assert_close(policy(OBS), EXPECTED["run"][2])
