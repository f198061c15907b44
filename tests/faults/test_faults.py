"""A training survives a failure at any file operation, and no damaged file ends in a traceback.

The fast tests try a sample; `pytest -m slow` and `make fuzz` try all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diffclone import methods
from diffclone.guides import GUIDES
from diffclone.methods import DBC
from faults.crash_points import METHODS
from faults.mutants import FILES, GROWTH_MIB

HERE = Path(__file__).parent


def run_script(name: str, *arguments: str) -> list[dict[str, Any]]:
    """Run a script in a process of its own, which forks before it starts any thread."""
    command = [sys.executable, str(HERE / name), *arguments]
    memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}  # no waiting for a disk
    environment = os.environ | memory
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600, env=environment)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def check_points(method: str, every: int) -> None:
    (counts,) = run_script("crash_points.py", method, "--every", str(every))
    assert counts["tried"] >= 5 * counts["operations"] // every
    assert counts["resumed"] == counts["tried"], counts["examples"]


def check_mutants(name: str, count: int) -> None:
    (counts,) = run_script("mutants.py", name, "--count", str(count))
    assert counts["valid"] + counts["refused"] == count, counts["examples"]
    assert counts["refused"] > 0 or "cache" in name or "checkpoints" in name or "metrics" in name
    assert counts["MiB"] < GROWTH_MIB


def test_crash_points_are_tried_with_every_method_and_guide() -> None:
    assert {type(method) for method in METHODS.values()} == {*methods.METHODS.values()}
    assert {type(method.guide) for method in METHODS.values() if isinstance(method, DBC)} == {*GUIDES.values()}


@pytest.mark.parametrize("method", ["dbc", "dbc-gan"])
def test_a_training_resumes_after_a_failure_at_some_file_operations(method: str) -> None:
    check_points(method, every=29)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_training_resumes_after_a_failure_at_any_file_operation(method: str) -> None:
    check_points(method, every=1)


def test_damaged_files_of_our_own() -> None:
    own = [name for name in FILES if not name.endswith(" demonstrations")]  # tests/test_hostile_files.py has the others
    for counts in run_script("mutants.py", *own, "--count", "30"):
        assert counts["valid"] + counts["refused"] == 30, counts["examples"]
        assert counts["MiB"] < GROWTH_MIB


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(" demonstrations")])
def test_many_damaged_files_of_our_own(name: str) -> None:
    check_mutants(name, 500)
