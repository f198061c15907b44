"""When two Records are the same, when they contradict each other, and files of them joined. Imports no torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffclone.errors import InvalidFile
from diffclone.records import Record

TIMED = ("inference",)
"""Kinds of measurement that measure time: they differ whenever they are made, and must not run beside other jobs."""
TIMES = ("episodes_per_second", "training_seconds")
"""Results of other kinds that do."""
ABOUT = (
    *("task", "options", "starts", "protocol", "episodes", "experiment", "label", "measure", "study", "setting"),
    *("method", "snapshot", "fields", "chosen", "preset", "precision", "guide_seed"),
)
"""Results that say what was measured."""


def content_key(record: Record) -> str:
    """Return a string that is equal for Records of the same numbers, wherever and whenever they were made."""
    results = {name: value for name, value in record.results.items() if name not in TIMES}
    return as_text([record.kind, record.settings, record.members, stable_data(record.data), results, record.quick])


def subject_key(record: Record) -> str | None:
    """Return a string that is equal for Records that must have the same numbers; None if nothing must."""
    if record.kind in ("failure", *TIMED) or not (
        record.kind in ("evaluation", "training") or "label" in record.results
    ):
        return None
    about = {name: record.results[name] for name in ABOUT if name in record.results}
    where = [record.device, record.versions]
    return as_text([record.kind, record.settings, record.members, stable_data(record.data), about, record.quick, where])


def stable_data(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what identifies the demonstrations."""
    return {"fingerprint": data["fingerprint"]} if data.get("fingerprint") else data


def as_text(value: Any) -> str:
    """Return JSON with sorted keys."""
    return json.dumps(value, sort_keys=True)


def merge_records(files: Sequence[Path]) -> tuple[list[Record], int]:
    """Return the Records of all files without duplicates, and the number of duplicates.

    Records that are about the same and were made with the same versions on the same kind of device, but have different
    numbers, are an error.
    """
    kept: dict[str, Record] = {}
    subjects: dict[str, tuple[Record, Path]] = {}
    conflicts: list[str] = []
    total = 0
    for path in files:
        for record in Record.read_all(path):
            total += 1
            if (content := content_key(record)) in kept:
                continue
            kept[content] = record
            subject = subject_key(record)
            if subject is not None and subject in subjects:
                conflicts.append(describe_conflict(*subjects[subject], record, path))
            elif subject is not None:
                subjects[subject] = (record, path)
    if conflicts:
        more = f" ({len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise InvalidFile(f"{conflicts[0]}{more}. Nothing was written; remove the wrong Records and merge again.")
    return list(kept.values()), total - len(kept)


def describe_conflict(first: Record, file: Path, second: Record, other: Path) -> str:
    """Return the files and the first number in which two Records differ."""
    names = [name for name, value in first.results.items() if name not in TIMES and second.results.get(name) != value]
    name = next(iter(names), "results")
    what = " ".join(str(part) for part in (first.kind, first.results.get("task"), first.settings.get("type")) if part)
    values = [str(record.results.get(name))[:40] for record in (first, second)]
    return f"{file} and {other} have the same {what} with different numbers: {name} {values[0]} and {values[1]}"
