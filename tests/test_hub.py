import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import yaml

from diffclone import BC, Demonstrations, Network, Policy, Training, fit
from diffclone.deploy.card import model_card
from diffclone.deploy.hub import HubError, find_folder, is_hub_name
from diffclone.errors import InvalidFile, InvalidSettings, MissingPackage, install_command
from diffclone.files import read_json
from diffclone.records import Record
from diffclone.settings import to_dict

METHOD = BC(training=Training(updates=20), network=Network(width=16))
OBS = np.random.default_rng(0).uniform(-1, 1, (60, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def policy() -> Policy:
    demos = Demonstrations.from_arrays(OBS, np.sin(OBS[:, :2]), episode_ends=[60])
    return fit(METHOD, demos, seeds=(0,), device="cpu")


def evaluation(success: float | None, **options: Any) -> Record:
    results = {
        "task": "Pendulum-v1",
        "options": options,
        "starts": "evaluation",
        "protocol": "fixed",
        "members": 1,
        "episodes": 20,
        "mean_return": -150.5,
        "return_interval": [-160.0, -140.0],
        "success_rate": success,
        "success_interval": None if success is None else [0.5, 1.0],
    }
    return Record("evaluation", to_dict(METHOD), [{"seed": 0}], {}, results, "cpu", 1.0)


class FakeHub:
    """Stands for huggingface_hub: a folder per model on disk instead of the network."""

    def __init__(self, root: Path):
        self.root = root
        self.created: list[tuple[str, Any]] = []

    def HfApi(self, **_: Any) -> "FakeHub":  # noqa: N802
        return self

    def create_repo(self, repo: str, *, private: bool | None, exist_ok: bool) -> None:
        assert exist_ok
        self.created.append((repo, private))

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str, delete_patterns: list[str]) -> str:
        target = self.root / repo_id
        target.mkdir(parents=True, exist_ok=True)
        for name in delete_patterns:
            (target / name).unlink(missing_ok=True)
        for path in Path(folder_path).iterdir():
            (target / path.name).write_bytes(path.read_bytes())
        return f"commit of {repo_id}: {commit_message}"

    def snapshot_download(
        self, repo: str, *, revision: str | None, token: str | None, allow_patterns: list[str]
    ) -> str:
        if not (self.root / repo).exists():
            raise ConnectionError("404: no such model\nmore lines")
        return str(self.root / repo)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    monkeypatch.chdir(tmp_path)
    fake = FakeHub(tmp_path / "the hub")
    monkeypatch.setattr("diffclone.deploy.hub.import_hub", lambda: fake)
    return fake


def test_a_pushed_policy_comes_back(policy: Policy, hub: FakeHub) -> None:
    (hub.root / "org" / "name").mkdir(parents=True)
    (hub.root / "org" / "name" / "calibration.json").write_text("of an earlier policy")
    commit = policy.push_to_hub(
        "org/name", private=True, license="mit", datasets=["org/data"], evaluations=[evaluation(0.9)], message="First"
    )
    assert commit == "commit of org/name: First"
    assert hub.created == [("org/name", True)]
    again = Policy.from_pretrained("org/name")
    assert np.array_equal(again(OBS), policy(OBS))
    card = (hub.root / "org" / "name" / "README.md").read_text()
    assert 'Policy.from_pretrained("org/name")' in card
    assert "| Pendulum-v1 | evaluation, fixed | 1 × 20 | 0.900 (0.500 … 1.000) | -150.50 (-160.00 … -140.00) |" in card
    assert huggingface_hub.ModelCard(card).data.to_dict()["license"] == "mit"


def test_the_hub_reads_the_metadata_of_the_card(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy")
    config = read_json(tmp_path / "policy" / "config.json")
    card = model_card(
        config, [evaluation(0.9), evaluation(None)], repo="org/name", license="mit", datasets=["org/data"]
    )
    data: Any = huggingface_hub.ModelCard(card).data
    assert (data.license, data.library_name, data.datasets) == ("mit", "diffclone", ["org/data"])
    assert "robotics" in data.tags
    assert data.pipeline_tag == "robotics"
    assert data.metrics == ["mean_reward", "success_rate"]
    assert [(r.dataset_name, r.metric_type, r.metric_value) for r in data.eval_results] == [
        ("Pendulum-v1", "mean_reward", -150.5),
        ("Pendulum-v1", "success_rate", 0.9),
        ("Pendulum-v1", "mean_reward", -150.5),
    ]


def test_a_card_has_only_evaluations_of_its_policy(policy: Policy) -> None:
    config, own = policy.config(), evaluation(0.9)
    both = replace(own, members=[{"seed": 1}, {"seed": 0}])
    others = [
        replace(own, members=[{"seed": 1}]),
        replace(own, settings={**own.settings, "execute": 2}),
        evaluation(0.9, g=5.0),
    ]
    for record in (own, both):
        assert model_card(config, [record]).count("| Pendulum-v1 |") == 1
    guided = {**config, "method": {**config["method"], "guide": {"type": "diffusion"}}}
    older = replace(own, settings={**own.settings, "guide": {"type": "diffusion", "t_shares": 0.5}})  # of version 0.1.0
    assert "None yet" not in model_card(guided, [older])
    card = model_card(config, others)
    assert "None yet" in card
    assert "model-index" not in card
    assert "None yet" in model_card({**config, "members": [{"seed": 0}, {"seed": 1}]}, [own])
    # A task setting can have options of its own.
    trained_on_setting = {**config, "data": {**config["data"], "meta": {"setting": "pendulum-5"}}}
    card = model_card(trained_on_setting, others)
    assert card.count("| Pendulum-v1, g 5.0 |") == 1
    data: Any = huggingface_hub.ModelCard(card).data
    assert {result.dataset_name for result in data.eval_results} == {"Pendulum-v1, g 5.0"}


def test_a_saved_card_is_valid_without_evaluations(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy")
    text = (tmp_path / "policy" / "README.md").read_text()
    metadata = yaml.safe_load(text.split("---\n")[1])
    assert metadata["license"] == "unknown"
    assert not {"metrics", "model-index", "datasets"} & set(metadata)
    assert huggingface_hub.ModelCard(text).data.to_dict()["library_name"] == "diffclone"


def test_a_local_folder_comes_before_the_hub(policy: Policy, hub: FakeHub, tmp_path: Path) -> None:
    policy.save(tmp_path / "org" / "name")
    assert find_folder("org/name") == Path("org/name")
    assert np.array_equal(Policy.from_pretrained("org/name")(OBS), policy(OBS))
    assert not hub.root.exists()


def test_the_cache_of_the_hub_is_used_offline(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real huggingface_hub without a network: a model in its cache is found, another one is refused in one line."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    commit = "0" * 40
    policy.save(tmp_path / "models--org--name" / "snapshots" / commit)
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text(commit)
    assert np.array_equal(Policy.from_pretrained("org/name")(OBS), policy(OBS))
    assert np.array_equal(Policy.from_pretrained("org/name", revision=commit)(OBS), policy(OBS))
    with pytest.raises(
        HubError, match=r"^there is no folder org/other here, and the Hub gave no model org/other: .+"
    ) as e:
        Policy.from_pretrained("org/other")
    assert "\n" not in str(e.value)
    with pytest.raises(HubError, match="could not be uploaded to org/name") as e:
        policy.push_to_hub("org/name")
    assert "\n" not in str(e.value)


def test_what_is_not_on_the_hub_is_refused_in_one_line(policy: Policy, hub: FakeHub) -> None:
    with pytest.raises(HubError, match=r"the Hub gave no model org/missing: 404: no such model$"):
        Policy.from_pretrained("org/missing")
    with pytest.raises(InvalidFile, match="there is no folder runs/a/policy, and it is not the name of a model"):
        Policy.from_pretrained("runs/a/policy")
    with pytest.raises(InvalidSettings, match="named organisation/name; 'name' is not"):
        policy.push_to_hub("name")
    assert not hub.created


def test_a_model_of_another_library_is_refused(hub: FakeHub) -> None:
    (hub.root / "org" / "act").mkdir(parents=True)
    (hub.root / "org" / "act" / "config.json").write_text(json.dumps({"type": "act"}))
    with pytest.raises(InvalidFile, match=r"is not the config\.json of a policy"):
        Policy.from_pretrained("org/act")


def test_without_the_package(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackage, match=re.escape(install_command("hub"))):
        policy.push_to_hub("org/name")


def test_names_of_the_hub() -> None:
    assert all(map(is_hub_name, ["org/name", "org/name.v1"]))
    assert not any(map(is_hub_name, ["name", "a/b/c", "../x", "/x", "a b/c"]))
