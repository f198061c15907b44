"""Tables about many jobs: Records of a cluster that loses nodes, and the overhead of engines."""

from pathlib import Path

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records" / "jobs.jsonl"


def records_of(what: str) -> list[Record]:
    """Return the Records of one test."""
    return [record for record in Record.read_all(RECORDS) if record.settings["what"] == what]


def lost_nodes_table() -> str:
    """Return the last run of each choice: when nodes and drivers were killed, and what became of the Records."""
    lines = [
        "| experiments | Records | node killed after | driver killed after | equal | missing | twice | different |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    latest = {str(record.results["experiments"]): record.results for record in records_of("lost nodes")}
    for r in latest.values():
        names = ", ".join(r["experiments"]) + (f" (`--only {r['only']}`)" if r["only"] else "")
        killed = [r["records_before_node_was_killed"], r["records_before_driver_was_killed"]]
        counts = [r[name] for name in ("equal", "missing", "twice", "different")]
        lines.append(f"| {names} | {' | '.join(map(str, [r['expected'], *killed, *counts]))} |")
    return "\n".join(lines)


def engines_table() -> str:
    """Return a row per engine: the time of jobs that only wait, and the overhead."""
    record = records_of("engines")[-1]
    lines = ["| engine | jobs | jobs alone | start of the engine | first job to last | overhead | with start and end |"]
    lines += ["|---|---|---|---|---|---|---|"]
    jobs = f"{record.settings['jobs']} of {record.settings['job_seconds']:g} s, {record.settings['workers']} at a time"
    for on, row in record.results.items():
        overhead = [100 * (row[name] / row["ideal_seconds"] - 1) for name in ("job_seconds", "seconds")]
        times = " | ".join(f"{row[name]:.1f} s" for name in ("ideal_seconds", "start_seconds", "job_seconds"))
        lines.append(f"| `--on {on}` | {jobs} | {times} | {overhead[0]:.1f} % | {overhead[1]:.1f} % |")
    return "\n".join(lines)


BLOCKS = {"lost-nodes": lost_nodes_table, "engines": engines_table}
