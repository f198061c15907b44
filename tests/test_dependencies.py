"""Licences of what `diffclone[all]` installs."""

import json
from importlib.metadata import distribution

import pytest

from scripts.dependencies import find_packages, is_allowed, licence_of, read_audit


@pytest.mark.parametrize("licence", ["MIT", "BSD-3-Clause AND MIT AND Zlib", "GPL-3.0-only OR MIT"])
def test_allowed_licences(licence: str) -> None:
    assert is_allowed(licence)


@pytest.mark.parametrize(
    "licence", ["MIT AND GPL-3.0-only", "GNU General Public License v3 (GPLv3)", "GPL-3.0-only", "Proprietary", ""]
)
def test_every_part_of_a_licence_must_be_allowed(licence: str) -> None:
    assert not is_allowed(licence)


def test_packages_of_packages_and_of_their_extras_are_found() -> None:
    alone: dict[str, frozenset[str]] = {}
    find_packages("diffclone", frozenset(), alone)
    assert {"diffclone", "torch", "sympy", "tyro"} <= set(alone)  # torch requires sympy
    assert "starlette" not in alone
    found: dict[str, frozenset[str]] = {}
    find_packages("diffclone", frozenset({"all"}), found)
    assert {*alone, "starlette", "box2d"} <= set(found)  # box2d is an extra of gymnasium


def test_the_licence_of_every_package_is_allowed() -> None:
    found: dict[str, frozenset[str]] = {}
    find_packages("diffclone", frozenset({"all"}), found)
    refused = {name: licence_of(distribution(name)) for name in found if not is_allowed(licence_of(distribution(name)))}
    assert refused == {}


def test_an_audit_says_how_many_packages_it_looked_up(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = {"name": "a", "skip_reason": "not found"}
    fine = {"name": "b", "version": "1", "vulns": []}
    broken = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
    assert read_audit(json.dumps({"dependencies": [skipped]})) == []
    assert "0 of 1 packages" in capsys.readouterr().err
    (line,) = read_audit(json.dumps({"dependencies": [skipped, fine, broken]}))
    assert line == "c 2: CVE-1, fixed in ['2.1']."
    assert "2 of 3 packages" in capsys.readouterr().err
