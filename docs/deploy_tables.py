"""Tables of the latency of deployed policies, made from Records."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"


LOADS = {"p50": "p50, ms", "p99": "p99, ms", "max": "max, ms", "per_second": "responses per second"}


def serving_table() -> str:
    """Return the tables of the last run of benchmarks/serving.py."""
    record = [r for r in Record.read_all(RECORDS / "serving.jsonl") if r.settings["benchmark"] == "serving"][-1]
    results: Any = record.results
    lines = ["| in one process, one thread | µs per action |", "|---|---|"]
    lines += [f"| {name} | {microseconds:.0f} |" for name, microseconds in results["microseconds"].items()]
    lines += ["", *servers_table(results["servers"])]
    return "\n".join([*lines, "", f"({record.device}; load average before the start {results['load_before']:.1f})"])


def servers_table(servers: Any) -> list[str]:
    """Return a row per server, body and number of clients."""
    lines = [f"| server | body | clients | {' | '.join(LOADS.values())} |", "|---" * (3 + len(LOADS)) + "|"]
    for name, bodies in servers.items():
        for body, loads in bodies.items():
            for clients, load in loads.items():
                shown = [
                    f"{load[key]:,.{0 if key == 'per_second' else 2}f}" if key in load else "refused" for key in LOADS
                ]
                lines.append(f"| {name} | {body} | {clients} | {' | '.join(shown)} |")
    return lines


def soak_table() -> str:
    """Return the last constant loads, without and with hostile clients."""
    latest = {
        r.results["soak"]["hostile"]: r
        for r in Record.read_all(RECORDS / "serving.jsonl")
        if r.settings["benchmark"] == "soak"
    }
    if not latest:
        return "The constant load has not been measured yet."
    lines = [
        "| other clients | requests per second | clients | minutes | p50, ms | p99, ms | max, ms | above 100 ms, % "
        "| memory at the start and end, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for hostile, record in sorted(latest.items()):
        load: Any = record.results["soak"]
        percentiles = " | ".join(f"{load[key]:.2f}" for key in ("p50", "p99", "max"))
        first, last = load["memory_mib"]
        lines.append(
            f"| {'slow and hostile' if hostile else 'none'} | {load['rate']:,.0f} | {load['clients']} "
            f"| {record.settings['seconds'] / 60:g} | {percentiles} | {100 * load['over_100_ms']:.2f} "
            f"| {first:.0f}, {last:.0f} |"
        )
    return "\n".join(lines)
