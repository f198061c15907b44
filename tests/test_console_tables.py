"""Tables in 80 columns: no word is broken, and what is long has a line of its own."""

import re

import pytest

from conftest import Command
from diffclone.cli.console import print_table
from diffclone.cli.reproduce import print_results
from diffclone.cli.study import print_study
from diffclone.cli.table import format_table
from diffclone.records import Record
from example_results import all_tables, cell, make_table
from snippets import ROOT

WIDTH = 80
LONG = "maze-dbc-brief-vae-gate-batch-guide.kl_weight-0.1-imitation"


def arrange(columns: list[str], rows: list[list[str]], width: int = WIDTH, notes: tuple[str, ...] = ()) -> list[str]:
    """Return the lines of a table; check that they fit and that every word is whole."""
    head, body = format_table(columns, rows, width, notes)
    lines = [*head, *body]
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]
    words = set(" ".join(lines).split())
    assert {word for row in rows for cell in row for word in cell.split()} <= words
    return lines


def test_a_table_that_fits_has_one_line_per_row() -> None:
    lines = arrange(["task", "n"], [["maze", "1"], ["spiral", "20"]])
    assert lines == ["task    n", "──────────", "maze    1", "spiral  20"]


def test_cells_are_broken_between_words() -> None:
    lines = arrange(["name", "about"], [["a name", "some words " * 12]], width=40)
    assert lines[2].startswith("a name  some words some words")
    assert lines[3].startswith("        some words")


def test_only_first_cells_that_are_long_get_a_line_of_their_own() -> None:
    numbers = ["5", "guide 40k, 20k", "1,000", "1 h 22 min"]
    columns = ["training", "members", "updates", "episodes", "time"]
    lines = arrange(columns, [["maze-bc-best", *numbers], [LONG, *numbers]])
    short, name, below = lines[2:]
    assert short.split()[:2] == ["maze-bc-best", "5"]
    assert name == LONG
    assert short[short.index(" 5 ") :] == below[below.index(" 5 ") :]  # the columns are the same ones
    assert not below[: below.index(" 5 ")].strip()


def test_a_table_of_long_words_has_a_line_per_cell() -> None:
    words = [letter * 40 for letter in "abc"]
    assert arrange(["one", "two", "three"], [words]) == [words[0], f"  two: {words[1]}", f"  three: {words[2]}"]


def test_a_word_that_is_wider_than_the_page_is_the_only_one_that_is_broken() -> None:
    head, body = format_table(["", ""], [["path", "x" * 100], ["steps", "20"]], WIDTH)
    assert (head, body) == ([], [f"path   {'x' * 73}", f"       {'x' * 27}", "steps  20"])


def test_notes_are_below_their_rows() -> None:
    lines = arrange(["task"], [["maze"], ["spiral"]], notes=("A maze.", "A spiral."))
    assert lines[2:] == ["maze", "  A maze.", "spiral", "  A spiral."]


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"COLUMNS": "200"}])
def test_a_pipe_gets_80_columns_and_no_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    print_table("Title [1]", ["name", "about"], [["a [b]", "word " * 40]])
    out = capsys.readouterr().out
    assert out.startswith("Title [1]\nname ")
    assert "a [b]" in out
    assert "\x1b" not in out
    assert WIDTH - 10 < max(map(len, out.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", ["claims", "all", "tuning", "controls"])
def test_a_plan_fits_and_keeps_names_whole(diffclone: Command, name: str) -> None:
    result = diffclone("reproduce", name, "--plan", "--device", "cpu", "--out", "nothing")
    assert result.code == 0, result.err
    assert max(map(len, result.out.splitlines())) <= WIDTH
    assert not re.search(r"^\S*-$", result.out, re.MULTILINE)  # no name is broken at a hyphen
    assert not re.search(r"-[0-9a-f]{8}\b", result.out)  # hashes are in --json
    assert " False" not in result.out
    if name in ("claims", "all"):
        assert re.search(r"^fetch-pick-diffusion-policy-brief$", result.out, re.MULTILINE)
        assert re.search(r"\d+ h \d+ min one after another", result.out)
    if name in ("claims", "tuning"):
        assert re.search(r"^fetch-pick-27  DBC \(paper\) +60 +16,000 +8,640$", result.out, re.MULTILINE)
        rows = re.findall(r"^fetch-pick-27  Diffusion Policy .*$", result.out, re.MULTILINE)
        assert [row.split() for row in rows] == [
            ["fetch-pick-27", "Diffusion", "Policy", "3", "×", "20", "32,000", "8,640"]
        ]


def test_results_fit_and_have_a_table_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    for table in all_tables():
        print_results(table)
        out = capsys.readouterr().out
        for line in out.splitlines():
            assert len(line) <= WIDTH
        for row in {one.row for one in table.cells}:
            assert out.count(f"{table.title}: {row}\n") == 1


def test_what_all_results_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    same = [cell("BC", task, 0.9, 0.8, status="other demonstrations") for task in ("Maze", "Walker")]
    print_results(make_table("main-table", same))
    out, err = capsys.readouterr()
    assert "other demonstrations" not in out
    assert err.count("other demonstrations") == 1
    print_results(make_table("main-table", [*same, cell("BC", "Cheetah", 0.9, 0.8)]))
    assert capsys.readouterr().out.count("other") == 2


def test_results_of_studies_fit(capsys: pytest.CaptureFixture[str]) -> None:
    print_study(Record.read_all(ROOT / "docs/records/study.jsonl.gz"), json=False)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= WIDTH
    tuned = out[out.index("fetch-pick-27, tuned with equal tries") :]
    assert re.search(r"\nBC +72 +96\.9 \(94\.1 … 99\.0\) +–\n  lr 0\.0003, .*4,000 updates; 87\.5 in valid", tuned)
    curves = out[out.index("fetch-pick-27, success along training") :]
    assert re.search(r"\nmethod +500 +1,000 +2,000 +4,000 +8,000 +16,000\n─+\nBC, untuned( +\d+\.\d){6}\n", curves)


def test_a_small_study_has_no_table_along_training(capsys: pytest.CaptureFixture[str]) -> None:
    print_study(Record.read_all(ROOT / "docs/records/small_study.jsonl.gz"), json=False)
    out, err = capsys.readouterr()
    assert "tuned with equal tries" in out
    assert "along training" not in out + err
    assert "numbers of updates" not in err
