"""Which episodes a monitor may be calibrated on."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from diffclone import DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.deploy.calibration import calibrate
from diffclone.deploy.monitor import Monitor
from diffclone.fit import FitOptions
from diffclone.policy import Policy
from diffclone.training.episodes import RunEpisodes
from diffclone.training.runs import Run, train_run

GUIDE = (
    "--guide.width",
    "64",
    "--guide.steps",
    "100",
    "--guide.training.updates",
    "400",
    "--guide.training.lr",
    "5e-3",
)
TINY = (*GUIDE, "--training.updates", "8", "--network.width", "8", "--seeds", "1", "--device", "cpu", "--no-cache")


def make_episodes(count: int, seed: int, steps: int = 4) -> Demonstrations:
    obs = np.random.default_rng(seed).normal(size=(count * steps, 6))
    return Demonstrations.from_arrays(obs, np.tanh(obs[:, :2]), episode_ends=range(steps, count * steps + 1, steps))


def false_alarms(monitor: Monitor) -> float:
    """Return the share of new episodes that raise an alarm."""
    new = make_episodes(400, seed=1)
    alarm = monitor.score(new.obs, new.act).alarm
    assert alarm is not None
    return float(np.logical_or.reduceat(alarm.both, new.episode_ends - new.lengths).mean())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mine.npz and the run of `diffclone train mine.npz`, which held out half of the episodes."""
    from diffclone.cli.main import main

    folder = tmp_path_factory.mktemp("calibration")
    make_episodes(40, seed=0).save(folder / "mine.npz")
    main(["train", str(folder / "mine.npz"), "--held-out", "0.5", *TINY, "--out", str(folder / "run")])
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_calibrating_on_the_training_file_is_refused(diffclone: Command, folder: Path) -> None:
    result = diffclone("calibrate", folder / "run", "--data", folder / "mine.npz")
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(
        r"diffclone: 20 of 40 episodes are in the training data of \S+, so the rate of false alarms could exceed "
        r"alpha\. Omit --data to calibrate on the run's 20 held-out episodes\.\n",
        result.err,
    )
    assert not (folder / "run" / "policy" / "calibration.json").exists()


def test_the_default_is_the_held_out_episodes(diffclone: Command, folder: Path) -> None:
    page = folder / "page.html"
    result = diffclone("calibrate", folder / "run", "--alpha", "0.1", "--score", "guide", "--page", page)
    assert result.code == 0
    assert re.search(r"[012] of 20 calibration episodes raise an alarm", page.read_text(encoding="utf-8"))
    assert page.read_text(encoding="utf-8").count("Scores of ") >= 3  # state, action and both
    assert "using 20 episodes" in result.err
    assert "20 are left out" in result.err
    monitor = Policy.load(folder / "run" / "policy").calibrated_monitor
    assert monitor is not None
    assert monitor.calibration is not None
    assert monitor.calibration.episodes + monitor.calibration.shape_episodes == 20
    assert false_alarms(monitor) < 0.3  # α and three standard deviations of 20 episodes
    # On the training data, thresholds are so low that most new episodes raise an alarm.
    demos, known = make_episodes(40, seed=0), Run(folder / "run").episodes
    assert known is not None
    seen = demos.take(demos.find_shared_episodes(known.trained))
    policy = replace(Run(folder / "run").policy(), data={})  # without the fingerprint of its data it cannot refuse
    void = calibrate(policy, seen, 0.1).calibrated_monitor
    assert void is not None
    assert false_alarms(void) > 0.5


def test_a_part_of_the_training_data_is_named(diffclone: Command, folder: Path) -> None:
    known = RunEpisodes.load(folder / "run")
    assert known is not None
    # The columns have names that only the options of the training tell apart from others.
    mine = Demonstrations.load(folder / "mine.npz")
    part = mine.take(mine.find_shared_episodes(known.trained)[:7])
    numbers = np.repeat(np.arange(7), part.lengths)
    np.savez(folder / "part.npz", state=part.obs, command=part.act, number=numbers)
    read = {"obs_keys": ["state"], "action_keys": ["command"], "episode_key": "number"}
    replace(known, source=str(folder / "mine.npz"), read=read).save(folder / "run")
    flags = ("--training", folder / "part.npz", "--score", "nearest", "--threshold", "constant")
    make_episodes(19, seed=5).save(folder / "other.npz")
    result = diffclone("calibrate", folder / "run", "--data", folder / "other.npz", *flags)
    assert result.code == 0, result.err
    assert "part.npz has 7 of the 20 training episodes; scores are fitted to these." in result.err


