"""Tables of the latency of deployed policies, made from Records."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"


def serving_table() -> str:
    """Return the tables of the last run of benchmarks/serving.py."""
    record = Record.read_all(RECORDS / "serving.jsonl")[-1]
    results: Any = record.results
    lines = ["| in one process, one thread | µs per action |", "|---|---|"]
    lines += [f"| {name} | {microseconds:.0f} |" for name, microseconds in results["microseconds"].items()]
    lines += [
        "",
        "| over HTTP | clients | p50, ms | p95, ms | p99, ms | responses per second |",
        "|---|---|---|---|---|---|",
    ]
    for name, loads in results["http"].items():
        for clients, times in loads.items():
            percentiles = " | ".join(f"{times[p]:.2f}" for p in ("p50", "p95", "p99"))
            lines.append(f"| {name} | {clients} | {percentiles} | {times['answers_per_second']:,.0f} |")
    return "\n".join([*lines, "", f"({record.device}; load average before the start {results['load_before']:.1f})"])
