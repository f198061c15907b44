import errno
import gzip
import json
import os
from pathlib import Path

import pytest
import torch

from diffclone.errors import DiffcloneWarning, InvalidFile
from diffclone.files import (
    append_line,
    create_path,
    read_json,
    read_lines,
    read_tensors,
    refuse_existing,
    replace_path,
    write_atomically,
    write_json,
    write_tensors,
)
from diffclone.records import Record


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.json"
    write_json(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, "new")
    assert read_json(path) == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("inner", ["", "/config.json"], ids=["file", "file in a folder"])
def test_an_error_of_the_system_names_the_file_and_not_the_temporary_one(tmp_path: Path, inner: str) -> None:
    def write(name: str | None) -> None:
        with replace_path(tmp_path / "out.npz") as temporary:
            raise PermissionError(errno.EACCES, "Permission denied", name and name.format(temporary))

    for name, expected in (("{}" + inner, tmp_path / f"out.npz{inner}"), (None, tmp_path / "out.npz"), ("b", "b")):
        with pytest.raises(PermissionError) as caught:
            write(name)
        assert caught.value.filename == str(expected)


def test_writing_replaces_the_whole_file_and_makes_folders(tmp_path: Path) -> None:
    path = tmp_path / "b" / "c.bin"
    write_atomically(path, b"long content")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_json_round_trip(tmp_path: Path) -> None:
    value = {"λ": [1, 2.5, None], "nested": {"ok": True}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b""])
def test_damaged_json_is_reported_with_its_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InvalidFile, match=r"a\.json is not JSON"):
        read_json(tmp_path / "a.json")


def test_tensors_and_their_header_round_trip(tmp_path: Path) -> None:
    matrix = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    # A view, a transposed view, and two names for the same memory: all are saved by value.
    tensors = {"row": matrix[1], "turned": matrix.mT, "same": matrix[1], "count": torch.tensor(2**60)}
    about = {"seed": 3, "settings": {"lr": 1e-4, "λ": None}}
    write_tensors(tmp_path / "a.safetensors", tensors, about)
    again, header = read_tensors(tmp_path / "a.safetensors")
    assert header == about
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[k], tensors[k]) and again[k].dtype == tensors[k].dtype for k in tensors)


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_a_damaged_tensor_file_is_reported_with_its_path(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": torch.ones(100)}, None)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InvalidFile, match=r"a\.safetensors is damaged or no safetensors file"):
        read_tensors(path)


def test_missing_files_are_reported_with_their_path(tmp_path: Path) -> None:
    for read in (read_json, read_tensors, read_lines, Record.read_all):
        with pytest.raises(InvalidFile, match=r"no such file: .*none"):
            read(tmp_path / "none")


def test_refuse_existing_reports_the_path_and_a_solution(tmp_path: Path) -> None:
    refuse_existing(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(InvalidFile, match=r"exists already and is not overwritten\. Choose another name"):
            refuse_existing(path)


def test_create_path_removes_its_files_after_an_error_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def interrupted() -> None:
        with create_path(path) as temporary:
            write_json(temporary / "a.json", 1)
            raise KeyboardInterrupt

    def overtaken() -> None:
        with create_path(path) as temporary:
            temporary.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidFile, match="out exists already"):
        overtaken()
    assert [file.read_text() for file in tmp_path.iterdir()] == ["theirs"]
    (tmp_path / "empty").mkdir()
    with create_path(tmp_path / "empty", allow_empty_folder=True) as temporary:
        write_json(temporary / "a.json", 1)
    assert read_json(tmp_path / "empty" / "a.json") == 1


LINES = [{"a": 1, "λ": [0.1, None]}, {"b": "x"}]


def write_text_lines(path: Path, end: str = "") -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES) + end)


def test_lines_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    for line in LINES:
        append_line(path, line)
    assert read_lines(path) == LINES
    assert path.read_text() == "".join(json.dumps(line) + "\n" for line in LINES)


@pytest.mark.parametrize("torn", ["{", '{"stage": "policy", "upd', '{"a": "λ'[:7], "\0" * 40, '{"a": 1\0\0\0'])
def test_an_incomplete_last_line_is_dropped_with_a_warning(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.jsonl"
    write_text_lines(path, torn)
    with pytest.warns(DiffcloneWarning, match=r"a\.jsonl: the last line is incomplete and is ignored"):
        assert read_lines(path) == LINES
    with pytest.warns(DiffcloneWarning, match="incomplete"):
        append_line(path, {"c": 3})
    assert read_lines(path) == [*LINES, {"c": 3}]


def test_a_complete_last_line_without_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_text_lines(path, '{"c": 3}')
    assert read_lines(path) == [*LINES, {"c": 3}]
    append_line(path, {"d": 4})
    assert read_lines(path) == [*LINES, {"c": 3}, {"d": 4}]


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("{torn\n{}\n", "line 3 is not JSON"),
        ("{torn\n", "line 3 is not JSON"),
        ("hello", "line 3 is not JSON"),
        ("\n\xff\n", "line 4 is not JSON"),
        ("[1]\n", "line 3 is not a JSON object"),
    ],
)
def test_a_damaged_line_is_reported_with_its_number(tmp_path: Path, end: str, message: str) -> None:
    write_text_lines(tmp_path / "a.jsonl", end)
    with pytest.raises(InvalidFile, match=rf"a\.jsonl: {message}.*Correct or remove that line\."):
        read_lines(tmp_path / "a.jsonl")


def test_records_survive_an_incomplete_last_line(tmp_path: Path) -> None:
    record = Record("training", {}, [], {}, {}, "cpu", 1.0)
    path = tmp_path / "records.jsonl"
    record.append_to(path)
    path.write_text(path.read_text() + path.read_text()[:40])
    with pytest.warns(DiffcloneWarning, match="incomplete"):
        assert Record.read_all(path) == [record]
    with pytest.warns(DiffcloneWarning, match="incomplete"):
        record.append_to(path)
    assert Record.read_all(path) == [record, record]


def test_compressed_lines_are_read_and_a_broken_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    assert read_lines(path) == [{"a": 1}, {"a": 2}]
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(InvalidFile, match="not a gzip file"):
        read_lines(path)
    path.write_bytes(b'{"a": 1}\n')
    with pytest.raises(InvalidFile, match="not a gzip file"):
        read_lines(path)


@pytest.mark.parametrize(("field", "value"), [("kind", 3), ("settings", []), ("members", None), ("seconds", "1")])
def test_records_with_values_of_other_types_are_refused(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "records.jsonl"
    good = {
        "kind": "training",
        "settings": {},
        "members": [],
        "data": {},
        "results": {},
        "device": "cpu",
        "seconds": 1.0,
    }
    path.write_text(json.dumps(good) + "\n")
    assert len(Record.read_all(path)) == 1
    path.write_text(json.dumps(good | {field: value}) + "\n")
    with pytest.raises(InvalidFile, match=f"not a file of Records .{field} is"):
        Record.read_all(path)
