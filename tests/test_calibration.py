import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.cli.calibrate import Calibrate
from diffclone.cli.serve import describe_other_member
from diffclone.deploy.calibration import collect_rollouts, make_monitor
from diffclone.deploy.monitor import EpisodeMonitor, Monitor, split_episodes
from diffclone.deploy.monitors.calibrated import Calibration
from diffclone.deploy.monitors.thresholds import conformal_threshold
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings, UnknownMember, UnknownName
from diffclone.evaluation import START_SEEDS
from diffclone.fit import FitOptions
from diffclone.tasks import TASKS
from diffclone.training.runs import Run, train_run

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


def episode_maxima(monitor: Monitor, demos: Demonstrations) -> list[float]:
    """Return the largest score of each episode."""
    return [float(y.max()) for y in split_episodes(monitor.values(demos.obs, demos.act)["both"], demos)]


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
    Calibrate(run.folder, data=held_out, alpha=0.1, member=1, score="nearest").run()
    printed = capsys.readouterr().err
    first = r"wrote \S*calibration.json: score nearest, band threshold, mean of 5 steps; .* both \S+; member 1\.\n"
    precision = r"13 calibration episodes and 7 for the shape, .* between 0.2 and 24.7 % with .* float32\.\n"
    assert re.fullmatch(first + precision, printed)
    monitor, found = make_monitor(run.policy(), 1, "nearest", TRAINED), read_calibration(run)
    assert (found.episodes, found.member, found.fingerprint) == (13, 1, monitor.fingerprint)
    assert found.source == {"demonstrations": HELD_OUT.fingerprint, "steps": HELD_OUT.num_steps}
    assert found.single["both"] == conformal_threshold(episode_maxima(monitor, HELD_OUT), 0.1)
    # The policy folder contains everything the monitor needs.
    policy = run.policy()
    loaded = Monitor.load(run.folder / "policy", policy.method, policy.normaliser)
    alarm = loaded.score(HELD_OUT.obs, HELD_OUT.act).alarm
    assert alarm is not None
    alarmed = np.logical_or.reduceat(alarm.both, HELD_OUT.episode_ends - HELD_OUT.lengths)
    assert alarmed.sum() == 20 - np.ceil(21 * 0.9)


