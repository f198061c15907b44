import dataclasses
import re

import pytest

from diffclone.cli.claims import print_claims
from diffclone.experiments.claims import ClaimsTable
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
