"""What was done and what came out, one line of JSON each. A number without its Record does not count."""

import datetime
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from diffclone.errors import InvalidFile
from diffclone.files import append_line, read_lines


def versions() -> dict[str, str]:
    """Of everything that can move a number."""
    found = {"python": platform.python_version()}
    for package in ("diffclone", "torch", "numpy", "mujoco", "gymnasium"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@final
@dataclass(frozen=True)
class Record:
    """One training or one evaluation."""

    kind: str
    """What was done: training, evaluation, expert, multimodality, benchmark, timing."""
    settings: Mapping[str, Any]
    """Of the method, complete."""
    members: list[dict[str, Any]]
    """Seeds, and fields that vary."""
    data: Mapping[str, Any]
    """The demonstrations: fingerprint, sizes, where they come from."""
    results: Mapping[str, Any]
    """What was measured."""
    device: str
    seconds: float
    """Wall clock; of a training that was resumed, since then."""
    quick: bool = False
    """A shortened run: never compared with the paper."""
    versions: Mapping[str, str] = field(default_factory=versions)
    when: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))

    def append_to(self, path: Path) -> None:
        """Add one line."""
        append_line(path, asdict(self))

    @classmethod
    def read_all(cls, path: Path) -> list["Record"]:
        """Every line of a file."""
        try:
            return [cls(**line) for line in read_lines(path)]
        except TypeError as error:
            raise InvalidFile(f"{path} is not a file of Records ({error}).") from None
