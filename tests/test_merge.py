"""`diffclone merge`: no duplicates, contradictions named, torn lines as everywhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Command, assert_error
from diffclone.experiments.record_keys import content_key
from diffclone.experiments.specification import RunOptions
from diffclone.records import Record
from example_experiments import BC, DBC, evaluation_of


@pytest.fixture
def records() -> list[Record]:
    return [evaluation_of(cell, RunOptions(), device="cpu") for cell in (BC, DBC)]


def write(path: Path, *records: Record) -> Path:
    for record in records:
        record.append_to(path)
    return path


def test_duplicates_are_left_out_and_all_else_is_kept(
    records: list[Record], diffclone: Command, tmp_path: Path
) -> None:
    bc, dbc = records
    again = replace(
        bc, when="2030-01-01T00:00:00+00:00", seconds=9.0, results={**bc.results, "episodes_per_second": 3.0}
    )
    more = replace(bc, results={**bc.results, "episodes": 200, "success_rate": 0.7})
    elsewhere = replace(bc, device="NVIDIA H200", results={**bc.results, "success_rate": 0.6})
    timed = replace(bc, kind="inference", results={"label": "BC", "milliseconds": 1.0})
    slower = replace(timed, results={"label": "BC", "milliseconds": 2.0})
    first = write(tmp_path / "a.jsonl", bc, dbc, timed)
    second = write(tmp_path / "b.jsonl", again, more, elsewhere, slower)
    code, out, err = diffclone("merge", first, second, "--out", tmp_path / "all.jsonl", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"out": str(tmp_path / "all.jsonl"), "records": 6, "duplicates": 1}
    found = Record.read_all(tmp_path / "all.jsonl")
    assert list(map(content_key, found)) == list(map(content_key, [bc, dbc, timed, more, elsewhere, slower]))
    assert found[0].when == bc.when
    assert diffclone("merge", first, second, "--out", tmp_path / "all.jsonl.gz")[0] == 0
    assert Record.read_all(tmp_path / "all.jsonl.gz") == found
    assert_error(diffclone("merge", first, "--out", tmp_path / "all.jsonl"), "exists already and is not overwritten")


def test_a_contradiction_is_one_line_and_nothing_is_written(
    records: list[Record], diffclone: Command, tmp_path: Path
) -> None:
    bc, dbc = records
    other = [replace(r, results={**r.results, "success_rate": 0.25}) for r in (bc, dbc)]
    files = write(tmp_path / "a.jsonl", bc, dbc), write(tmp_path / "b.jsonl", *other)
    message = r"a\.jsonl and \S+b\.jsonl have the same evaluation spiral bc .*: success_rate 0\.5 and 0\.25 \(1 more\)"
    assert_error(diffclone("merge", *files, "--out", tmp_path / "all.jsonl"), message)
    assert not (tmp_path / "all.jsonl").exists()


def test_a_torn_line_is_left_out_with_a_warning_and_other_files_are_refused(
    records: list[Record], diffclone: Command, tmp_path: Path
) -> None:
    torn = write(tmp_path / "torn.jsonl", *records)
    torn.write_bytes(torn.read_bytes()[:-30])
    code, _, err = diffclone("merge", torn, "--out", tmp_path / "all.jsonl")
    assert code == 0
    assert "torn.jsonl: the last line is incomplete and is ignored." in err
    assert len(Record.read_all(tmp_path / "all.jsonl")) == 1
    (tmp_path / "text").write_text("hello\n")
    for path in (tmp_path / "text", tmp_path / "nowhere"):
        assert_error(diffclone("merge", path, "--out", tmp_path / "new.jsonl"), str(path))