def test_calibrate_on_successful_rollouts(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    command = [str(run.folder), "--env", "maze", "--episodes", "12", "--alpha", "0.4", "--json", "--score", "nearest"]
    tyro.cli(Calibrate, args=command).run()
    printed, found = json.loads(capsys.readouterr().out), read_calibration(run)
    rollouts = collect_rollouts(run.policy()[0], "maze", episodes=12)
    assert 2 <= rollouts.success.sum() < 12, "the fixture must have successes and failures"
    assert found.episodes + printed["shape_episodes"] == rollouts.success.sum()
    assert found.source["starts"] == "validation"
    monitor = make_monitor(run.policy(), 0, "nearest", TRAINED)
    assert found.single["both"] == conformal_threshold(episode_maxima(monitor, rollouts.successes), 0.4)


def test_flags_choose_scores_band_and_window(run: Run, held_out: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--score", "nearest,disagreement", "--threshold", "band", "--window", "3", "--alpha", "0.2"
    tyro.cli(Calibrate, args=[str(run.folder), "--demos", held_out, *flags]).run()
    assert "score nearest and disagreement, band threshold, mean of 3 steps" in capsys.readouterr().err
    found, policy = read_calibration(run), run.policy()
    assert (found.kind, found.window, found.episodes, found.shape_episodes) == ("band", 3, 13, 7)
    watch = EpisodeMonitor(policy[0].calibrated_monitor)
    assert set(watch(HELD_OUT.obs[0], HELD_OUT.act[0]).values) == {"both", "nearest", "disagreement"}


def test_an_environment_without_success_needs_a_return(run: Run) -> None:
    returns = collect_rollouts(run.policy()[0], "maze", episodes=12).returns
    Calibrate(
        run.folder, env="maze", episodes=12, alpha=0.4, score="nearest", min_return=float(np.median(returns))
    ).run()
    found = read_calibration(run)
    assert (found.source["played"], found.source["succeeded"]) == (12, (returns >= np.median(returns)).sum())


def test_an_environment_of_gymnasium(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(60, 3))
    demos = Demonstrations.from_arrays(obs, obs[:, :1], episode_ends=range(20, 61, 20))
    method = BC(training=Training(updates=1), network=Network(width=4, depth=1))
    run = train_run(tmp_path / "run", method, demos, FitOptions(device="cpu"))
    demos.save(tmp_path / "demos.npz")
    training = str(tmp_path / "demos.npz")
    command: dict[str, Any] = {"env": "Pendulum-v1", "episodes": 3, "alpha": 0.4, "score": "nearest"}
    with pytest.raises(InvalidData, match=r"does not say which demonstrations .* pass --training FILE"):
        Calibrate(run.folder, **command).run()
    with pytest.raises(InvalidSettings, match=r"Pendulum-v1 reports returns but no successes.*--min-return"):
        Calibrate(run.folder, **command, training=training).run()
    Calibrate(run.folder, **command, training=training, min_return=-1e9).run()
    assert (read_calibration(run).kind, read_calibration(run).episodes) == ("constant", 3)
    with pytest.raises(InvalidSettings, match="this BC policy has no guide"):
        replace(Calibrate(run.folder, **command), score="guide", min_return=-1e9, again=True).run()


def test_a_calibration_is_replaced_only_with_again(run: Run, held_out: str) -> None:
    Calibrate(run.folder, data=held_out, alpha=0.1, score="nearest").run()
    before = read_calibration(run)
    with pytest.raises(InvalidFile, match=r"is not overwritten\. Add --again to replace it"):
        Calibrate(run.folder, data=held_out, alpha=0.2, score="nearest").run()
    assert read_calibration(run) == before
    Calibrate(run.folder, data=held_out, alpha=0.2, again=True, score="nearest").run()
    assert read_calibration(run).alpha == 0.2


def test_a_calibration_that_cannot_be_read_is_replaced(run: Run, held_out: str, tmp_path: Path) -> None:
    (run.folder / "policy" / "calibration.json").write_text("{}")
    with pytest.raises(InvalidFile, match="has format None"):
        run.policy()
    Calibrate(run.folder / "policy", data=held_out, alpha=0.1, score="nearest", again=True).run()
    assert read_calibration(run).alpha == 0.1
    run.policy().save(tmp_path / "alone")
    with pytest.raises(InvalidSettings, match="alone is not the folder of a run"):
        Calibrate(tmp_path / "alone", data=held_out).run()


def test_a_server_says_which_member_is_calibrated(run: Run, held_out: str) -> None:
    Calibrate(run.folder, data=held_out, alpha=0.1, score="nearest", member=1).run()
    assert "alpha holds for member 1 only" in str(describe_other_member(run.policy(), 0))
    assert describe_other_member(run.policy(), -1) is None
    assert describe_other_member(run.policy()[0], 0) is None  # a single member does not know its number


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({}, InvalidSettings, "has no known held-out episodes"),
        ({"data": "maze", "env": "maze"}, InvalidSettings, "--data and --env exclude each other"),
        ({"skip_trained": True}, InvalidSettings, "--skip-trained needs --data"),
        ({"data": "maze"}, InvalidData, "25 of 100 episodes are in the training data .*--skip-trained"),
        ({"data": "maze", "options": ("a=1",)}, InvalidSettings, "--options need --env ID"),
        ({"data": "maze", "min_return": 1.0}, InvalidSettings, "--min-return needs --env ID"),
        ({"data": "spiral", "score": "near"}, UnknownName, "unknown score 'near'; did you mean 'nearest'"),
        ({"score": "near"}, UnknownName, "unknown score 'near'"),
        ({"data": "maze", "window": 0, "skip_trained": True}, InvalidSettings, "window must be from 1"),
        ({"data": "maze", "training": "spiral", "skip_trained": True}, InvalidData, "spiral has no episode that"),
        (
            {"data": "maze", "alpha": 0.013, "threshold": "band", "skip_trained": True},
            InvalidData,
            "needs at least 76 calibration episodes, and 5 more .* there are 75",
        ),
        ({"data": "maze", "alpha": 0.005, "skip_trained": True}, InvalidData, "needs at least 199 .* there are 75"),
        ({"data": "maze", "alpha": 2.0, "skip_trained": True}, InvalidSettings, "alpha must be a probability"),
        ({"data": "spiral", "alpha": 0.2, "member": 7}, UnknownMember, "member 7 does not exist"),
        ({"data": "fetch-pick"}, InvalidData, r"fetch-pick has .* 16 .* of 4; the policy was trained on 6 and 2\."),
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
        replace(Calibrate(run.folder, score="nearest"), **flags).run()
    assert sorted((run.folder / "policy").iterdir()) == before


def test_a_run_without_a_guide_has_other_scores(tmp_path: Path) -> None:
    run = train(tmp_path / "bc", BC(training=Training(updates=1), network=Network(width=4, depth=1)), TRAINED)
    with pytest.raises(InvalidSettings, match="this BC policy has no guide"):
        Calibrate(run.folder, data="maze", skip_trained=True, score="guide").run()
    Calibrate(run.folder, data="maze", skip_trained=True, score="nearest").run()
    assert (read_calibration(run).kind, read_calibration(run).episodes) == ("band", 50)
    with pytest.raises(InvalidFile, match="is not a run"):
        Calibrate(tmp_path, data="maze").run()
