"""Check the packages that `diffclone[all]` installs: their licences, and known vulnerabilities.

    python -m scripts.dependencies            check, print what is wrong
    python -m scripts.dependencies --list     also print each package with its version and licence

A licence that is not in ALLOWED fails the check: read it, then add it. pip-audit asks an advisory database over the
network. A line says how many packages it could look up: without a network none.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Any

import tyro
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from diffclone.cli.console import print_message, print_table

ALLOWED = (
    "0BSD", "3-Clause BSD", "Apache", "BSD", "BSL-1.0", "CC0-1.0", "ISC", "LGPL", "Lesser General Public", "MIT",
    "MPL", "Mozilla Public", "PSF", "Python Software Foundation", "Zlib", "zlib",
)  # fmt: skip
"""Licences of dependencies under which this package can stay MIT. A licence counts if it contains one of these."""
SECONDS = 60


def find_packages(name: str, extras: frozenset[str], found: dict[str, frozenset[str]]) -> None:
    """Add the installed packages that `name` with `extras` requires to `found`, with the extras asked for."""
    key, wanted = canonicalize_name(name), extras | {""}
    new = wanted - found.get(key, frozenset())
    if not new:
        return
    found[key] = found.get(key, frozenset()) | new
    for line in distribution(name).requires or ():
        required = Requirement(line)
        if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in new):
            find_packages(required.name, frozenset(required.extras), found)


def licence_of(package: Distribution) -> str:
    """Return the licence that a package names, in one line. Empty if it names none."""
    metadata: Any = package.metadata
    if expression := metadata["License-Expression"]:
        return expression
    prefix = "License :: OSI Approved :: "
    names = [line.removeprefix(prefix) for line in metadata.get_all("Classifier", []) if line.startswith(prefix)]
    return ", ".join(names) or (metadata["License"] or "").strip().partition("\n")[0]


def is_allowed(licence: str) -> bool:
    """Return whether every part of an expression such as `MIT AND Zlib`, or one of `MIT OR GPL-3.0`, is allowed."""
    choices = licence.split(" OR ")
    return any(all(any(ok in part for ok in ALLOWED) for part in choice.split(" AND ")) for choice in choices)


def audit() -> list[str]:
    """Return the known vulnerabilities of the environment's packages, and say how many packages could be looked up."""
    if find_spec("pip_audit") is None:
        print_message("vulnerabilities not checked: pip-audit is not installed (pip install pip-audit).")
        return []
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--timeout", "5"]
    try:
        done = subprocess.run([*command, "-f", "json"], capture_output=True, text=True, timeout=SECONDS, check=False)
        return read_audit(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        print_message("vulnerabilities not checked: the advisory database cannot be reached.")
        return []


def read_audit(output: str) -> list[str]:
    """Return the vulnerabilities in pip-audit's JSON. It skips packages that it cannot look up, all if offline."""
    packages = json.loads(output)["dependencies"]
    known = [package for package in packages if "vulns" in package]
    print_message(f"vulnerabilities: {len(known)} of {len(packages)} packages could be looked up.")
    return [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {found['fix_versions'] or 'no version'}."
        for package in known
        for found in package["vulns"]
    ]


@dataclass(frozen=True)
class Dependencies:
    """Check licences and vulnerabilities of the dependencies."""

    list: bool = False
    """Print each package with its version and licence."""

    def run(self) -> int:
        """Return the exit code."""
        found: dict[str, frozenset[str]] = {}
        try:
            find_packages("diffclone", frozenset({"all"}), found)
        except PackageNotFoundError as error:
            print_message(f"{error} is not installed; install everything first: make .venv/.dev")
            return 2
        licences = {name: licence_of(distribution(name)) for name in sorted(found)}
        if self.list:
            rows = [[name, distribution(name).version, licence] for name, licence in licences.items()]
            print_table(f"{len(rows)} packages", ["package", "version", "licence"], rows)
        refused = {name: licence for name, licence in licences.items() if not is_allowed(licence)}
        for name, licence in refused.items():
            print_message(f"{name}: licence {licence or 'unknown'!r} is not in scripts/dependencies.py ALLOWED.")
        vulnerabilities = audit()
        for line in vulnerabilities:
            print_message(line)
        print_message(f"{len(licences)} packages of diffclone[all], {len(licences) - len(refused)} licences allowed.")
        return 1 if refused or vulnerabilities else 0


if __name__ == "__main__":
    sys.exit(tyro.cli(Dependencies).run())
