"""The table "Checked against the packages" in docs/data.md: each of its rows is tried here."""

from pathlib import Path

import pytest

from diffclone import Demonstrations
from diffclone.data.formats import FORMATS
from test_hostile_files import FORMATS as FILES

ROOT = Path(__file__).parents[1]
ROWS = {
    "npz": ("numpy", "npz"),
    "folder of npz files": ("numpy", "npz-folder"),
    "pt": ("torch", "pt"),
    "D4RL": ("h5py", "d4rl"),
    "Minari, hdf5": ("minari", "minari"),
    "Minari, arrow": ("minari", "minari-arrow"),
    "zarr replay buffer": ("zarr", "zarr"),
    "parquet": ("pyarrow", "parquet"),
    "CSV": ("numpy", "csv"),
}
"""For rows whose files are written in the tests: the package that writes them, and the file."""


def read_table() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    lines = text.partition("## Checked against the packages")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in cells[2:]}


def test_every_format_has_a_row() -> None:
    names = " ".join(read_table()).lower()
    labels = {"hf": "hugging face", "npz-folder": "folder of npz"}
    assert [name for name in FORMATS if labels.get(name, name) not in names] == []


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_file_is_read_and_converted_as_its_row_says(tmp_path: Path, row: str) -> None:
    package, name = ROWS[row]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    written_by, read, converted, written = read_table()[row]
    assert written_by.startswith(f"{package} {pins[package]}")
    assert (read, converted) == ("yes", "same numbers")
    filename, make = FILES[name]
    demos = Demonstrations.load(make(tmp_path / filename))
    demos.save(tmp_path / "converted.npz")
    again = Demonstrations.load(tmp_path / "converted.npz")
    assert again.fingerprint == demos.fingerprint
    format = FORMATS[name.removesuffix("-arrow")]
    assert written.startswith("no") == (format.write is None)
