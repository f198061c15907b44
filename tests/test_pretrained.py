import json
from pathlib import Path

import numpy as np
import pytest
import torch

from diffclone import BC, Demonstrations, Network, Policy, Training, evaluate, fit, pretrained
from diffclone.cli.main import main
from diffclone.deploy.pretrained import FOLDER, pretrained_names
from diffclone.errors import InvalidSettings
from diffclone.experiments import PRESETS
from diffclone.settings import to_dict
from diffclone.tasks import BUNDLED, TASKS

MAX_BYTES = 8 * 2**20


def test_every_task_has_a_small_pretrained_policy() -> None:
    assert {name.split("/")[0] for name in pretrained_names()} == {task.name for task in BUNDLED}
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MAX_BYTES


@pytest.mark.parametrize("name", pretrained_names())
def test_each_policy_matches_its_task_and_a_preset(name: str) -> None:
    policy, (task, method) = pretrained(name), name.split("/")
    assert (policy.dims.obs, policy.dims.act) == (TASKS[task].obs_size, TASKS[task].act_size)
    assert policy.data["fingerprint"] == TASKS[task].demonstrations().fingerprint
    assert len(policy) == 1
    assert policy.members[0]["seed"] == 0
    known = [to_dict(preset.method) for key, preset in PRESETS.items() if key.startswith(f"{task}/{method}/")]
    assert to_dict(policy.method) in known


@pytest.mark.parametrize("name", ["maze", "maze/bc", "fetch-pick"])
def test_most_episodes_succeed(name: str) -> None:
    assert evaluate(pretrained(name), name.split("/")[0], episodes=20).success_rate > 0.6


def test_evaluate_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["evaluate", "--pretrained", "maze", "--episodes", "5", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert (record["results"]["task"], record["results"]["episodes"]) == ("maze", 5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pretrained", "mase"], "the package has no policy named 'mase'; it has ant-reach/dbc"),
        ([], "name one policy: the folder of a run, or --pretrained"),
        (["somewhere", "--pretrained", "maze"], "name one policy"),
    ],
)
def test_mistakes_give_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_half_precision_halves_the_file_and_hardly_changes_actions(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    demos = Demonstrations.from_arrays(x, np.sin(3 * x[:, :2]), episode_ends=[200])
    policy = fit(BC(training=Training(updates=50), network=Network(width=64)), demos, device="cpu")
    policy.save(tmp_path / "whole")
    policy.save(tmp_path / "half", half=True)
    sizes = [(tmp_path / folder / "model.safetensors").stat().st_size for folder in ("whole", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    again = Policy.load(tmp_path / "half")
    assert {p.dtype for p in again.net.parameters()} == {torch.float32}
    assert np.allclose(again(x), policy(x), atol=0.01)
    assert not np.array_equal(again(x), policy(x))


def test_an_unknown_name_is_refused_in_python() -> None:
    with pytest.raises(InvalidSettings, match="no policy named 'door'"):
        pretrained("door")
