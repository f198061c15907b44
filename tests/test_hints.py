"""The commands that "Next:" prints can be pasted into a shell."""

import importlib
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conftest import Command, CommandResult, assert_error
from diffclone import BCGMM, Demonstrations, Network, Policy, Training, fit
from diffclone.cli.hints import next_after_rendering, next_command
from diffclone.cli.parser import parse
from diffclone.cli.sources import Place
from diffclone.deploy import runtime
from diffclone.evaluation import evaluate
from diffclone.records import Record
from diffclone.tasks.gymnasium_batch import GymnasiumBatch
from diffclone.tasks.maze import MazeBatch
from diffclone.training.runs import Run

BRIEF = ("--seeds", "1", "--training.updates", "2", "--network.width", "8", "--device", "cpu", "--no-cache")
DBC = ("--method", "dbc", "--guide.training.updates", "2", "--guide.width", "8")


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace rendering by small images."""

    def draw(env: object, row: int) -> npt.NDArray[np.uint8]:
        return np.zeros((16, 16, 3), dtype=np.uint8)

    for batch in (GymnasiumBatch, MazeBatch):
        monkeypatch.setattr(batch, "render", draw)


def run_python(result: CommandResult, **names: Any) -> Any:
    """Return the value of the last expression that the command printed as the next line of Python."""
    assert result.code == 0, result.err
    imported, _, expression = result.err.partition("Next, in Python: ")[2].strip().partition("; ")
    exec(imported, names)
    return eval(expression, names)


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    """A file of demonstrations with the sizes of Pendulum, in a folder whose name needs quotes."""
    folder = tmp_path / "my data"
    folder.mkdir()
    obs = np.random.default_rng(0).uniform(-1, 1, (400, 3)).astype(np.float32)
    bounds = {"action_bounds": [[-2.0], [2.0]]}
    Demonstrations.from_arrays(obs, 3 * obs[:, :1], episode_ends=range(10, 401, 10), meta=bounds).save(
        folder / "pendulum.npz"
    )
    return folder / "pendulum.npz"


def hint(result: CommandResult) -> list[str]:
    """Return the words of the printed command. They are parsed without an error."""
    assert result.code == 0, result.err
    line = next(line for line in result.err.splitlines() if "Next" in line)
    command, *words = shlex.split(line.partition(": diffclone ")[2])
    words = ["Pendulum-v1" if word == "ID" else word for word in words]
    module: Any = importlib.import_module(f"diffclone.cli.{command}")
    if command != "train":
        parse(getattr(module, command.capitalize()), f"diffclone {command}", words)
    return [command, *words]


def test_from_a_file_to_a_server(diffclone: Command, demos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = demos.parent / "run"
    evaluation = hint(diffclone("train", demos, *BRIEF, *DBC, "--held-out", "0.5", "--out", run))
    assert evaluation == ["evaluate", str(run), "--env", "Pendulum-v1"]
    rendering = hint(diffclone(*evaluation, "--episodes", "1"))
    assert rendering == ["render", str(run), "--env", "Pendulum-v1", "--out", str(run / "episode.gif")]
    calibration = hint(diffclone(*rendering))
    assert calibration == ["calibrate", str(run)]  # on its 20 held-out episodes
    monkeypatch.setattr("diffclone.cli.hints.ENOUGH", 21)
    for place, words in (("Pendulum-v1", ["export"]), ("maze", ["calibrate", "--env", "maze"])):
        few = next_after_rendering(Run(run), Run(run).policy(), Place(place, {}))
        assert few == next_command(words[0], run, *words[1:])
    policy, place = Run(run).policy(), Place("maze", {"start_noise": 2.0})
    assert next_after_rendering(Run(run), policy, place).endswith("--env maze --options start_noise=2.0")
    chunks = replace(policy, method=replace(policy.method, horizon=2))
    assert next_after_rendering(Run(run), chunks, place) == next_command("export", run)
    assert (run / "episode.gif").exists()
    result = diffclone("export", run, "--to", "numpy")
    assert run_python(result, observation=np.zeros(3, np.float32)).shape == (1,)
    exported = runtime.load(run / "policy.npz")
    # The export has the policy's bounds, normaliser and card.
    obs = np.random.default_rng(1).uniform(-9, 9, (200, 3)).astype(np.float32)
    policy = Policy.load(run)
    assert np.allclose(exported(obs), policy(obs), atol=1e-5)
    assert exported.about["action_bounds"] == [[-2.0], [2.0]]
    card = exported.about["card"]
    assert "clipped to [-2.0] … [2.0]" in card
    assert "| Pendulum-v1 | evaluation, fixed | 1 × 1 |" in card


def test_without_a_guide_the_export_follows(diffclone: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    evaluation = hint(diffclone("train", "maze", *BRIEF, "--method", "bc", "--out", run))
    assert evaluation == ["evaluate", str(run)]
    rendering = hint(diffclone(*evaluation, "--episodes", "1"))
    result = diffclone(*rendering)
    assert "from start" in result.err  # the first start is over after one step
    assert hint(result) == ["export", str(run)]
    (action,) = run_python(diffclone("export", run), rows=np.zeros((2, 6), np.float32))
    assert action.shape == (2, 2)
    assert_error(diffclone("export", run), r"policy\.onnx exists already and is not overwritten")
    assert diffclone("export", run / "policy", "--to", "numpy").code == 0
    assert (run / "policy.npz").exists()
    for flags, message in (
        (("--out", "b.npz"), r"--to onnx writes a file that ends in \.onnx; b\.npz ends in \.npz.* or --to numpy\."),
        (("--to", "numpy", "--out", "a.txt"), r"ends in \.npz; a\.txt ends in \.txt\. Choose another --out\.$"),
        (("--out", "policy"), r"policy ends in nothing\. Choose another --out\.$"),
    ):
        assert_error(diffclone("export", run, *flags), message)
    assert_error(diffclone("render", run, "--out", tmp_path / "a.gif", "--policy", "expert"), "leave out --policy")
    assert_error(diffclone("render", "maze", "--task", "maze", "--out", tmp_path / "a.gif"), "leave out --task")
    assert_error(diffclone("render", "--out", tmp_path / "a.gif"), r"name a task, or the folder of a run")
    assert_error(diffclone("render", "--env", "Pendulum-v1", "--out", tmp_path / "a.gif"), "Pendulum-v1 has no expert")
    assert_error(diffclone("render", "runs/no", "--out", tmp_path / "a.gif"), "runs/no is not a run")


def test_a_method_that_cannot_be_exported_is_served(demos: Path) -> None:
    method = BCGMM(training=Training(updates=1), network=Network(width=8, depth=1))
    policy = fit(method, Demonstrations.load(demos), seeds=(0,), device="cpu", suggest=False)
    assert next_after_rendering(Run(demos.parent), policy, Place("maze", {})) == next_command("serve", demos.parent)


def test_a_rendered_episode_is_the_evaluated_one(diffclone: Command, demos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert diffclone("train", demos, *BRIEF, "--method", "bc", "--out", run).code == 0
    scores = evaluate(Policy.load(run), "Pendulum-v1", episodes=2)
    for start in (0, 1):
        flags = ("--env", "Pendulum-v1", "--start", str(start), "--out", tmp_path / f"{start}.gif")
        assert f"200 steps, return {scores.returns[0, start]:.1f}\n" in diffclone("render", run, *flags).err


def test_an_export_of_a_policy_without_a_run(diffclone: Command, demos: Path, tmp_path: Path) -> None:
    assert diffclone("train", demos, *BRIEF, "--method", "bc", "--out", tmp_path / "run").code == 0
    Policy.load(tmp_path / "run").save(tmp_path / "alone")
    result = diffclone("export", tmp_path / "alone", "--to", "numpy", "--json")
    assert json.loads(result.out)["out"] == str(tmp_path / "alone.npz")
    assert "None yet" in runtime.load(tmp_path / "alone.npz").about["card"]
    assert [record.kind for record in Record.read_all(tmp_path / "run" / "records.jsonl")] == ["training"]


def test_arguments_are_quoted() -> None:
    assert next_command("export", Path("my runs/a")) == "Next: diffclone export 'my runs/a'"
    assert next_command("x", "b", about="with care") == "Next, with care: diffclone x b"
