"""What the arguments of commands name: policies in runs, snapshots and folders; tasks, settings and environments."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import Command, assert_error
from diffclone import BC, Demonstrations, Network, Policy, Training
from diffclone.cli.arguments import find_demonstrations
from diffclone.cli.hints import next_evaluation
from diffclone.cli.sources import find_policy
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings, install_command
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.fit import FitOptions
from diffclone.records import Record
from diffclone.training.runs import Run, train_run

RNG = np.random.default_rng(0)
TINY = BC(training=Training(updates=4, batch=8), network=Network(width=8, depth=1))
OPTIONS = FitOptions(seeds=(0, 1), snapshots=(2,), device="cpu")


def pendulum_like(**meta: object) -> Demonstrations:
    obs = RNG.uniform(-1, 1, (60, 3)).astype(np.float32)
    return Demonstrations.from_arrays(obs, obs[:, :1], episode_ends=[30, 60], meta=meta)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file that does not say where it was recorded, with a snapshot."""
    return train_run(tmp_path_factory.mktemp("sources") / "run", TINY, pendulum_like(), OPTIONS).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_policy_is_found_in_a_run_and_in_its_folders(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obs = RNG.uniform(-1, 1, (5, 3)).astype(np.float32)
    last, early = Run(run).policy(), Run(run).snapshot(2)
    assert not np.array_equal(last(obs), early(obs))
    for folder in (run, run / "policy"):
        assert np.array_equal(Policy.load(folder)(obs), last(obs))
        found = find_policy(folder)
        assert (found.run, found.snapshot) == (Run(run), None)
        assert np.array_equal(found.load()(obs), last(obs))
    snapshot = find_policy(run / "snapshots" / "2")
    assert (snapshot.run, snapshot.snapshot) == (Run(run), 2)
    assert np.array_equal(snapshot.load()(obs), early(obs))
    assert np.array_equal(Policy.load(run / "snapshots" / "2")(obs), early(obs))
    last.save(tmp_path / "alone")
    assert find_policy(tmp_path / "alone").run is None
    assert np.array_equal(find_policy(tmp_path / "alone").load()(obs), last(obs))
    monkeypatch.chdir(run / "policy")
    assert np.array_equal(find_policy(Path()).load()(obs), last(obs))


def test_folders_without_a_policy_are_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"run2 is not a run: there is no such folder; did you mean .*run\?"):
        find_policy(tmp_path / "run2")
    with pytest.raises(InvalidFile, match=r"not a run: it has no run\.json"):
        find_policy(tmp_path).load()
    with pytest.raises(InvalidSettings, match=r"is the snapshot of update 2; leave out --snapshot 4\."):
        find_policy(run / "snapshots" / "2", snapshot=4)
    shutil.copytree(run / "snapshots" / "2", run / "snapshots" / "2-old")
    assert Run(run).snapshot_updates == [2]
    with pytest.raises(InvalidFile, match="is no snapshot: '2-old' is not the number of an update"):
        find_policy(run / "snapshots" / "2-old")
    Policy.load(run).save(tmp_path / "alone")
    with pytest.raises(InvalidFile, match="alone is a single policy"):
        find_policy(tmp_path / "alone", snapshot=2)
    shutil.rmtree(run / "policy")
    with pytest.raises(InvalidFile, match="has not finished training"):
        find_policy(run).load()
    with pytest.raises(DiffcloneError):
        Policy.load(run)


@pytest.mark.parametrize("inside", ["", "policy", "snapshots/2"])
def test_evaluate_takes_the_folder_of_a_run_or_of_its_policies(diffclone: Command, run: Path, inside: str) -> None:
    result = diffclone("evaluate", run / inside, "--env", "Pendulum-v1", "--episodes", "1", "--json")
    assert result.code == 0, result.err
    record = Record.read_all(run / "records.jsonl")[-1]
    assert record.results == json.loads(result.out)["results"]
    assert record.results.get("snapshot") == (2 if inside.startswith("snapshots") else None)


def test_a_policy_outside_a_run_is_evaluated_without_records(diffclone: Command, run: Path, tmp_path: Path) -> None:
    Policy.load(run).save(tmp_path / "alone")
    before = sorted((tmp_path / "alone").iterdir())
    assert diffclone("evaluate", tmp_path / "alone", "--env", "Pendulum-v1", "--episodes", "1").code == 0
    assert sorted((tmp_path / "alone").iterdir()) == before


