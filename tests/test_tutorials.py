"""The code of the tutorials and of the questions, run as it is written. Errors that pages show are the real ones."""

import shlex
from pathlib import Path

import pytest

from snippets import ROOT, forget_modules, read_blocks, run_page

TUTORIALS = [*sorted((ROOT / "docs/tutorials").glob("*.md")), ROOT / "docs/faq.md"]
SLOW = {"cluster", "guide", "reproduce"}
"""Tutorials that take more than a few seconds."""
NOT_RUN = {
    "diffclone reproduce expert-term --out reproduction": "takes an hour; the line above it is the same with --quick",
}
"""Commands, and first lines of blocks of Python, that are not run, with the reason."""


def mark(page: Path) -> object:
    return pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])


@pytest.mark.parametrize("page", [mark(page) for page in TUTORIALS])
def test_a_tutorial_runs_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DIFFCLONE_CACHE", str(tmp_path / "guides"))
    try:
        run_page(page, NOT_RUN, capsys)
    finally:
        forget_modules(tmp_path)


def test_every_command_of_a_tutorial_is_in_a_block_that_is_run() -> None:
    for page in TUTORIALS:
        for block in read_blocks(page):
            named = [line for line in block.code.splitlines() if line.startswith("diffclone ")]
            assert block.language == "sh" or not named, f"{page.name}, line {block.line}: {named}"


def test_every_reason_belongs_to_a_command() -> None:
    blocks = [block for page in TUTORIALS for block in read_blocks(page)]
    known = {line for block in blocks if block.language == "sh" for line in block.commands}
    known |= {block.code.partition("\n")[0] for block in blocks if block.language == "python"}
    assert set(NOT_RUN) <= known
    assert all(shlex.split(command) and reason for command, reason in NOT_RUN.items())
