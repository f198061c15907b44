"""A limit on the memory that reading a file may take, because the size that a file declares may be wrong."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import final

from diffclone.errors import InvalidData, InvalidSettings

MAXIMUM = 64 << 30
"""Bytes that no file may exceed, unless it is itself as large: such a file is read in blocks."""
ALWAYS_ALLOWED = 256 << 20
"""Bytes that every file may use."""
RATIO = 200
"""Bytes that a file may use per byte on disk. Recorded numbers rarely compress by more than a factor of ten."""


@final
class MemoryBudget:
    """The bytes that a file or folder may still use. Reserve them before allocating."""

    def __init__(self, source: str | Path, stored: int):
        self.source, self.stored = source, stored
        limit = MAXIMUM if stored <= MAXIMUM else 2 * stored
        self.allowed = self.left = min(limit, max(ALWAYS_ALLOWED, RATIO * stored))

    @classmethod
    def from_path(cls, path: Path) -> "MemoryBudget":
        """Return the budget for a file, or for all files of a folder together."""
        files = path.rglob("*") if path.is_dir() else (path,)
        return cls(path, sum(file.stat().st_size for file in files if file.is_file()))

    def reserve(self, name: str, shape: Sequence[int], itemsize: int) -> None:
        """Reserve memory for an array, or raise `InvalidData` if it is too large."""
        size = math.prod(shape) * itemsize
        if size > self.left:
            raise InvalidData(
                f"{self.source}: {name} declares {_format_size(size)} in a file of {_format_size(self.stored)}, which "
                f"may use {_format_size(self.allowed)} at most. The file is damaged or malicious. If it is neither, "
                "split it."
            )
        self.left -= size


def _format_size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} bytes"


def parse_bytes(text: str | int) -> int:
    """Return a number of bytes, given as a number or as text such as 4GB, 500MB or 2GiB."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", str(text), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise InvalidSettings(f"memory is a size such as 4GB, 500MB or 2GiB; it was given {str(text)!r}.")
    power = " KMGT".index(found[2].upper() or " ")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def format_bytes(count: int) -> str:
    """Return a number of bytes as people write it: 20 GB, 1.5 MB."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count} bytes"
