"""Tables about deployed policies, made from Records: how long an action takes in a process and over HTTP."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"


def serving_table() -> str:
    """The last run of benchmarks/serving.py."""
    record = Record.read_all(RECORDS / "serving.jsonl")[-1]
    results: Any = record.results
    lines = ["| in a process, one thread | µs an action |", "|---|---|"]
    lines += [f"| {name} | {taken:.0f} |" for name, taken in results["microseconds"].items()]
    lines += [
        "",
        "| over HTTP | clients at once | p50, ms | p95, ms | p99, ms | answers a second |",
        "|---|---|---|---|---|---|",
    ]
    for name, loads in results["http"].items():
        for clients, found in loads.items():
            percentiles = " | ".join(f"{found[p]:.2f}" for p in ("p50", "p95", "p99"))
            lines.append(f"| {name} | {clients} | {percentiles} | {found['answers_per_second']:,.0f} |")
    return "\n".join([*lines, "", f"({record.device}; load before the start {results['load_before']:.1f})"])
