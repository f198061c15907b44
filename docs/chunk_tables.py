"""Tables of what chunks cost and save, made from Records of benchmarks/chunks.py."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"


def last_record() -> Record:
    return Record.read_all(RECORDS / "chunks.jsonl")[-1]


def training_table() -> str:
    """Return updates per second without chunks and with chunks."""
    record = last_record()
    training: Any = record.results["training"]
    horizon = str(record.settings["horizon"])
    lines = [f"| method | updates per second, horizon 1 | horizon {horizon} | ratio |", "|---|---|---|---|"]
    for name, rates in training.items():
        lines.append(f"| {name} | {rates['1']:.0f} | {rates[horizon]:.0f} | {rates['ratio']:.2f} |")
    return "\n".join([*lines, "", described(record)])


def evaluation_table() -> str:
    """Return episodes per second by `execute`."""
    record = last_record()
    rates: Any = record.results["evaluation"]
    lines = ["| `execute` | episodes per second | relative to 1 |", "|---|---|---|"]
    lines += [f"| {n} | {rate:.1f} | {rate / rates['1']:.1f} |" for n, rate in rates.items()]
    return "\n".join([*lines, "", described(record)])


def described(record: Record) -> str:
    load: Any = record.results["load_before"]
    return f"({record.device}; CPU time; load average before the start {load:.1f})"


BLOCKS = {"chunks-training": training_table, "chunks-evaluation": evaluation_table}
