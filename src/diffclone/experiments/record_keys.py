"""When two Records are the same, and when they contradict each other. Imports no torch."""

import json
from collections.abc import Mapping
from typing import Any

from diffclone.records import Record

TIMES = ("episodes_per_second", "training_seconds")
"""Results that differ whenever something is done again."""


def content_key(record: Record) -> str:
    """Return a string that is equal for Records of the same numbers, wherever and whenever they were made."""
    results = {name: value for name, value in record.results.items() if name not in TIMES}
    return as_text([record.kind, record.settings, record.members, stable_data(record.data), results, record.quick])


def stable_data(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what identifies the demonstrations."""
    return {"fingerprint": data["fingerprint"]} if data.get("fingerprint") else data


def as_text(value: Any) -> str:
    """Return JSON with sorted keys."""
    return json.dumps(value, sort_keys=True)
