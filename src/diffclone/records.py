"""Records: what was done and what was measured, one line of JSON each. Every reported number has one."""

import datetime
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, final

from diffclone.errors import InvalidFile
from diffclone.files import append_line, read_lines


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change a number."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    """Return the versions of this process. Looking them up takes milliseconds."""
    found = {"python": platform.python_version()}
    for package in ("diffclone", "torch", "numpy", "mujoco", "gymnasium", "gymnasium-robotics", "metaworld", "ogbench"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@final
@dataclass(frozen=True, repr=False)
class Record:
    """One training, one evaluation or one measurement."""

    kind: str
    """What was done: training, evaluation, expert, multimodality, benchmark, timing."""
    settings: Mapping[str, Any]
    """All settings of the method."""
    members: list[dict[str, Any]]
    """The seed of each member, and its values of the fields that vary."""
    data: Mapping[str, Any]
    """The demonstrations: fingerprint, sizes, source."""
    results: Mapping[str, Any]
    """What was measured."""
    device: str
    """The name of the GPU, or "cpu"."""
    seconds: float
    """Wall-clock time. For a training that was resumed, the time since then."""
    quick: bool = False
    """Whether the run was shortened. Such Records are never compared with the paper."""
    versions: Mapping[str, str] = field(default_factory=versions)
    """Versions of Python and packages."""
    when: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    """The time at which the Record was made."""

    def append_to(self, path: Path) -> None:
        """Add one line to a file."""
        append_line(path, asdict(self))

    @classmethod
    def read_all(cls, path: Path) -> list["Record"]:
        """Read all Records of a file."""
        lines = read_lines(path)
        for line in lines:
            for name, kind in TYPES.items():
                if name in line and not isinstance(line[name], kind):
                    raise InvalidFile(f"{path} is not a file of Records ({name} is {str(line[name])[:80]!r}).")
        try:
            return [cls(**line) for line in lines]
        except TypeError as error:
            raise InvalidFile(f"{path} is not a file of Records ({error}).") from None

    def __repr__(self) -> str:
        named = [self.settings.get("type"), self.results.get("task"), self.device, self.when]
        return f"Record({', '.join(str(part) for part in [self.kind, *named] if part)})"


TYPES = {
    "kind": str,
    "settings": dict,
    "members": list,
    "data": dict,
    "results": dict,
    "device": str,
    "seconds": (int, float),
    "quick": bool,
    "versions": dict,
    "when": str,
}
"""Types of a Record's fields in a file."""
