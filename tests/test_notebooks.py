"""Notebooks are their tutorials, lead on to files that exist, and run. What they show is looked at in a real kernel."""

import json
import re
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from docs.make_notebooks import DOCS, NOTEBOOKS, make_notebook, move_links, to_commands, to_python, update_notebooks
from snippets import read_blocks

LARGEST = 200_000
"""Bytes of all notebooks together."""
RECORD_EXIT_CODES = """
shell, exit_codes = get_ipython(), []
run_command = shell.system


def system(command):
    run_command(command)
    exit_codes.append(shell.user_ns["_exit_code"])


shell.system = system
"""
LIBRARY = """
import diffclone
from diffclone import BC, Network, Training
from diffclone.data.inspection import find_problems

demos = diffclone.tasks.TASKS["maze"].demonstrations().take(range(4))
demos
---
find_problems(demos)
---
method = BC(training=Training(updates=200), network=Network(width=16, depth=1))
policy = diffclone.fit(method, demos, seeds=range(2), device="cpu")
policy
---
scores = diffclone.evaluate(policy, "maze", episodes=2)
scores
---
result = diffclone.search(demos, budget=3.0, device="cpu")
result
---
diffclone.fit(method, demos, device="cpu", progress=False)
diffclone.evaluate(policy, "maze", episodes=1, progress=False)
None
---
!diffclone version
"""
"""Cells that use the library as a person would."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that executes the sources of code cells and returns the cells with their outputs."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "DIFFCLONE_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "settings" / name))
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "settings").mkdir()

    def execute(sources: list[str]) -> list[Any]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        folder = {"metadata": {"path": str(work)}}
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=folder).execute()
        return notebook.cells

    return execute


def read(name: str) -> list[dict[str, Any]]:
    return json.loads((DOCS / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def outputs(cell: Any, kind: str, form: str = "text/html") -> list[str]:
    return [str(output["data"].get(form)) for output in cell["outputs"] if output["output_type"] == kind]


def test_notebooks_are_made_from_their_tutorials() -> None:
    assert update_notebooks(check=True) == [], "run: python -m docs.make"
    files = sorted((DOCS / "notebooks").glob("*.ipynb"))
    assert [path.stem for path in files] == sorted(NOTEBOOKS)
    assert sum(path.stat().st_size for path in files) < LARGEST
    listed = (DOCS / "tutorials/notebooks.md").read_text(encoding="utf-8")
    for name in NOTEBOOKS:
        link = f"](../notebooks/{name}.ipynb)"
        assert link in listed
        assert link in (DOCS / f"tutorials/{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_all_code_of_its_tutorial_in_order(name: str) -> None:
    blocks = [block for block in read_blocks(DOCS / f"tutorials/{name}.md") if block.language in ("python", "sh")]
    cells = ["".join(cell["source"]) for cell in read(name) if cell["cell_type"] == "code"]
    assert len(cells) == len(blocks) > 3
    for cell, block in zip(cells, blocks, strict=True):
        code = block.code.strip()
        if block.language == "python":
            assert cell == re.sub(r"print\((\w+)\)\Z", r"\1", code)
        else:
            assert cell.replace("!", "") == code
            assert cell.count("!") == len(block.commands)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_of_a_notebook_lead_to_files(name: str) -> None:
    prose = "\n".join("".join(cell["source"]) for cell in read(name) if cell["cell_type"] == "markdown")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert f"../tutorials/{name}.md" in targets
    assert f"{name}.ipynb" not in targets
    for target in targets:
        assert (DOCS / "notebooks" / target).exists(), target


def test_the_rules_of_the_conversion() -> None:
    assert to_python("x = 1\nprint(x)\nprint(x)\n") == "x = 1\nprint(x)\nx"
    assert to_python('print(f"{x}")\n') == 'print(f"{x}")'
    assert to_commands("# first\na b \\\n  --c 1\n\nd\n") == "# first\n!a b \\\n  --c 1\n\n!d"
    moved = "[a](other-data.ipynb) [b](../data.md#x) [c](../tutorials/task.md) [d](https://x.y/z.md) [e](../monitor.md)"
    assert (
        move_links("[a](other-data.md) [b](../data.md#x) [c](task.md) [d](https://x.y/z.md) [e](../monitor.md)")
        == moved
    )
    assert make_notebook("monitor") == make_notebook("monitor")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, run: Any) -> None:
    sources = ["".join(cell["source"]) for cell in read(name) if cell["cell_type"] == "code"]
    first, *cells, last = run([RECORD_EXIT_CODES, *sources, "print(exit_codes)"])
    assert first["outputs"] == []
    blocks = read_blocks(DOCS / f"tutorials/{name}.md")
    expected: list[int] = []
    for block, below in zip_longest(blocks, blocks[1:]):
        if block.language == "sh":
            fails = below is not None and below.code.startswith("diffclone: ")
            expected += [0] * (len(block.commands) - fails) + [2] * fails
    assert last["outputs"][0]["text"] == f"{expected}\n"
    for cell in cells:
        name_alone = cell["source"].splitlines()[-1].isidentifier()
        shown = outputs(cell, "execute_result")
        assert len(shown) == name_alone
        assert all(text.startswith("<div><p>") for text in shown)


def test_bars_and_tables_are_shown_in_a_notebook(run: Any) -> None:
    demos, findings, fit, evaluate, search, silent, command = run(LIBRARY.split("---\n"))
    assert [outputs(cell, "display_data") for cell in (demos, findings, silent)] == [[], [], []]
    (bar,) = outputs(fit, "display_data")
    assert bar.startswith('<progress value="200" max="200"></progress> <code>policy × 2: 200 in ')
    (bar,) = outputs(evaluate, "display_data")
    assert bar.startswith('<progress value="4" max="4"></progress> <code>running maze: 4 in ')
    *_, last = outputs(search, "display_data")
    assert "<code>final training: policy: " in last
    for cell, text in ((demos, "<th"), (findings, "finding"), (fit, "seed 0; seed 1"), (search, "Chosen: ")):
        (table,) = outputs(cell, "execute_result")
        assert table.startswith("<div><p>")
        assert text in table
    (table,) = outputs(evaluate, "execute_result")
    assert "member 1" in table
    (text,) = outputs(evaluate, "execute_result", "text/plain")
    assert text.startswith("Scores(maze, 2 members × 2 episodes, success ")
    stderr = [o for cell in (fit, evaluate, search) for o in cell["outputs"] if o["output_type"] == "stream"]
    assert stderr == []
    assert "diffclone 0." in command["outputs"][0]["text"]
