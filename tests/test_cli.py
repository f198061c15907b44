import errno
import html
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command, CommandResult, assert_error
from diffclone import BC, Demonstrations, Policy
from diffclone.cli.main import COMMANDS, main
from diffclone.cli.parser import condense
from diffclone.cli.version import missing_packages
from diffclone.data import formats
from diffclone.deploy import runtime
from diffclone.experiments import PRESETS
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training import Progress
from diffclone.training.metrics import drop_metrics

TINY = ("--method", "bc", "--seeds", "2", "--training.updates", "64", "--network.width", "16", "--device", "cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIFFCLONE_CACHE", str(tmp_path_factory.getbasetemp() / "guides"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    main(["train", "maze", *TINY, "--out", str(folder)])
    return folder


@pytest.fixture
def run_folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content and the modification time of every file."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def last_line(result: CommandResult) -> str:
    """Return the only line of error, which follows the progress bars."""
    lines = [line for line in result.err.splitlines() if line.startswith("diffclone:")]
    assert len(lines) == 1, result.err
    assert result.err.splitlines()[-1] == lines[0]
    assert "Traceback" not in result.err
    return lines[0]


# Commands.


def test_tasks_as_json(diffclone: Command) -> None:
    result = diffclone("tasks", "--json")
    rows = json.loads(result.out)
    assert [row["task"] for row in rows] == list(TASKS)
    assert (rows[0]["id"], rows[0]["observation"], rows[0]["action"]) == ("diffclone/Maze-v0", 6, 2)
    assert rows[0]["demonstrations"].startswith("100 episodes")
    assert result.code == 0
    assert result.err == ""


def test_collect_writes_a_file_and_replaces_none(diffclone: Command, tmp_path: Path) -> None:
    path = tmp_path / "new" / "two.npz"
    result = diffclone("collect", "maze", "--episodes", "2", "--seed", "4", "--out", path, "--json")
    assert result.code == 0
    demos = Demonstrations.load(path)
    printed = json.loads(result.out)
    assert (printed["episodes"], printed["steps"]) == (2, demos.num_steps)
    assert printed["fingerprint"] == demos.fingerprint
    assert demos.meta["command"] == "diffclone collect maze --episodes 2 --seed 4"
    before = contents(tmp_path)
    assert_error(
        diffclone("collect", "maze", "--episodes", "2", "--out", path), "exists already and is not overwritten"
    )
    assert contents(tmp_path) == before


def test_train_then_evaluate(diffclone: Command, run_folder: Path) -> None:
    result = diffclone("evaluate", run_folder, "--episodes", "3", "--json")
    assert result.code == 0
    printed = json.loads(result.out)
    training, evaluation = Record.read_all(run_folder / "records.jsonl")
    assert (training.kind, evaluation.kind) == ("training", "evaluation")
    assert printed["results"] == evaluation.results
    assert (evaluation.results["members"], evaluation.results["episodes"]) == (2, 3)
    for record in (training, evaluation):
        assert record.data["fingerprint"] == TASKS["maze"].demonstrations().fingerprint
        assert record.members == [{"seed": 0}, {"seed": 1}]
        assert record.device == "cpu"
        assert record.seconds > 0
        assert record.settings["training"]["updates"] == 64
        assert {"python", "torch", "numpy", "diffclone", "mujoco", "gymnasium"} <= record.versions.keys()
    assert Policy.load(run_folder / "policy").dims.obs == 6
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [32, 64]
    assert all(len(line["L_BC"]) == 2 for line in lines)


def test_evaluate_prints_one_row_per_member(diffclone: Command, run_folder: Path) -> None:
    table = diffclone("evaluate", run_folder, "--episodes", "2").out
    assert re.search(r"seed 0 .*%.*\n.*seed 1 .*%.*\n.*all .*%", table)
    assert "2 members × 2 episodes" in table


def test_one_member_is_printed_once(diffclone: Command, run_folder: Path) -> None:
    result = diffclone("evaluate", run_folder, "--episodes", "2", "--where", "seed=0")
    assert result.code == 0, result.err
    rows = result.out.splitlines()[3:]
    assert [row.split()[0] for row in rows if row] == ["seed"]


def test_evaluate_chooses_members(diffclone: Command, run_folder: Path) -> None:
    result = diffclone("evaluate", run_folder, "--episodes", "2", "--where", "seed=1", "--json")
    assert json.loads(result.out)["members"] == [{"seed": 1}]
    assert_error(diffclone("evaluate", run_folder, "--where", "seed=9"), "members differ in seed")


def test_cards_have_only_evaluations_of_their_members_without_options(diffclone: Command, run_folder: Path) -> None:
    for flags in (
        ("--where", "seed=1"),
        ("--where", "seed=0", "--options", "start_noise=2"),
        ("--options", "start_noise=2"),
    ):
        assert diffclone("evaluate", run_folder, "--episodes", "1", *flags).code == 0
    assert "None yet" in (run_folder / "policy" / "README.md").read_text()
    assert diffclone("evaluate", run_folder, "--episodes", "1").code == 0
    assert "| 2 × 1 |" in (run_folder / "policy" / "README.md").read_text()
    for member, rows in ((0, ["2 × 1"]), (1, ["1 × 1", "2 × 1"])):
        file = run_folder / f"{member}.npz"
        assert diffclone("export", run_folder, "--to", "numpy", "--member", str(member), "--out", file).code == 0
        assert re.findall(r"\| maze \| evaluation, fixed \| (\S+ × \S+) \|", runtime.load(file).about["card"]) == rows


def test_a_resumed_run_does_not_repeat_lines_of_its_metrics(tmp_path: Path) -> None:
    lines = [{"stage": "guide", "update": 64}, *({"stage": "policy", "update": u} for u in (32, 64, 96))]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    drop_metrics(path, Progress("policy", 64, 128, {}, 1.0, 1.0))
    assert [json.loads(line)["update"] for line in path.read_text().splitlines()] == [64, 32]


def test_a_finished_run_is_not_trained_again(diffclone: Command, run_folder: Path) -> None:
    before = contents(run_folder)
    result = diffclone("train", "maze", *TINY, "--out", run_folder)
    assert result.code == 0
    assert f"{run_folder} was finished before: nothing was trained." in result.err
    assert contents(run_folder) == before


def test_a_guide_comes_from_the_cache(diffclone: Command, tmp_path: Path) -> None:
    brief = ("--training.updates", "4", "--network.width", "8", "--guide.training.updates", "4", "--guide.width", "8")
    command = ("train", "maze", "--seeds", "1", "--device", "cpu", *brief)
    stages = list[set[str]]()
    for name, more in (("a", ()), ("b", ("--vary", "coefficient=0,10,30")), ("c", ("--no-cache",))):
        assert diffclone(*command, "--out", tmp_path / name, *more).code == 0
        metrics = (tmp_path / name / "metrics.jsonl").read_text()
        stages.append({json.loads(line)["stage"] for line in metrics.splitlines()})
    assert stages == [{"guide", "policy"}, {"policy"}, {"guide", "policy"}]
    assert [m["coefficient"] for m in Policy.load(tmp_path / "b" / "policy").members] == [0, 10, 30]


def test_flags_change_the_settings_of_a_preset(diffclone: Command, tmp_path: Path) -> None:
    flags = ("--preset", "demo", "--method", "bc", "--seeds", "1", "--training.updates", "3")
    assert diffclone("train", "maze", *flags, "--device", "cpu", "--out", tmp_path / "run").code == 0
    training = json.loads((tmp_path / "run" / "run.json").read_text())["method"]["training"]
    assert training["updates"] == 3
    assert training["lr"] == PRESETS["maze/bc/demo"].method.training.lr != BC().training.lr


def test_the_task_of_a_file_is_used(diffclone: Command, tmp_path: Path) -> None:
    TASKS["maze"].demonstrations().take([0, 1]).save(tmp_path / "mine.npz")
    assert diffclone("train", tmp_path / "mine.npz", *TINY, "--out", tmp_path / "run").code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["task"] == "maze"


def test_a_file_of_an_unknown_task_is_trained_on(diffclone: Command, tmp_path: Path) -> None:
    demos = TASKS["maze"].demonstrations().take([0, 1])
    replace(demos, meta={"task": "another package's"}).save(tmp_path / "mine.npz")
    assert diffclone("train", tmp_path / "mine.npz", *TINY, "--out", tmp_path / "run").code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["task"] is None


def test_tensorboard_writes_into_the_run(diffclone: Command, tmp_path: Path) -> None:
    result = diffclone("train", "maze", *TINY, "--out", tmp_path / "run", "--tensorboard")
    assert result.code == 0, result.err
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    before = contents(tmp_path)
    flags = (*TINY[:3], "3", *TINY[4:])
    result = diffclone("train", "maze", *flags, "--out", tmp_path / "run", "--tensorboard")
    assert result.code == 2
    assert contents(tmp_path) == before


# Help.


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(diffclone: Command, name: str) -> None:
    result = diffclone(name, "--help")
    assert result.code == 0
    assert f"usage: diffclone {name}" in result.out
    assert COMMANDS[name].split()[0] in result.out


def test_help_of_train_names_the_settings(diffclone: Command) -> None:
    text = diffclone("train", "--help").out
    usage = text.partition("\n\n")[0]
    assert re.search(r"\bDATA\b", usage)
    for flag in ("--coefficient", "--guide.training.updates", "--training.updates", "--out"):
        assert flag in text
    assert "--guide.draws" not in text
    assert "--guide.draws" in diffclone("train", "--help-all").out
    assert "--guide." not in diffclone("train", "--method", "bc", "--help-all").out


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_all_commands(diffclone: Command, arguments: tuple[str, ...]) -> None:
    result = diffclone(*arguments)
    assert result.code == 0
    assert all(re.search(rf"\b{name}\b", result.out) for name in COMMANDS)


def test_help_of_a_command_by_its_name(diffclone: Command) -> None:
    assert diffclone("help", "tasks") == diffclone("tasks", "--help")
    assert_error(diffclone("help", "trian"), "unknown command 'trian'; did you mean 'train'")


def test_the_version_is_one_line(diffclone: Command) -> None:
    line = diffclone("--version").out
    assert re.fullmatch(r"diffclone \d+\.\d+\.\d+\S* \(python \S+, torch \S+, numpy [^\n]*; extras [^\n]*\)\n", line)


def test_version_names_the_device_and_the_extras(diffclone: Command) -> None:
    known = json.loads(diffclone("version", "--json").out)
    assert known["versions"]["torch"] == importlib.metadata.version("torch")
    assert known["device"].startswith("cpu") or torch.cuda.is_available()
    extras = known["extras"]
    assert {"tasks", "data", "serve"} <= set(extras)
    assert not {"dev", "test", "all"} & set(extras)
    table = diffclone("version").out
    assert all(name in table for name in extras)


def test_an_extra_is_missing_if_one_of_its_packages_is() -> None:
    requires = ["numpy>=2", "h5py>=3.11; extra == 'data'", 'no-such-package>=1; extra == "data"', "rich; extra == 'a'"]
    assert missing_packages(requires) == {"data": ["no-such-package"], "a": []}


def test_help_of_train_shows_the_values_for_the_data(diffclone: Command) -> None:
    for data, updates in (("maze", 7469), ("spiral", 3000)):
        text = diffclone("train", data, "--method", "bc", "--help").out
        assert re.search(r"usage: diffclone train .*DATA", text)
        assert re.search(rf"--training.updates INT\s.*\(default: {updates}\)", text)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_do_not_import_torch(argument: str) -> None:
    code = f"import sys; from diffclone.cli.main import main; main(['{argument}']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_bench_prints_its_new_name(diffclone: Command) -> None:
    assert_error(diffclone("bench", "--only", "train"), "python -m benchmarks.speed")


# User errors.


GOOD: dict[str, Any] = {"obs": np.eye(4, 6), "act": np.eye(4, 2), "episode_ends": [4]}
NAN, INF = np.eye(4, 6), np.eye(4, 2)
NAN[2, 3], INF[1, 0] = np.nan, np.inf


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"observations": GOOD["obs"], "actions": GOOD["act"]}, "has observations, actions, so that the ends"),
        (GOOD | {"obs": NAN}, "obs contains 1 NaN or infinite value, first in row 2, column 3"),
        (GOOD | {"act": INF}, "act contains 1 NaN or infinite value, first in row 1, column 0"),
        (GOOD | {"act": np.eye(3, 2)}, "observations and actions differ in length: 4 != 3"),
        (GOOD | {"act": np.arange(4)}, r"act must be \(steps, action size\); its shape is \(4,\)"),
        (GOOD | {"episode_ends": [2]}, "episode_ends must increase from at least 1 to the number of steps, 4"),
        (GOOD | {"obs": np.eye(0, 6), "act": np.eye(0, 2), "episode_ends": []}, "there are no demonstrations"),
    ],
    ids=["keys", "nan", "inf", "lengths", "1-D", "ends", "nothing"],
)
def test_bad_demonstrations_are_one_line(
    diffclone: Command, tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    assert_error(diffclone("train", tmp_path / "mine.npz", *TINY, "--out", tmp_path / "run"), message)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mine.npz", b"", r"mine\.npz is empty"),
        ("mine.npz", b"PK\x03\x04 no", r"mine\.npz is not a readable \.npz file"),
        ("mine.pt", b"\x80\x02no", r"mine\.pt is not a readable \.pt file"),
        ("mine.log", b"1,2", r"cannot recognise the format of .*mine\.log. Known formats: npz"),
    ],
)
def test_files_without_demonstrations_are_one_line(
    diffclone: Command, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert_error(diffclone("train", tmp_path / name, *TINY, "--out", tmp_path / "run"), message)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "none.npz"), r"no such file: none\.npz"),
        (("train", "mase"), "no file and no task is named 'mase'; did you mean the task 'maze'"),
        (("collect", "mase"), "unknown task 'mase'; did you mean 'maze'"),
        (("train", "maze", "--method", "dcb"), r"unknown method 'dcb'; did you mean 'dbc'\? Known: bc, "),
        (
            ("train", "maze", "--preset", "papr"),
            r"unknown preset 'papr' of dbc for maze; did you mean 'paper'\? Known: b",
        ),
        (
            ("train", "maze", "--method", "bc", "--preset", "x"),
            "for maze. Known: [a-z, -]*release, small, small-[a-z, -]*",
        ),
        (("train", "spiral", "--method", "ibc", "--preset", "brief"), "no presets of ibc for spiral"),
        (("train", "maze", "--method", "bc", "--budget", "3s"), "--budget is for the search, which --method replaces"),
        (("train", "maze", "--training.lr=1", "--budget", "3s"), "for the search, which --training.lr replaces"),
        (("train", "maze", "--held-out", "0", "--budget", "3s"), "for the search, which --held-out replaces"),
        (("train", "maze", "--plain", "--budget", "3s"), "for the search, which --plain replaces"),
        (("train", "maze", "--seeds", "0"), "--seeds must be at least 1; it is 0"),
        (("train", "maze", "--vary", "coefficient=1,two"), "--vary takes FIELD=NUMBER,NUMBER,….*'coefficient=1,two'"),
        (("train", "maze", "--vary", "coefficient"), "--vary takes FIELD=NUMBER,NUMBER,….*'coefficient'"),
        (("train", "maze", "--vary", "coefficient=nan"), "--vary takes FIELD=NUMBER,NUMBER,….*'coefficient=nan'"),
        (("train", "maze", "--held-out", "nan"), "--held-out must be at least 0 and below 1; it is nan"),
        (("train", "maze", "--vary", "gate=1"), "cannot vary in 'gate'.*can vary: coefficient, imitation"),
        (("train", "maze", "--device", "cuda"), "no CUDA device is available"),
        (("collect", "maze", "--episodes", "0"), "at least one episode must be collected; 0 were requested"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_arguments_are_one_line_and_write_nothing(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_error(diffclone(*arguments, "--out", "run.npz" if arguments[0] == "collect" else "run"), message)
    assert contents(tmp_path) == {}


def test_the_error_of_an_unknown_command_names_the_nearest(diffclone: Command) -> None:
    assert_error(diffclone("trian", "maze"), "unknown command 'trian'; did you mean 'train'")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "train maze --out x --trainin.updates 3",
            r"unknown option --trainin\.updates; did you mean --training\.updates\?",
        ),
        ("train maze --out x --sedes 3", r"unknown option --sedes; did you mean --seeds\?"),
        ("train maze --out x --seeds two", "--seeds INT: 'two' is not an integer"),
        ("train maze --out x --training.updates 0", "training: updates and batch must be at least 1"),
        ("train maze --out x --coefficient atuo", r"--coefficient FLOAT\|auto: 'atuo' is not a number"),
        ("train maze --out x --imitation auto", "--imitation FLOAT: 'auto' is not a number"),
        ("train maze --out x --coefficient auto --imitation 0", "of L_BC, whose weight is 0"),
        ("train maze --out x --network.width 0", "network: width must be at least 1, and depth not negative"),
        ("train maze spiral --out x", "unexpected argument 'spiral'"),
        ("train maze", "missing from diffclone train: --out PATH"),
        ("train --out x", "missing from diffclone train: DATA"),
        ("train --coefficient 3 maze --out x", "the data must come first: diffclone train maze"),
        ("evaluate --epsodes 3", r"unknown option --epsodes; did you mean --episodes\?"),
        ("evaluate run --protocol none", r"unknown value 'none' of --protocol\. Known: fixed, paper\. See "),
        ("export run --to ONN", r"unknown value 'ONN' of --to; did you mean 'onnx'\? Known: onnx, numpy\. See "),
        ("evaluate run --episodes", r"--episodes needs a value\. See "),
        ("train maze --out x --held-out 20%", r"--held-out FLOAT: '20%' is not a number\. See "),
        ("train maze --out x --snapshots 8,16,64", r"--snapshots INT …: separate values with spaces: 8 16 64\. See "),
        (
            "train maze --out x --snapshots 8 b",
            r"--snapshots INT …: cannot read '8', 'b' as values of this type\. See ",
        ),
        (f"train maze --out x --seeds {'9' * 100}x", rf"--seeds INT: '{'9' * 100}x' is not an integer"),
        ("collect maze --uot x", r"unknown option --uot; did you mean --out\?"),
    ],
)
def test_arguments_that_cannot_be_parsed_are_one_line(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_error(diffclone(*command.split()), message)
    assert contents(tmp_path) == {}


def test_a_box_of_the_parser_becomes_one_line() -> None:
    box = """\
╭─ Value error ──────────────────────────────────────╮
│ \x1b[91mError parsing\x1b[0m --seeds: invalid literal     │
│ for int() with base 10: 'two'                      │
│ ────────────────────────────────────────────────── │
│ Argument helptext:                                 │
│     --seeds INT                                    │
│     Number of members. (default: 3)                │
│ ────────────────────────────────────────────────── │
│ For full helptext, see diffclone train --help      │
╰────────────────────────────────────────────────────╯
"""
    assert condense(box) == "--seeds INT: 'two' is not an integer."


def test_a_value_that_names_a_file_is_not_taken_for_the_data(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("2").write_text("not demonstrations")
    assert diffclone("train", "--seeds", "2", "maze", *TINY, "--out", "run").code == 0


def test_train_reads_the_data_once_and_does_not_read_the_policy(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []
    read = formats.read

    def count(source: str, *options: Any) -> Demonstrations:
        reads.append(source)
        return read(source, *options)

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the policy was read from its file")

    TASKS["maze"].demonstrations().take([0, 1]).save(tmp_path / "mine.npz")
    monkeypatch.setattr(formats, "read", count)
    monkeypatch.setattr(importlib.import_module("diffclone.fit"), "read", count)
    monkeypatch.setattr(Policy, "load", fail)
    assert diffclone("train", tmp_path / "mine.npz", *TINY, "--out", tmp_path / "run").code == 0
    assert len(reads) == 1


def test_a_preset_needs_a_known_task(diffclone: Command, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **GOOD)
    command = ("train", tmp_path / "mine.npz", "--preset", "demo", "--out", tmp_path / "run")
    assert_error(diffclone(*command), "--preset demo needs --task NAME; tasks that have it: maze")
    command = ("train", tmp_path / "mine.npz", "--preset", "maze", "--out", tmp_path / "run")
    assert_error(diffclone(*command), r"unknown preset 'maze' of dbc\. Known: best, brief, ")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_another_run_is_not_changed(diffclone: Command, run_folder: Path) -> None:
    before = contents(run_folder)
    flags = ("--method", "bc", "--seeds", "3", "--training.updates", "65", "--network.width", "16")
    differences = r"holds another run \(.*updates: 64 != 65; .*seeds: \[0, 1\] != \[0, 1, 2\]\)\. Nothing was changed"
    assert_error(diffclone("train", "maze", *flags, "--out", run_folder), differences)
    assert contents(run_folder) == before


def test_a_folder_with_other_files_is_not_changed(diffclone: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    before = contents(tmp_path)
    assert_error(
        diffclone("train", "maze", *TINY, "--out", tmp_path), "is not empty and holds no run. Nothing was changed"
    )
    assert_error(diffclone("train", "maze", *TINY, "--out", tmp_path / "thesis.txt"), "is a file; a run needs a folder")
    assert_error(diffclone("demo", "--quick", "--out", tmp_path), "is not empty and holds no demo. Nothing was changed")
    assert contents(tmp_path) == before


def test_evaluate_explains_an_unusable_folder(diffclone: Command, run_folder: Path, tmp_path: Path) -> None:
    assert_error(diffclone("evaluate", tmp_path), r"is not a run: it has no run\.json\. Make one with: diffclone train")
    assert_error(diffclone("evaluate", tmp_path / "none"), "none is not a run")
    assert_error(diffclone("evaluate", run_folder, "--task", "mase"), "unknown task 'mase'; did you mean 'maze'")
    assert_error(diffclone("evaluate", run_folder, "--episodes", "0"), "at least one episode must be run")
    shutil.rmtree(run_folder / "policy")
    assert_error(
        diffclone("evaluate", run_folder), "has not finished training. Run the same `diffclone train` command again"
    )


@pytest.mark.parametrize("name", ["policy/config.json", "policy/model.safetensors", "run.json"])
def test_evaluate_names_a_damaged_file(diffclone: Command, run_folder: Path, name: str) -> None:
    path = run_folder / name
    path.write_bytes(path.read_bytes()[:20])
    assert_error(diffclone("evaluate", run_folder), path.name.replace(".", r"\."))


# Output, a full disk, Ctrl-C.


def shell(command: str) -> CommandResult:
    """Run a line of bash, with `diffclone` for the command."""
    script = f'set -o pipefail; diffclone() {{ {sys.executable} -m diffclone "$@"; }}; {command}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_a_closed_pipe_or_stdout_ends_a_command_silently(argument: str) -> None:
    assert shell(f"diffclone {argument} | true") == (1, "", "")
    assert shell(f"diffclone {argument} >&-") == (0, "", "")


def test_ctrl_c_prints_one_line(diffclone: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("diffclone.records.Record.read_all", interrupt)
    assert diffclone("tasks") == (130, "", "diffclone: interrupted.\n")


def test_ctrl_c_ends_a_command_that_is_importing(tmp_path: Path) -> None:
    """Packages may catch every exception while they are imported; this torch does."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import pathlib, time\npathlib.Path('started').touch()\ntry: time.sleep(60)\nexcept BaseException: pass\n"
    )
    paths = [str(tmp_path), str(Path(str(sys.modules["diffclone"].__file__)).parents[1])]
    with subprocess.Popen(
        [sys.executable, "-m", "diffclone", "train", "maze", "--out", "run"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        text=True,
        stderr=subprocess.PIPE,
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "diffclone: interrupted.\n")
    assert not (tmp_path / "run").exists()


def fill_disk(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Fail to write the `at`-th file and all later ones."""
    calls, fsync = list[int](), os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr("diffclone.files.os.fsync", full)


@pytest.mark.parametrize("at", [1, 2, 3, 4], ids=["run.json", "checkpoint", "weights", "config"])
def test_training_resumes_after_a_full_disk(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path, at: int
) -> None:
    command = ("train", "maze", *TINY, "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        fill_disk(patch, at)
        result = diffclone(*command)
    assert result.code == 2
    assert re.fullmatch(r"diffclone: .*No space left on device\. Free some space, .*again\.", last_line(result))
    assert list(tmp_path.rglob(".*")) == []  # no partial file
    assert diffclone(*command).code == 0
    policies = [folder / "policy" / "model.safetensors" for folder in (tmp_path / "run", trained)]
    assert policies[0].read_bytes() == policies[1].read_bytes()
    assert [record.kind for record in Record.read_all(tmp_path / "run" / "records.jsonl")] == ["training"]


def test_collect_leaves_no_partial_file_on_a_full_disk(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, 1)
    result = diffclone("collect", "maze", "--episodes", "1", "--out", tmp_path / "one.npz")
    assert result.code == 2
    assert "No space left on device" in last_line(result)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named_with_the_way_out(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = ("collect", "maze", "--episodes", "1", "--out")
    (tmp_path / "thesis.txt").write_text("precious")
    error = last_line(diffclone(*collect, tmp_path / "thesis.txt" / "one.npz"))
    assert re.search(r"thesis\.txt: File exists\. A file is where a folder is needed; choose another path\.$", error)

    def refuse(descriptor: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("diffclone.files.os.fsync", refuse)
    error = last_line(diffclone(*collect, tmp_path / "one.npz"))
    expected = f"{tmp_path / 'one.npz'}: Permission denied. Change its permissions, or choose another path."
    assert error == f"diffclone: {expected}"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_training_resumes_after_ctrl_c(tmp_path: Path) -> None:
    settings = ("--method", "bc", "--seeds", "2", "--training.updates", "4800", "--network.width", "16")

    def command(name: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "diffclone",
            "train",
            "maze",
            *settings,
            "--device",
            "cpu",
            "--out",
            name,
        ]

    def updates() -> list[int]:
        metrics = tmp_path / "stopped" / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line)["update"] for line in lines]

    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command("stopped"), cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 60
        while len(updates()) < 5 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    result = CommandResult(process.returncode, out, err)
    assert result.code == 130
    assert "A checkpoint is saved. Run the same command to resume." in last_line(result)
    assert (tmp_path / "stopped" / "checkpoints" / "policy.safetensors").exists()
    assert not (tmp_path / "stopped" / "policy").exists()
    before = updates()
    assert 5 <= len(before) < 150

    for name in ("stopped", "straight"):
        done = subprocess.run(
            command(name), cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120, text=True
        )
        resumed = f"bc: policy continues at update {before[-1]:,} of 4,800."
        assert (resumed in done.stderr) == (name == "stopped")
    after = updates()
    assert after[: len(before)] == before
    assert after == list(range(32, 4800 + 32, 32))  # each once
    stopped, straight = (tmp_path / name / "policy" / "model.safetensors" for name in ("stopped", "straight"))
    assert stopped.read_bytes() == straight.read_bytes()


# The demo.


def test_the_demo_writes_a_self_contained_page(diffclone: Command, tmp_path: Path) -> None:
    command = ("demo", "--quick", "--out", tmp_path / "demo")
    result = diffclone(*command)
    assert result.code == 0, result.err
    assert "says nothing about the methods" in " ".join(result.out.split())
    assert "chosen: " in result.err
    text = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2, "the figure for wide and for narrow windows"
    assert "<script src" not in text
    assert "stylesheet" not in text
    assert "@import" not in text
    loads = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'>\s]*)|url\(["']?([^"')]*)""", text)
    assert [load for pair in loads for load in pair if load and not load.startswith(("#", "data:"))] == []
    assert (tmp_path / "demo" / "search.html").exists()
    for name, kinds in (("search/bc", 3), ("search/dbc", 3), (".", 2)):
        records = Record.read_all(tmp_path / "demo" / name / "records.jsonl")
        assert [record.kind for record in records] == ["training", *["evaluation"] * (kinds - 1)]
        assert all(record.quick for record in records)
    shown = html.unescape(text)
    assert f'"when": "{records[1].when}"' in shown

    again = diffclone(*command, "--json")
    assert again.code == 0
    summary = json.loads(again.out)
    assert summary["quick"] is True
    assert [point["chosen"] for point in summary["points"]].count(True) == 1
    assert summary["choice"]["updates"] in (16, 32)


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Let the demo find all packages but these."""

    def find_spec(name: str) -> object:
        return None if name in missing else name

    monkeypatch.setattr("diffclone.cli.demo.find_spec", find_spec)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (("mujoco",), r"the demo needs the package mujoco\. Try: pip install .*\[demo\]'\."),
        (("gymnasium_robotics", "matplotlib"), "needs the packages gymnasium-robotics, matplotlib"),
    ],
)
def test_the_demo_needs_its_packages_before_it_trains(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], message: str
) -> None:
    without(monkeypatch, *missing)
    assert_error(diffclone("demo", "--quick", "--out", tmp_path / "demo"), message)
    assert contents(tmp_path) == {}


def test_the_demo_says_at_once_that_there_will_be_no_videos(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    demo = importlib.import_module("diffclone.cli.demo")
    monkeypatch.setattr(demo, "print_message", said.append)
    without(monkeypatch, "imageio")
    demo.check_packages()
    assert len(said) == 1
    assert said[0].startswith("The page will have no videos, which need imageio. For them: pip install")


# Acting settings, fractions of the demonstrations, automatic coefficients.


@pytest.fixture(scope="module")
def sampling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a diffusion policy."""
    folder = tmp_path_factory.mktemp("sampling") / "run"
    small = ("--method", "diffusion-policy", "--seeds", "1", "--training.updates", "20", "--width", "8")
    main(["train", "maze", *small, "--calls", "2", "--device", "cpu", "--out", str(folder)])
    return folder


def test_evaluate_changes_how_the_policy_acts(diffclone: Command, sampling: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sampling, tmp_path / "run"))
    weights = (folder / "policy" / "model.safetensors").read_bytes()
    for acting, known in ((("sampler=ddim", "calls=3", "within_box=false"), ("ddim", 3, False)), ((), None)):
        flags = ("--acting", *acting) if acting else ()
        result = diffclone("evaluate", folder, "--episodes", "1", "--device", "cpu", "--json", *flags)
        assert result.code == 0
        settings = json.loads(result.out)["settings"]
        found = tuple(settings[name] for name in ("sampler", "calls", "within_box"))
        assert found == (known or ("dpm-solver++", 2, True))
        assert Record.read_all(folder / "records.jsonl")[-1].settings == settings
    # The run has not changed.
    assert json.loads((folder / "policy" / "config.json").read_text())["method"]["calls"] == 2
    assert (folder / "policy" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("acting", "message"),
    [
        ("calls=0", "calls within 1 … steps"),
        ("calls=2000", "2000 of 1000"),
        ("calls=few", "calls is 2; 'few' is not of type int"),
        ("calls=2.5", "calls is 2; 2.5 is not of type int"),
        ("within_box=1", "within_box is True; 1 is not of type bool"),
        (
            "width=8",
            "width cannot be changed in a trained DiffusionPolicy; these can: execute, ensemble, sampler, calls",
        ),
        ("cals=8", "cals cannot be changed"),
        ("calls", "an option is NAME=VALUE; it was given 'calls'"),
    ],
)
def test_invalid_acting_settings_are_one_line(diffclone: Command, sampling: Path, acting: str, message: str) -> None:
    before = contents(sampling)
    assert_error(diffclone("evaluate", sampling, "--episodes", "1", "--device", "cpu", "--acting", acting), message)
    assert contents(sampling) == before


def test_an_unknown_sampler_is_one_line(sampling: Path) -> None:
    # In another process, without the type checks of the tests.
    command = [sys.executable, "-m", "diffclone", "evaluate", str(sampling), "--acting", "sampler=ddmi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    known = "sampler must be 'ancestral' or 'ddim' or 'dpm-solver..'; it is 'ddmi'"
    assert_error(CommandResult(done.returncode, done.stdout, done.stderr), known)


def test_bc_has_no_sampler_to_change(diffclone: Command, run_folder: Path) -> None:
    wrong = diffclone("evaluate", run_folder, "--episodes", "1", "--acting", "calls=3")
    assert_error(wrong, "calls cannot be changed in a trained BC; these can: execute, ensemble")


def test_train_on_a_fraction_of_the_demonstrations(diffclone: Command, tmp_path: Path) -> None:
    whole = TASKS["maze"].demonstrations()
    for name, flags, expected in (
        ("episodes", ("--fraction", "0.1"), whole.subsample(0.1)),
        ("steps", ("--fraction", "0.25", "--fraction-by", "transition"), whole.subsample(0.25, by="transition")),
        ("noise", ("--action-noise", "0.05"), whole.with_action_noise(0.05)),
        ("both", ("--fraction", "0.1", "--action-noise", "0.05"), whole.subsample(0.1).with_action_noise(0.05)),
    ):
        assert diffclone("train", "maze", *TINY, *flags, "--out", tmp_path / name).code == 0
        data = json.loads((tmp_path / name / "run.json").read_text())["data"]
        assert (data["fingerprint"], data["steps"]) == (expected.fingerprint, expected.num_steps)
        assert data["fingerprint"] != whole.fingerprint
    assert whole.subsample(0.1).num_episodes == 10
    assert whole.subsample(0.25, by="transition").num_steps == whole.num_steps // 4
    noise = json.loads((tmp_path / "both" / "run.json").read_text())["data"]["meta"]["action_noise"]
    assert noise == [{"level": 0.05, "seed": 0}]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--fraction", "0"), "fraction must be above 0 and at most 1; it is 0"),
        (("--fraction", "1.5"), "fraction must be above 0 and at most 1; it is 1.5"),
        (("--fraction", "nan"), "fraction must be above 0 and at most 1; it is nan"),
        (("--action-noise", "-0.1"), "the noise level must be finite and not negative; it is -0.1"),
        (("--action-noise", "inf"), "the noise level must be finite and not negative; it is inf"),
    ],
)
def test_an_invalid_fraction_is_one_line(
    diffclone: Command, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    assert_error(diffclone("train", "maze", *TINY, *flags, "--out", tmp_path / "run"), message)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(("given", "kept"), [("auto", "auto"), ("2.5", 2.5), ("3", 3.0)])
def test_a_coefficient_is_a_number_or_auto(diffclone: Command, tmp_path: Path, given: str, kept: float | str) -> None:
    brief = ("--training.updates", "2", "--network.width", "8", "--guide.training.updates", "2", "--guide.width", "8")
    flags = ("--seeds", "1", "--device", "cpu", "--no-cache", *brief, "--coefficient", given, "--ratio", "0.5")
    assert diffclone("train", "maze", *flags, "--out", tmp_path / "run").code == 0
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["method"]
    assert (settings["coefficient"], settings["ratio"]) == (kept, 0.5)


def test_wandb_writes_offline_into_the_run(diffclone: Command, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    result = diffclone("train", "maze", *TINY, "--out", tmp_path / "run", "--wandb")
    assert result.code == 0
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))


@pytest.mark.parametrize("arguments", [("tasks",), ("train", "--help"), ("evaluate", "no-such-run")])
def test_a_terminal_that_knows_only_ascii_is_no_traceback(arguments: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-m", "diffclone", *arguments]
    result = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=120)
    assert b"Traceback" not in result.stderr
    assert (result.stdout + result.stderr).isascii()
    assert result.returncode == (2 if "no-such-run" in arguments else 0)


def test_a_user_without_a_home_folder_is_told_what_to_set(diffclone: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for name in ("DIFFCLONE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    result = diffclone("train", "spiral", "--method", "dbc", "--out", "run")
    assert result.code == 2
    assert result.err == "diffclone: this user has no home folder. Set DIFFCLONE_CACHE to a folder.\n"
