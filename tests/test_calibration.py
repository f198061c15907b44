import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tyro

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.cli.calibrate import Calibrate
from diffclone.deploy.calibration import Rollouts, collect_rollouts, conformal_threshold, make_monitor
from diffclone.deploy.monitor import PARTS, Calibration, Monitor
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings, UnknownMember, UnknownName
from diffclone.evaluation import START_SEEDS
from diffclone.fit import FitOptions
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training.runs import Run, train_run

ROOT = Path(__file__).parents[1]
DEMOS = TASKS["maze"].demonstrations()
TRAINED, HELD_OUT = DEMOS.take(range(25)), DEMOS.take(range(80, 100))
POLICY = Training(updates=200, lr=5e-3)
GUIDE = DiffusionGuide(training=Training(updates=64, lr=1e-3), width=16, depth=2, steps=100)


def train(folder: Path, method: BC | DBC, demos: Demonstrations) -> Run:
    return train_run(folder, method, demos, FitOptions(seeds=(0, 1), device="cpu"), task="maze")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two members that succeed in some episodes and fail in others. Tests work on copies."""
    method = DBC(training=POLICY, network=Network(width=32, depth=2), coefficient=0.1, away=0.0, guide=GUIDE)
    return train(tmp_path_factory.mktemp("trained") / "run", method, TRAINED).folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(finished, tmp_path / "run")))


@pytest.fixture
def held_out(tmp_path: Path) -> str:
    HELD_OUT.save(tmp_path / "held_out.npz")
    return str(tmp_path / "held_out.npz")


def read_calibration(run: Run) -> Calibration:
    return Calibration.from_dict(json.loads((run.folder / "policy" / "calibration.json").read_text()))


# Rollouts.


def test_rollouts_repeat_in_the_environment(run: Run) -> None:
    rollouts = collect_rollouts(run.policy()[1], "maze", episodes=4, starts="evaluation")
    assert rollouts.success.shape == (4,)
    one, env = np.zeros(1, dtype=np.int64), TASKS["maze"].make(1)
    for episode, (obs, act) in enumerate(rollouts.steps.episodes()):
        env.reset(one, [np.random.default_rng(START_SEEDS["evaluation"] + episode)])
        for seen, done in list(zip(obs, act, strict=True))[:50]:
            np.testing.assert_allclose(env.observe(one)[0], seen, atol=1e-4)
            env.step(one, done[None])
    env.close()


def test_rollouts_need_one_member(run: Run) -> None:
    with pytest.raises(InvalidSettings, match="this policy has 2"):
        collect_rollouts(run.policy(), "maze", episodes=1)


def test_each_member_has_its_guide(run: Run) -> None:
    first, second = make_monitor(run.policy(), 0), make_monitor(run.policy(), 1)
    assert first.fingerprint != second.fingerprint
    with pytest.raises(UnknownMember, match="member 2 does not exist"):
        make_monitor(run.policy(), 2)


# The command.


def test_calibrate_on_demonstrations(run: Run, held_out: str, capsys: pytest.CaptureFixture[str]) -> None:
    Calibrate(run.folder, data=held_out, alpha=0.1, member=1).run()
    printed = capsys.readouterr().err
    assert re.fullmatch(r"wrote \S*calibration.json: thresholds state .*; 20 episodes, alpha 0.1, member 1.\n", printed)
    monitor, found = make_monitor(run.policy(), 1), read_calibration(run)
    assert (found.episodes, found.member, found.guide) == (20, 1, monitor.fingerprint)
    assert found.source == {"demonstrations": HELD_OUT.fingerprint, "steps": HELD_OUT.num_steps}
    maxima = monitor.episode_maxima(HELD_OUT)
    for name in PARTS:
        assert getattr(found, name) == conformal_threshold(maxima[name], 0.1)
    # The policy folder contains everything the monitor needs.
    policy = run.policy()
    loaded = Monitor.load(run.folder / "policy", policy.method, policy.normaliser)
    alarm = loaded.score(HELD_OUT.obs, HELD_OUT.act).alarm
    assert alarm is not None
    alarmed = np.logical_or.reduceat(alarm.both, HELD_OUT.episode_ends - HELD_OUT.lengths)
    assert alarmed.sum() == 20 - np.ceil(21 * 0.9)


def test_calibrate_on_successful_rollouts(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    command = [str(run.folder), "--env", "maze", "--episodes", "12", "--alpha", "0.4", "--json"]
    tyro.cli(Calibrate, args=command).run()
    printed, found = json.loads(capsys.readouterr().out), read_calibration(run)
    rollouts = collect_rollouts(run.policy()[0], "maze", episodes=12)
    assert 2 <= rollouts.success.sum() < 12, "the fixture must have successes and failures"
    assert found.episodes == printed["episodes"] == rollouts.success.sum()
    assert found.source["starts"] == "validation"
    assert found.both == conformal_threshold(
        make_monitor(run.policy(), 0).episode_maxima(rollouts.successes)["both"], 0.4
    )


def test_a_calibration_is_replaced_only_with_again(run: Run, held_out: str) -> None:
    Calibrate(run.folder, data=held_out, alpha=0.1).run()
    before = read_calibration(run)
    with pytest.raises(InvalidFile, match=r"is not overwritten\. Add --again to replace it"):
        Calibrate(run.folder, data=held_out, alpha=0.2).run()
    assert read_calibration(run) == before
    Calibrate(run.folder, data=held_out, alpha=0.2, again=True).run()
    assert read_calibration(run).alpha == 0.2


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({}, InvalidSettings, "has no known held-out episodes"),
        ({"data": "maze", "env": "maze"}, InvalidSettings, "--data and --env exclude each other"),
        ({"skip_trained": True}, InvalidSettings, "--skip-trained needs --data"),
        ({"data": "maze"}, InvalidData, "25 of 100 episodes are in the training data .*--skip-trained"),
        ({"data": "maze", "options": ("a=1",)}, InvalidSettings, "--options need --env TASK"),
        ({"data": "maze", "alpha": 0.005, "skip_trained": True}, InvalidData, "needs at least 199 .* there are 75"),
        ({"data": "maze", "alpha": 2.0, "skip_trained": True}, InvalidSettings, "alpha must be a probability"),
        ({"data": "spiral", "alpha": 0.2, "member": 7}, UnknownMember, "member 7 does not exist"),
        ({"data": "fetch-pick"}, InvalidData, r"expects \(6,\) and \(2,\)"),
        ({"env": "mazes"}, UnknownName, "did you mean 'maze'"),
        ({"env": "walker"}, InvalidSettings, "reports returns but no successes"),
        ({"env": "maze", "alpha": 0.0}, InvalidSettings, "alpha must be a probability"),
        ({"env": "maze", "episodes": 3}, InvalidData, r"\d of 3 episodes succeeded; alpha 0.05 needs at least 19"),
        ({"env": "maze", "options": ("a=1",)}, InvalidSettings, "no option 'a'"),
    ],
)
def test_errors_leave_nothing_behind(run: Run, flags: dict[str, Any], error: type[Exception], message: str) -> None:
    before = sorted((run.folder / "policy").iterdir())
    with pytest.raises(error, match=message):
        Calibrate(run.folder, **flags).run()
    assert sorted((run.folder / "policy").iterdir()) == before


def test_a_run_without_a_diffusion_guide_is_refused(tmp_path: Path) -> None:
    run = train(tmp_path / "bc", BC(training=Training(updates=1), network=Network(width=4, depth=1)), TRAINED)
    with pytest.raises(InvalidSettings, match="this BC policy has no guide"):
        Calibrate(run.folder, data="maze", skip_trained=True).run()
    with pytest.raises(InvalidFile, match="is not a run"):
        Calibrate(tmp_path, data="maze").run()


# The benchmark.


def import_file(path: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def monitoring(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_file("benchmarks/monitoring.py", monkeypatch)


def test_auroc_of_an_example(monitoring: Any) -> None:
    failed: npt.NDArray[np.bool_] = np.array([True, True, False, False])
    assert monitoring.auroc(np.array([3.0, 1.0, 2.0, 1.0]), failed) == (1 + 1 + 0 + 0.5) / 4
    assert monitoring.auroc(np.array([3.0, 1.0]), np.array([True, True])) is None
    low, high = monitoring.auroc_interval(np.array([3.0, 1.0, 2.0, 1.0]), failed)
    assert 0 <= low < 0.625 < high <= 1


def test_maxima_and_first_alarm_of_an_episode(monitoring: Any) -> None:
    steps = Demonstrations.from_arrays(np.zeros((5, 1)), np.zeros((5, 1)), episode_ends=[3, 5])
    found = monitoring.detect(np.array([1.0, 4.0, 8.0, 1.0, 2.0]), 2.0, Rollouts(steps, np.array([False, True])), 2)
    assert found.failed.tolist() == [True, False]
    assert found.peak.tolist() == [4.0, 1.0]
    assert found.early.tolist() == [2.0, 1.0]
    assert found.first.tolist() == [2.0, np.inf]


def test_the_benchmark_evaluates_every_score(
    monitoring: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(monitoring.NOISES, "maze", ((), (0.0,)))
    monkeypatch.setattr(monitoring, "DISTILLATION_UPDATES", 10)
    with pytest.raises(InvalidSettings, match="not trained on the bundled demonstrations"):
        monitoring.Monitoring((run.folder,), episodes=6).run()
    monkeypatch.setattr(type(TASKS["maze"]), "demonstrations", lambda task: TRAINED)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monitoring.Monitoring((run.folder,), episodes=10, alpha=0.5, out=tmp_path / "monitor.jsonl").run()
    [record] = Record.read_all(tmp_path / "monitor.jsonl")
    found = record.results["detectors"]
    assert len(found) == 9
    for by_level in found.values():
        assert set(by_level) == {"0", "all"}
        assert by_level["all"]["successes"] + by_level["all"]["failures"] == 20
        assert by_level["all"]["detected"] <= by_level["all"]["failures"]


def test_the_table_of_the_docs_has_one_row_per_score(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = import_file("docs/monitor_tables.py", monkeypatch)
    for record in Record.read_all(ROOT / "docs/records/monitor.jsonl"):
        lines = tables.task_table(record).splitlines()
        assert len(lines) == 5 + len(record.results["detectors"])
        assert len({line.count("|") for line in lines[2:]}) == 1
    page = (ROOT / "docs/monitor.md").read_text(encoding="utf-8")
    assert f"<!-- records: monitor -->\n{tables.monitor_table()}\n<!-- end -->" in page
