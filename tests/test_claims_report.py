import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from diffclone.cli.claims import print_claims
from diffclone.experiments.claims import ClaimsTable
from diffclone.experiments.evidence import CellFinder
from diffclone.experiments.task_settings import ASSETS
from diffclone.records import Record
from diffclone.reports.claims import claims_latex, claims_markdown, count_verdicts, describe_row, list_notes
from diffclone.reports.report import build_report, report_page
from example_pages import CLAIM

ROW = dataclasses.replace(
    CLAIM, claim="DBC is better than BC.", place="Table 2", on="Maze", verdict="reproduced", p=0.00001
)
NOT_RUN = dataclasses.replace(
    ROW,
    difference=None,
    interval=None,
    verdict="not run",
    p=None,
    reason="IBC",
    seeds=None,
    headroom=None,
    records=(),
    note=None,
    name="other",
)
TABLE = ClaimsTable((ROW, NOT_RUN), "The rule.", {"reproduced": 1, "not run": 1})


def test_a_row_says_what_was_found_and_how_sure_it_is() -> None:
    text = describe_row(ROW)
    assert text.difference == "DBC (paper) − BC (paper): +3.1 (−0.5 … +6.8)"
    assert (text.margin, text.count, text.headroom) == ("2.0 points", "10 × 100", "+8.0")
    assert text.verdict == "✓ reproduced (p <0.001)"
    assert describe_row(NOT_RUN).verdict == "not run (IBC)"
    several = dataclasses.replace(ROW, parts=3, unit="return", difference=-1234.5, interval=None)
    assert describe_row(several).difference.endswith("BC (paper): −1,234, the least of 3")
    ratio = dataclasses.replace(ROW, unit="ratio", difference=34.9, margin=None)
    assert describe_row(ratio).difference == "34.90 times"


def test_quick_rows_have_no_verdict() -> None:
    quick = dataclasses.replace(ROW, quick=True, verdict="unresolved", reason="quick", p=None)
    table = ClaimsTable((quick,), "The rule.", {"unresolved": 1})
    assert describe_row(quick).verdict == "quick, no verdict"
    for text in (claims_markdown(table), claims_latex(table)):
        assert "Quick runs" in text
        assert "reproduced" not in text
    assert "reproduced" not in re.sub(r"<style>.*?</style>", "", report_page((), {}, (), table), flags=re.DOTALL)
    assert 'class="quick"' in report_page((), {}, (), table)


def test_the_tables_have_a_line_per_test() -> None:
    lines = claims_markdown(TABLE).splitlines()
    assert len(lines) == 4
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    rows = [line for line in claims_latex(TABLE).splitlines() if line.endswith("\\\\")]
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    claims_latex(TABLE).encode("ascii")
    assert count_verdicts(TABLE) == "2 claims of the paper, 2 tests: 1 reproduced, 1 not run."
    assert list_notes(TABLE) == ["DBC is better than BC. A note."]


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_claims(TABLE, json=False)
    said = capsys.readouterr()
    assert "reproduced" in said.out
    assert "2 claims of the paper" in said.err
    print_claims(ClaimsTable((dataclasses.replace(ROW, quick=True),), "The rule.", {}), json=False)
    said = capsys.readouterr()
    assert "no verdicts" in said.out
    assert "reproduced" not in said.out


def test_the_page_leads_with_the_claims() -> None:
    files = build_report((), TABLE)
    page = files["index.html"].decode()
    assert re.findall(r'<section id="([\w-]+)"', page)[0] == "claims"
    assert "The rule." in page
    assert 'href="#record-1"' in page
    assert 'id="record-1"' in page
    assert {"tables/claims.md", "tables/claims.tex"} <= set(files)
    assert "#claims" not in report_page((), {})


# Experts, for the headroom.


def expert_score(task: str, setting: str | None = None, *records: Record) -> float:
    return CellFinder(records).expert_score(task, setting, authors=False)


def expert_record(*, options: dict[str, Any] | None = None, **changes: Any) -> Record:
    results = {"task": "maze", "setting": "maze-25", "starts": "evaluation", "episodes": 100, "success_rate": 0.2}
    settings = {"expert": "WaypointExpert", **({} if options is None else {"options": options})}
    return Record("expert", settings, [], {}, {**results, **changes}, "cpu", 1.0)


@pytest.mark.parametrize(
    "other",
    [
        expert_record(starts="validation"),
        expert_record(episodes=99),
        expert_record(options={"noise": 3.0}),
        expert_record(options={"weights": "mine.safetensors"}),
    ],
    ids=["starts", "episodes", "options", "weights"],
)
def test_a_record_of_another_expert_does_not_replace_the_bundled_one(other: Record) -> None:
    assert expert_score("maze", "maze-25", other) == expert_score("maze") > 90
    assert expert_score("maze", "maze-25", expert_record(success_rate=0.9), other) == 90


@pytest.mark.parametrize("options", [None, {}])
def test_a_record_of_the_same_expert_counts(options: dict[str, Any] | None) -> None:
    assert expert_score("maze", "maze-25", expert_record(options=options)) == 20


def test_the_record_of_an_expert_has_its_options(diffclone: Command, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for flags in ((), ("--options", "noise=3")):
        assert diffclone("expert", "evaluate", "spiral", "--episodes", "1", *flags, "--out", path).code == 0
    weights = ASSETS / "experts" / "hand-rotate.safetensors"
    flags = ("--episodes", "1", "--weights", weights, "--out", path)
    assert diffclone("expert", "evaluate", "hand-rotate", *flags).code == 0
    options = [record.settings["options"] for record in Record.read_all(path)]
    assert options == [{}, {"noise": 3}, {"weights": str(weights)}]