def test_where_a_policy_acts(diffclone: Command, run: Path, tmp_path: Path) -> None:
    assert_error(diffclone("evaluate", run), "a file of no known task; add --env ID for a Gymnasium environment")
    assert_error(diffclone("evaluate", run, "--task", "Pendulum-v1"), "use --env Pendulum-v1")
    assert_error(diffclone("evaluate", run, "--task", "maze", "--env", "Pendulum-v1"), "exclude each other")
    assert_error(diffclone("evaluate", run, "--env", "Pendlum-v1"), "Pendlum.*Did you mean")
    assert_error(diffclone("evaluate", run, "--env", "ID"), r"ID is no Gymnasium environment\. An ID is Pendulum-v1")
    assert_error(diffclone("evaluate", run, "--env", "Pendulum"), "no Gymnasium environment; did you mean Pendulum-v1")
    # Demonstrations that name their environment need no flag. A name that would import a module is not used.
    for name, known in (("Pendulum-v1", True), ("os:Pendulum-v1", False), (3, False)):
        made = train_run(tmp_path / f"named {name}", TINY, pendulum_like(environment=name), OPTIONS)
        place = find_policy(made.folder).place(made.policy())
        assert (place is not None and place.name == "Pendulum-v1") == known
        hint = next_evaluation(made.folder, made.policy())
        assert hint.endswith(f"evaluate '{made.folder}'" + ("" if known else " --env ID"))


def test_a_task_setting_gives_demonstrations_and_options(tmp_path: Path) -> None:
    setting = TASK_SETTINGS["ant-reach-20"]
    task, demos = find_demonstrations("ant-reach-20")
    assert (task, demos.fingerprint) == ("ant-reach", setting.load_demonstrations().fingerprint)
    made = train_run(tmp_path / "run", TINY, demos, OPTIONS, task=task)
    place = find_policy(made.folder).place(made.policy())
    assert place is not None
    assert (place.name, place.options) == ("ant-reach", {"start_noise": 0.07})
    plain = train_run(tmp_path / "plain", TINY, replace(demos, meta={}), OPTIONS, task=task)
    place = find_policy(plain.folder).place(plain.policy())
    assert place is not None
    assert (place.name, place.options) == ("ant-reach", {})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("demos", r"no such file: demos; did you mean demo\.npz\?"),
        ("demo.npy", r"no such file: demo\.npy; did you mean demo\.npz\?"),
        ("sub/demo.npz", r"no such file: sub/demo\.npz\.$"),
        ("fetch-pick-72", "no file and no task is named 'fetch-pick-72'; did you mean the task 'fetch-pick-27'"),
        ("quite another", "no file and no task is named 'quite another'. Tasks: adroit/pen, ant-reach"),
    ],
)
def test_a_wrong_name_of_data_suggests_files_before_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pendulum_like().save("demo.npz")
    with pytest.raises(DiffcloneError, match=message):
        find_demonstrations(data)


def test_train_and_evaluate_on_a_setting(diffclone: Command, tmp_path: Path) -> None:
    brief = ("--method", "bc", "--seeds", "1", "--training.updates", "2", "--network.width", "8", "--device", "cpu")
    assert diffclone("train", "spiral-1", *brief, "--out", tmp_path / "run").code == 0
    result = diffclone("evaluate", tmp_path / "run", "--episodes", "1", "--json")
    assert json.loads(result.out)["results"]["options"] == {"start_noise": 0.05}
    result = diffclone("evaluate", tmp_path / "run", "--task", "spiral", "--episodes", "1", "--json")
    assert json.loads(result.out)["results"]["options"] == {}


def test_the_command_that_installs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        origin: str | None = None

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.origin

    installed = Installed()

    def find(name: str) -> Installed:
        assert name == "diffclone"
        return installed

    monkeypatch.setattr("importlib.metadata.distribution", find)
    assert install_command("serve") == "pip install 'diffclone[serve]'"
    for editable, command in ((True, "pip install -e '/a clone[serve]'"), (False, "pip install 'diffclone[serve]'")):
        installed.origin = json.dumps({"url": "file:///a%20clone", "dir_info": {"editable": editable}})
        assert install_command("serve") == command
    installed.origin = json.dumps({"url": "https://example.org/diffclone.whl", "archive_info": {}})
    assert install_command("serve") == "pip install 'diffclone[serve]'"
