"""Settings for all tests: one thread a process, since several run side by side; and the command in this process."""

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

torch.set_num_threads(1)


def robotics() -> Any:
    """Gymnasium-Robotics, where its own environments work: with MuJoCo before 3.12."""
    installed = tuple(map(int, importlib.metadata.version("mujoco").split(".")[:2]))
    if installed >= (3, 12):
        pytest.skip("the environments of gymnasium-robotics do not work with MuJoCo 3.12 and newer")
    return pytest.importorskip("gymnasium_robotics")


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def diffclone(capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command line answers."""
    from diffclone.cli.main import main

    def run(*arguments: str | Path) -> Answer:
        capsys.readouterr()
        code: Any = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run
