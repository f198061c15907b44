"""A limit on the memory that reading a file may take, because the size that a file declares may be wrong."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import final

from diffclone.errors import InvalidData

MAXIMUM = 64 << 30
"""Bytes that no file may exceed."""
ALWAYS_ALLOWED = 256 << 20
"""Bytes that every file may use."""
RATIO = 200
"""Bytes that a file may use per byte on disk. Recorded numbers rarely compress by more than a factor of ten."""


@final
class MemoryBudget:
    """The bytes that a file or folder may still use. Reserve them before allocating."""

    def __init__(self, source: str | Path, stored: int):
        self.source, self.stored = source, stored
        self.allowed = self.left = min(MAXIMUM, max(ALWAYS_ALLOWED, RATIO * stored))

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
