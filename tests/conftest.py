"""Settings of all tests: one thread per process, since several run in parallel; and the command in this process."""

import importlib.metadata
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

torch.set_num_threads(1)


def robotics() -> Any:
    """Return Gymnasium-Robotics, whose environments need MuJoCo before 3.12."""
    installed = tuple(map(int, importlib.metadata.version("mujoco").split(".")[:2]))
    if installed >= (3, 12):
        pytest.skip("the environments of gymnasium-robotics do not work with MuJoCo 3.12 and newer")
    return pytest.importorskip("gymnasium_robotics")


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., CommandResult]


def assert_error(result: CommandResult, message: str) -> None:
    """Assert that a command printed one line of error, which matches the pattern `message`, and nothing else."""
    assert result.code == 2
    assert result.out == ""
    assert re.fullmatch(rf"diffclone: [^\n]*{message}[^\n]*\n", result.err), result.err


def install_package(folder: Path, package: str, entry_points: str) -> None:
    """Write the metadata of a package with entry points into a folder, as pip would install it there."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def diffclone(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process and return what it printed."""
    from diffclone.cli.main import main

    def run(*arguments: str | Path) -> CommandResult:
        capsys.readouterr()
        code: Any = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)

    return run
