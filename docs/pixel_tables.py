"""The tables of methods/pixels.md: memory, from Records of benchmarks/pictures.py, and a task seen by a camera."""

from pathlib import Path
from typing import Any

from diffclone.records import Record
from docs.task_tables import score

RECORDS = Path(__file__).parent / "records"
GIB = 2**30


def memory_table() -> str:
    """Return the memory of a training on images beside the sizes of its data."""
    record = [r for r in Record.read_all(RECORDS / "pictures.jsonl") if r.kind == "benchmark"][-1]
    results: Any = record.results
    rows = {
        "the frames as bytes": "stored_bytes",
        "the frames as float32, which are never made": "float_bytes",
        "resident memory before reading: Python, NumPy, PyTorch": "before_bytes",
        "largest resident memory while reading the file": "after_reading_bytes",
        "largest resident memory of reading and training": "peak_bytes",
    }
    sides = " × ".join(map(str, record.settings["image"]))
    lines = [f"| {results['frames']:,} frames of {sides}, {record.settings['state']} numbers | GiB |", "|---|---|"]
    lines += [f"| {label} | {results[key] / GIB:.2f} |" for label, key in rows.items()]
    return "\n".join([*lines, "", f"({record.device}; BC, {results['updates']} updates)"])


def task_table() -> str:
    """Return the scores of the expert and of BC on the task that is seen by a camera."""
    lines = ["| who | success, % (95 %) | steps | seeds × starts | demonstrations | updates |", f"|{'---|' * 6}"]
    for record in Record.read_all(RECORDS / "pictures.jsonl"):
        results, settings = dict[str, Any](record.results), dict[str, Any](record.settings)
        if record.kind == "expert":
            who, trained = "expert", "– | –"
        elif record.kind == "evaluation":
            who, trained = "BC", f"{record.data['episodes']} | {settings['training']['updates']:,}"
        else:
            continue
        shown = f"{results['mean_length']:.0f} | {results['members']} × {results['episodes']}"
        lines.append(f"| {who} | {score(results['task'], results)} | {shown} | {trained} |")
    return "\n".join(lines)


BLOCKS = {"pictures-memory": memory_table, "pictures-task": task_table}