def test_training_episodes_can_be_left_out(diffclone: Command, folder: Path, trained: Path) -> None:
    (folder / "mine.npz").rename(folder / "moved.npz")
    episodes = folder / "run" / "episodes.json"
    episodes.write_text(episodes.read_text().replace(str(trained / "mine.npz"), str(folder / "mine.npz")))
    result = diffclone("calibrate", folder / "run")
    assert result.code == 2
    assert result.err.endswith("If you have moved it, use --data FILE --skip-trained.\n")
    moved = "--data", folder / "moved.npz", "--skip-trained", "--score", "nearest"
    assert diffclone("calibrate", folder / "run", *moved, "--alpha", "0.01").err.endswith(
        "there are 20. Add episodes, or choose an alpha of at least 1/21 = 0.0477.\n"
    )
    assert "20 are left out" in diffclone("calibrate", folder / "run", *moved, "--alpha", "0.1").err
    assert (folder / "run" / "policy" / "calibration.json").exists()


def test_a_data_file_that_has_changed_is_refused(diffclone: Command, folder: Path, trained: Path) -> None:
    episodes = folder / "run" / "episodes.json"
    episodes.write_text(episodes.read_text().replace(str(trained / "mine.npz"), str(folder / "other.npz")))
    make_episodes(40, seed=2).save(folder / "other.npz")
    result = diffclone("calibrate", folder / "run")
    assert result.code == 2
    assert "0 of the 20 held-out episodes" in result.err


def test_old_runs_compare_the_whole_data(diffclone: Command, folder: Path) -> None:
    known = Run(folder / "run").episodes
    assert known is not None
    demos = make_episodes(40, seed=0)
    demos.take(demos.find_shared_episodes(known.trained)).save(folder / "seen.npz")
    (folder / "run" / "episodes.json").unlink()
    result = diffclone("calibrate", folder / "run")
    assert result.code == 2
    assert "has no known held-out episodes. Train with --held-out 0.2, or" in result.err
    result = diffclone("calibrate", folder / "run", "--data", folder / "seen.npz")
    assert result.code == 2
    assert "the policy was trained on these episodes. Calibrate on episodes that were held out." in result.err
    result = diffclone("calibrate", folder / "run", "--data", folder / "mine.npz")
    assert result.code == 0
    assert "is of an older version: overlap with its training episodes cannot be checked" in result.err


def test_a_run_without_held_out_episodes_says_how_to_calibrate(diffclone: Command, tmp_path: Path) -> None:
    guide = DiffusionGuide(training=Training(updates=1), width=8, depth=1, steps=10)
    method = DBC(training=Training(updates=1), network=Network(width=4, depth=1), guide=guide)
    demos, more = make_episodes(3, seed=0), make_episodes(3, seed=1)
    train_run(tmp_path / "run", method, demos, FitOptions(device="cpu"))
    known = Run(tmp_path / "run").episodes
    assert known == RunEpisodes(demos.episode_fingerprints)
    result = diffclone("calibrate", tmp_path / "run")
    assert result.code == 2
    assert "has no known held-out episodes" in result.err
    demos.joined(more).save(tmp_path / "more.npz")
    result = diffclone("calibrate", tmp_path / "run", "--data", tmp_path / "more.npz")
    assert result.code == 2
    assert "3 of 6 episodes are in the training data" in result.err
    assert "Leave them out with --skip-trained" in result.err
    (tmp_path / "run" / "episodes.json").write_text("{}")
    assert "is damaged" in diffclone("calibrate", tmp_path / "run", "--data", tmp_path / "more.npz").err


# Fingerprints of runs that change their data.


def test_noisy_episodes_are_known_by_their_originals() -> None:
    original = make_episodes(10, seed=0)
    noisy = original.with_action_noise(0.1)
    training, held_out = noisy.split(0.3)
    known = RunEpisodes.from_split(noisy, training, original)
    assert set(training.episode_fingerprints) <= set(known.trained)
    assert not set(held_out.episode_fingerprints) & {*known.trained, *known.held_out}
    assert len(original.find_shared_episodes(known.trained)) == 7
    assert len(original.find_shared_episodes(known.held_out)) == 3


def test_originals_without_a_counterpart_count_as_trained() -> None:
    original = make_episodes(40, seed=0, steps=2)
    fewer = original.subsample(0.3, by="transition")
    assert fewer.num_episodes < 40
    known = RunEpisodes.from_split(fewer, fewer.split(0.3)[0], original)
    assert len(original.find_shared_episodes(known.trained)) == 40
    assert known.held_out == ()


def test_a_copy_of_a_training_episode_is_not_held_out() -> None:
    demos = make_episodes(4, seed=0).take([0, 1, 2, 3, 0])
    known = RunEpisodes.from_split(demos, demos.take([0, 1]), demos)
    assert known.trained == demos.episode_fingerprints[:2]
    assert known.held_out == demos.episode_fingerprints[2:4]
