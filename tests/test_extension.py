"""Another package adds a method, a guide and a task through entry points, and the command line uses them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import install_package

HERE = Path(__file__).parent

TASK = '''
"""A task: a point moves to the origin."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.tasks import Task
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Rows
from diffclone.tasks.experts import Expert


class PointBatch(BatchEnv):
    def __init__(self, count: int, *, start_noise: float = 1.0):
        self.count, self.act_low, self.act_high = count, -np.ones(2), np.ones(2)
        self.start_noise, self.place = start_noise, np.zeros((count, 2))

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        self.place[rows] = [self.start_noise * rng.uniform(-1, 1, 2) for rng in rngs]

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        self.place[rows] += 0.2 * np.clip(act, -1, 1)
        distance = np.linalg.norm(self.place[rows], axis=1)
        return Outcome(-distance, distance < 0.1, distance < 0.1)

    def observe(self, rows: Rows) -> Doubles:
        return self.place[rows].copy()


class PointExpert(Expert):
    horizon = 30

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None: ...

    def act(self, obs: Doubles) -> Doubles:
        return np.clip(-5 * obs, -1, 1)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        return success and steps > 0


POINT = Task(
    "point", "A point moves to the origin.", obs_size=2, act_size=2, horizon=30, metric="success",
    make_batch=PointBatch, make_expert=PointExpert,
)
'''

ENTRY_POINTS = """
[diffclone.methods]
robust = extension_models:Robust
[diffclone.guides]
reconstruction = extension_models:Reconstruction
[diffclone.tasks]
point = extension_task:POINT
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an installed package, and with one that is broken."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(HERE / "own_models.py", folder / "extension_models.py")
    (folder / "extension_task.py").write_text(TASK)
    install_package(folder, "extension", ENTRY_POINTS)
    install_package(folder, "broken", "[diffclone.methods]\nlost = lost_module:Lost\n")
    return folder


def run(site: Path, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of `site`."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def diffclone(site: Path, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    return run(site, "-m", "diffclone", *arguments, code=code)


BRIEF = ("--device", "cpu", "--no-cache", "--seeds", "2", "--training.updates", "300", "--guide.training.updates", "64")


@pytest.fixture(scope="module")
def demonstrations(site: Path) -> Path:
    diffclone(site, "collect", "point", "--episodes", "12", "--out", "point.npz")
    return site / "point.npz"


@pytest.mark.parametrize(
    ("flags", "method", "guide"),
    [
        (("--method", "robust", "--network.width", "16"), "robust", "reconstruction"),
        (("--method", "dbc", "--guide", "reconstruction"), "dbc", "reconstruction"),
        (("--method", "robust", "--guide", "vae", "--guide.width", "8"), "robust", "vae"),
    ],
    ids=["method", "guide", "method with a guide of the library"],
)
def test_the_command_line_trains_and_evaluates(
    flags: tuple[str, ...], method: str, guide: str, site: Path, demonstrations: Path, tmp_path: Path
) -> None:
    diffclone(site, "train", demonstrations, *flags, *BRIEF, "--out", tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "policy" / "config.json").read_text())["method"]
    assert (settings["type"], settings["guide"]["type"]) == (method, guide)
    printed = diffclone(site, "evaluate", tmp_path / "run", "--episodes", "5", "--json").stdout
    scores = json.loads(printed)["results"]
    assert scores["task"] == "point"
    assert scores["episodes"] == 5
    assert scores["success_rate"] is not None


def test_a_policy_loads_without_an_import_of_the_package(site: Path, demonstrations: Path, tmp_path: Path) -> None:
    flags = ("--method", "robust", *BRIEF, "--training.updates", "9")
    diffclone(site, "train", demonstrations, *flags, "--out", tmp_path / "run")
    code = (
        "import json, sys; from diffclone import Policy; "
        f"policy = Policy.load({str(tmp_path / 'run' / 'policy')!r}); "
        "print(json.dumps([type(policy.method).__name__, policy(policy.normaliser.obs_mean.numpy()).shape]))"
    )
    assert json.loads(run(site, "-c", code).stdout) == ["Robust", [2, 2]]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    failed = run(elsewhere, "-c", code, code=1).stderr
    assert "unknown method 'robust'" in failed
    assert np.load(demonstrations)["act"].shape[1] == 2


def test_the_package_passes_the_contract_checks(site: Path) -> None:
    run(site, "-c", "from diffclone.testing import check_task; from extension_task import POINT; check_task(POINT)")


def test_lists_name_what_other_packages_add_and_what_is_broken(site: Path) -> None:
    listed = diffclone(site, "tasks")
    assert "A point moves to the origin." in listed.stdout
    assert "Traceback" not in listed.stderr
    unknown = diffclone(site, "train", "maze", "--method", "robot", "--out", "never", code=2).stderr
    assert "unknown method 'robot'; did you mean 'robust'?" in unknown
    assert "warning: the method 'lost' of the package broken cannot be loaded (ModuleNotFoundError" in unknown
    lost = diffclone(site, "train", "maze", "--method", "lost", "--out", "never", code=2).stderr
    assert "the method 'lost' of the package broken cannot be loaded" in lost
    assert "Traceback" not in lost + unknown
