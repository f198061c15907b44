"""How much memory a file may claim, asked before any is taken: what a file says of its own size may be a lie."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import final

from diffclone.errors import InvalidData

MOST = 64 << 30
"""Bytes that no file may claim."""
FREELY = 256 << 20
"""Bytes that any file may claim."""
RATIO = 200
"""Bytes that a file may claim for each byte it has; recorded numbers hardly shrink by more than ten."""


@final
class Budget:
    """What is left of the bytes that a file or folder may claim."""

    def __init__(self, source: str | Path, stored: int):
        self.source, self.stored = source, stored
        self.allowed = self.left = min(MOST, max(FREELY, RATIO * stored))

    @classmethod
    def of(cls, path: Path) -> "Budget":
        """By the size of the file, or of the files in the folder."""
        files = path.rglob("*") if path.is_dir() else (path,)
        return cls(path, sum(file.stat().st_size for file in files if file.is_file()))

    def take(self, name: str, shape: Sequence[int], itemsize: int) -> None:
        """Claim an array of this shape."""
        claimed = math.prod(shape) * itemsize
        if claimed > self.left:
            raise InvalidData(
                f"{self.source}: {name} claims {_size(claimed)} in a file of {_size(self.stored)}, which may hold "
                f"{_size(self.allowed)} at most. It is damaged or hostile; if it is neither, split it."
            )
        self.left -= claimed


def _size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} bytes"
