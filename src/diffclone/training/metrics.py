"""The file of losses of a run, metrics.jsonl: one line per report."""

from pathlib import Path

from diffclone.errors import InvalidFile
from diffclone.files import read_lines, write_lines
from diffclone.training.loop import Progress


def drop_metrics(path: Path, now: Progress) -> None:
    """Drop the lines that a resumed stage writes again: those after its last checkpoint."""
    if not path.exists():
        return
    lines = read_lines(path)
    if not all(isinstance(line.get("stage"), str) and isinstance(line.get("update"), int) for line in lines):
        raise InvalidFile(f"{path} is damaged: a line has no stage or no update. Remove the file to resume without it.")
    write_lines(path, [line for line in lines if line["stage"] != now.stage or line["update"] < now.update])
