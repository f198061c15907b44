"""The code of the first page, the tutorials and the questions, run as written. Errors on pages are the real ones."""

import shlex
from pathlib import Path

import pytest

from diffclone.tasks import TASKS
from snippets import ROOT, forget_modules, read_blocks, run_page

PAGES = [
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    ROOT / "docs/faq.md",
    ROOT / "docs/index.md",
    ROOT / "README.md",
]
SLOW = {"README", "cluster", "guide", "index", "reproduce"}
"""Pages that take more than a few seconds."""
UNTUNED = "--preset brief --training.updates 8000 --training.decay constant --training.ema 0.999 --seeds 1"
"""The schedule of the study's untuned methods, up to the snapshot that the picture shows."""
NOT_RUN = {
    "make demo": "runs for minutes; docs.make --time runs and measures it",
    "make test": "runs for minutes; docs.make --time runs and measures it",
    "pip install -c constraints.txt '.[all]'": "needs a package index; tests/test_wheel.py installs the wheel",
    f"diffclone train fetch-pick-27 --method bc {UNTUNED} --out bc": "makes the picture, in a minute",
    f"diffclone train fetch-pick-27 --method dbc {UNTUNED} --out dbc": "makes the picture, in ten minutes",
    "diffclone render bc --beside dbc --starts 12 --every 3 --width 880 --out bc-and-dbc.webp": "needs the two above",
    "diffclone reproduce expert-term --out reproduction": "takes an hour; --quick above is run",
    "diffclone reproduce main-table --shard '$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT' --out parts": "needs Slurm",
    "pip install 'diffclone[ray]'": "needs a package index",
    "ray start --head": "starts processes that stay",
    "ray start --address FIRST:6379": "needs a second machine",
    "diffclone reproduce main-table --only maze,bc,dbc --quick --on ray --out cluster": "starts a cluster",
}
"""Commands, and first lines of blocks of Python, that are not run, with the reason."""


def make_demonstrations() -> None:
    """Write the file that the first page and README call "mine.npz"."""
    TASKS["maze"].demonstrations().take(range(5)).save("mine.npz")


def mark(page: Path) -> object:
    return pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])


@pytest.mark.parametrize("page", [mark(page) for page in PAGES])
def test_a_tutorial_runs_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DIFFCLONE_CACHE", str(tmp_path / "guides"))
    if page.stem in ("index", "README"):
        make_demonstrations()
    try:
        run_page(page, NOT_RUN, capsys)
    finally:
        forget_modules(tmp_path)


def test_every_command_of_a_tutorial_is_in_a_block_that_is_run() -> None:
    for page in PAGES:
        for block in read_blocks(page):
            named = [line for line in block.code.splitlines() if line.startswith("diffclone ")]
            assert block.language == "sh" or not named, f"{page.name}, line {block.line}: {named}"


def test_every_reason_belongs_to_a_command() -> None:
    blocks = [block for page in PAGES for block in read_blocks(page)]
    known = {line for block in blocks if block.language == "sh" for line in block.commands}
    known |= {block.code.partition("\n")[0] for block in blocks if block.language == "python"}
    assert set(NOT_RUN) <= known
    assert all(shlex.split(command) and reason for command, reason in NOT_RUN.items())
