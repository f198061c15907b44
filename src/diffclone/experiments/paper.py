"""Read the numbers that the paper prints, in paper.toml."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from diffclone.experiments.results import PrintedValue

PAPER_SEEDS = 3


@cache
def paper() -> dict[str, Any]:
    """Return the contents of paper.toml."""
    return tomllib.loads((resources.files("diffclone.experiments") / "paper.toml").read_text(encoding="utf-8"))


def printed_value(key: str | None) -> PrintedValue | None:
    """Return a number of paper.toml by its key, e.g. "main-table.maze.bc"."""
    if key is None:
        return None
    entry: Any = paper()
    for part in key.split("."):
        entry = entry[part]
    if not isinstance(entry, dict):
        return PrintedValue(float(entry), None, None)
    sd = entry.get("sd")
    return PrintedValue(float(entry["mean"]), sd, None if sd is None else PAPER_SEEDS, entry.get("note"))


def printed_expert(task: str) -> str:
    """Return the score of the paper's expert as text."""
    score = paper()["experts"].get(task)
    return "not printed" if score is None else f"{score} %"
