"""Reads the numbers that the paper prints."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def paper() -> dict[str, Any]:
    """`paper.toml`."""
    return tomllib.loads((resources.files("diffclone.experiments") / "paper.toml").read_text(encoding="utf-8"))


def printed_expert(task: str) -> str:
    """The score of the paper's expert, where it is printed."""
    score = paper()["experts"].get(task)
    return "not printed" if score is None else f"{score} %"
