import os
from pathlib import Path

import pytest
import torch

from diffclone.errors import InvalidFile
from diffclone.files import read_json, read_tensors, write_atomically, write_json, write_tensors


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


def test_writing_replaces_whole_and_makes_folders(tmp_path: Path) -> None:
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
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InvalidFile, match=r"a\.json is not JSON"):
        read_json(tmp_path / "a.json")


def test_tensors_round_trip_with_what_they_are_about(tmp_path: Path) -> None:
    matrix = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    # A view, a transposed view, and two names for one memory: all are saved by value.
    tensors = {"row": matrix[1], "turned": matrix.mT, "same": matrix[1], "count": torch.tensor(2**60)}
    about = {"seed": 3, "settings": {"lr": 1e-4, "λ": None}}
    write_tensors(tmp_path / "a.safetensors", tensors, about)
    again, told = read_tensors(tmp_path / "a.safetensors")
    assert told == about
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[k], tensors[k]) and again[k].dtype == tensors[k].dtype for k in tensors)


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_a_damaged_tensor_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": torch.ones(100)}, None)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InvalidFile, match=r"a\.safetensors is damaged or no safetensors file"):
        read_tensors(path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for read in (read_json, read_tensors):
        with pytest.raises(InvalidFile, match=r"no such file: .*none"):
            read(tmp_path / "none")
