"""Zip archives whose entries are not trusted."""

import zipfile
from pathlib import Path
from typing import Any


def has_entry(path: Path, *endings: str) -> bool:
    """Return whether a file is a zip with an entry whose name has one of these endings."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return any(name.endswith(endings) for name in file.namelist())


def open_entry(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """Open an entry. Compression methods that may use much more memory than the entry's size are refused."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename} is compressed by method {info.compress_type}; deflate was expected")
    return file.open(info)
