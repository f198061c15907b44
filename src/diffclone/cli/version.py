"""The `version` command. It imports torch only to name the device."""

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass

from diffclone.cli.console import print_json, print_table
from diffclone.errors import install_command
from diffclone.records import versions

EXTRA = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?[^;]*;.*extra == ['\"]([\w-]+)['\"]")
"""A package that an extra requires, as in `h5py>=3.11; extra == 'data'`."""
NOT_LISTED = ("all", "demo", "test", "docs", "bench", "dev")
"""Extras that consist of others, and those for work on diffclone itself."""


@dataclass(frozen=True)
class Version:
    """Print the versions of diffclone and of the packages that can change a result, the device and the extras."""

    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Print what is installed."""
        known, missing, device = versions(), missing_packages(requirements()), find_device()
        if self.json:
            extras = {extra: {"installed": not lacks, "missing": lacks} for extra, lacks in missing.items()}
            print_json({"versions": known, "device": device, "extras": extras})
            return
        rows = [[name, version] for name, version in known.items()]
        rows.append(["device", device])
        for extra, lacks in missing.items():
            text = "installed" if not lacks else f"not installed: {', '.join(lacks)} ({install_command(extra)})"
            rows.append([f"extra {extra}", text])
        print_table(f"diffclone {known.get('diffclone', 'unknown')}", ["", ""], rows)


def describe_versions() -> str:
    """Return one line: versions and extras."""
    known = versions()
    others = ", ".join(f"{name} {version}" for name, version in known.items() if name != "diffclone")
    extras = ", ".join(name for name, lacks in missing_packages(requirements()).items() if not lacks)
    return f"diffclone {known.get('diffclone', 'unknown')} ({others}; extras {extras or 'none'})"


def requirements() -> Sequence[str]:
    """Return what the installed package requires; nothing if it is not installed."""
    try:
        return importlib.metadata.requires("diffclone") or ()
    except importlib.metadata.PackageNotFoundError:
        return ()


def missing_packages(requires: Sequence[str]) -> dict[str, list[str]]:
    """Return each extra for users with those of its packages that are not installed."""
    found: dict[str, list[str]] = {}
    for package, extra in (match.groups() for match in map(EXTRA.match, requires) if match):
        if extra in NOT_LISTED:
            continue
        try:
            importlib.metadata.version(package)
            lacks: list[str] = []
        except importlib.metadata.PackageNotFoundError:
            lacks = [package]
        found[extra] = found.get(extra, []) + lacks
    return found


def find_device() -> str:
    """Return the device that `--device auto` chooses."""
    import torch

    from diffclone.fit import choose_device

    device = choose_device("auto")
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' * (threads != 1)}"
