import os
import pty
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from conftest import Command, assert_error
from diffclone.cli.console import print_table
from diffclone.cli.help import GROUPS, Option, format_help, read_page
from diffclone.cli.main import COMMANDS
from diffclone.cli.parser import USUAL_NAMES
from diffclone.methods import DBC

WIDTH = 80
PAGE = """\
usage: diffclone x [-h] [OPTIONS] DATA

╭─ positional arguments ─────────────────────────────────────╮
│ DATA  Name of a task. Or a file. (required)                │
╰────────────────────────────────────────────────────────────╯
╭─ options ──────────────────────────────────────────────────╮
│ -h, --help                                                 │
│       show this help message and exit                      │
│ --out PATH                                                 │
│       Folder of                                            │
│       the run. Another sentence. (required)                │
│ --task {None}|STR                                          │
│       Task. (default: None)                                │
│ --seeds INT                                                │
│       Seeds. (default: 3)                                  │
│ --cache, --no-cache                                        │
│       Keep guides. (default: True)                         │
│ --json, --no-json                                          │
│       Print JSON. (default: False)                         │
│ --ratio FLOAT                                              │
│       ρ. (default: 1.0)                                    │
╰────────────────────────────────────────────────────────────╯
╭─ training options ─────────────────────────────────────────╮
│ How it is trained.                                         │
│ ────────────────────────────────────────────────────────── │
│ --training.decay {linear,constant}                         │
│       Decay. (default: linear)                             │
│ --training.updates INT  Updates. (default: 10)             │
╰────────────────────────────────────────────────────────────╯
"""


def test_the_options_of_a_page_are_read() -> None:
    options = list(read_page(PAGE))
    assert options[0] == Option("DATA", "Name of a task. Or a file.", "", required=True)
    assert options[1] == Option("--out PATH", "Folder of the run. Another sentence.", "", required=True)
    assert [option.name for option in options[2:]] == [
        "task", "seeds", "cache", "json", "ratio", "training.decay", "training.updates"
    ]  # fmt: skip
    assert [option.usage for option in options[2:6]] == ["--task STR", "--seeds INT", "--cache, --no-cache", "--json"]
    assert [option.description(short=True) for option in options[1:6]] == [
        "Folder of the run.", "Task.", "Seeds. (default: 3)", "Keep guides. (default: on)", "Print JSON."
    ]  # fmt: skip


def test_the_short_page_has_groups_and_says_what_it_leaves_out() -> None:
    text = format_help(PAGE, "diffclone x", "What it does.", {"ratio"}, short=True)
    assert text.startswith("usage: diffclone x DATA --out PATH [options]\n\nWhat it does.\n\n  DATA ")
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == ["data", "schedule", "machine", "output"]
    assert "--ratio" not in text
    assert "--training.decay" not in text
    assert text.endswith("diffclone x --help-all shows full descriptions and 2 more settings.\n")
    full = format_help(PAGE, "diffclone x", "What it does.", {"ratio"}, short=False)
    assert re.findall(r"^(\w+):$", full, re.MULTILINE) == ["data", "method", "schedule", "machine", "output"]
    assert "Another sentence." in full


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "version"])
def test_every_page_fits_80_columns(diffclone: Command, name: str) -> None:
    short, full = (diffclone(name, flag) for flag in ("--help", "--help-all"))
    assert (short.code, full.code, short.err, full.err) == (0, 0, "", "")
    for text in (short.out, full.out):
        assert max(map(len, text.splitlines())) <= WIDTH
    flags = set(re.findall(r"^  (--[\w.-]+)", full.out, re.MULTILINE))
    assert flags >= set(re.findall(r"^  (--[\w.-]+)", short.out, re.MULTILINE))
    assert short.out.count("\n") < 110
    groups = ["data", "method", "schedule", "machine", "output"]
    for text in (short.out, full.out):
        assert [name for name in groups if f"\n{name}:\n" in text] == re.findall(r"^(\w+):$", text, re.MULTILINE)
        assert not re.search(r"None[,}]|\[STR|default: ''", text)
    assert ("--help-all" in short.out) == (short.out != full.out)


def test_every_option_has_a_group(diffclone: Command) -> None:
    listed = {name for names in GROUPS.values() for name in names.split()}
    for command in COMMANDS:
        settings = find_settings_of_train() if command == "train" else {"ratio"}
        flags = re.findall(r"^  --([\w-]+)(?=[ ,\n])", diffclone(command, "--help-all").out, re.MULTILINE)
        assert {*flags} - settings <= listed, command


def test_an_option_with_another_name_is_shown_with_its_own(diffclone: Command) -> None:
    page = diffclone("calibrate", "--help-all").out
    assert "  --data STR" in page
    assert "  --action-keys STR" in page
    assert "--demos" not in page


def find_settings_of_train() -> set[str]:
    """Return the names of the settings of the method that `train --help-all` lists."""
    return {field.name.replace("_", "-") for field in fields(DBC)}


def test_help_without_a_command_lists_every_command_once_by_purpose(diffclone: Command) -> None:
    page = diffclone("--help").out
    assert max(map(len, page.splitlines())) <= WIDTH
    assert sorted(re.findall(r"^  (\w+) ", page, re.MULTILINE)) == sorted(COMMANDS)
    assert "\ntraining:\n  train " in page


@pytest.mark.parametrize(("command", "flag", "nearest"), [
    ("tasks", "--jsno", "--json"),
    ("inspect maze", "--pgae", "--page"),
    ("export run", "--memebr", "--member"),
    ("serve run", "--prot", "--port"),
    ("render maze", "--stpes", "--steps"),
    ("train maze --out x", "--snapshot", "--snapshots"),
    ("train maze --out x", "--epochs", "--training.updates"),
    ("train maze --out x", "--batch-size", "--training.batch"),
])  # fmt: skip
def test_an_unknown_flag_names_the_nearest(diffclone: Command, command: str, flag: str, nearest: str) -> None:
    assert_error(diffclone(*command.split(), flag, "1"), f"unknown option {flag}; did you mean {nearest}")


def test_a_flag_that_resembles_none_has_no_suggestion(diffclone: Command) -> None:
    assert_error(
        diffclone("evaluate", "run", "--epochs", "1"), r"unknown option --epochs\. See diffclone evaluate --help"
    )


def test_usual_names_stand_for_options_that_exist(diffclone: Command) -> None:
    known = "".join(diffclone(name, "--help-all").out for name in ("train", "evaluate"))
    for names in USUAL_NAMES.values():
        assert all(f"  {name} " in known for name in names), names


def test_tables_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["a value", "a long explanation " * 20, "0.123456789012345678901234567890"] for _ in range(3)]
    print_table("A title that is longer than the line, " * 4, ["name", "what it is", "number"], rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= WIDTH


def run_in_terminal(**environment: str) -> bytes:
    """Return what `diffclone --help` prints in a terminal."""
    ours, theirs = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    command = [sys.executable, "-m", "diffclone", "--help"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**base, **environment}) as process:
        os.close(theirs)
        printed = b""
        try:
            while part := os.read(ours, 65536):
                printed += part
        except OSError:  # the other side is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    return printed


@pytest.mark.parametrize("environment", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_there_are_no_colours_where_there_should_be_none(environment: dict[str, str]) -> None:
    assert b"demo" in run_in_terminal(**environment)
    assert not re.search(rb"\x1b\[(3|4|9)\d", run_in_terminal(**environment))
