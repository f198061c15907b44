"""Run the code of a page as a reader would: its blocks one after the other, in one folder.

```python                   run in one namespace per page
```python title="NAME"      written to NAME; so is a block of any other language with a title
```sh                       each line is a command; `diffclone …` runs in this process
```text                     not run; if it starts with "diffclone: ", the command above it must fail with this line
"""

import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    code: str
    line: int

    @property
    def commands(self) -> list[str]:
        """The lines of a block of commands, without comments and empty lines."""
        joined = self.code.replace("\\\n", " ")
        return [line for line in (shlex.join(shlex.split(text, comments=True)) for text in joined.splitlines()) if line]


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        code = re.sub(rf"^{match[1]}", "", match[4], flags=re.MULTILINE)
        found.append(Block(match[2], match[3] or "", code, text.count("\n", 0, match.start()) + 1))
    return found


def run_page(page: Path, not_run: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run all blocks of a page in the working directory; `not_run` has the commands and first lines to leave out."""
    space: dict[str, Any] = {"__name__": "__main__"}
    blocks = read_blocks(page)
    for block, below in zip_longest(blocks, blocks[1:]):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python" and block.code.partition("\n")[0] not in not_run:
            exec(compile(block.code, where, "exec"), space)
        elif block.language == "sh":
            results = [run_command(line, where, capsys) for line in block.commands if line not in not_run]
            shown = "" if below is None or below.language != "text" else " ".join(below.code.split())
            if shown.startswith("diffclone: "):
                code, err = results.pop()
                assert (code, err.splitlines()[-1]) == (2, shown), f"{where}: {err}"
            for code, err in results:
                assert code in (0, None), f"{where}: {err}"


def run_command(line: str, where: str, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """Run one command; return its exit code and what it printed on stderr."""
    from diffclone.cli.main import main

    program, *arguments = shlex.split(line)
    capsys.readouterr()
    if program == "python":
        runpy.run_path(arguments[0], run_name="__main__")
        return 0, ""
    assert program == "diffclone", f"{where}: {line!r} is not run; give a reason in NOT_RUN."
    code: Any = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr().err


def forget_modules(folder: Path) -> None:
    """Forget the modules that were imported from a folder."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
