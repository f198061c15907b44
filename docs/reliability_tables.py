"""Tables of the failures that a training survives and of damaged files, made from Records."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

FOLDER = Path(__file__).parent / "records"
RECORDS = FOLDER / "reliability.jsonl"
PROMISES = (
    (
        "A training that is killed, or whose disk is full or fails, resumes bit for bit on the same number of CPU "
        "cores.",
        "`tests/faults`, `tests/test_survival.py`",
        "failures",
    ),
    (
        "A damaged checkpoint is noticed by its checksum, and the one before it is used. A damaged guide in the cache "
        "is trained again.",
        "`tests/faults`, `tests/test_damaged_runs.py`",
        "checkpoints",
    ),
    (
        "What another training puts into the cache of guides never prevents a resume.",
        "`tests/test_damaged_runs.py`",
        "",
    ),
    (
        "Two trainings or searches never share a folder: the second is refused with the process id of the first. The "
        "lock ends with its process.",
        "`tests/test_survival.py`",
        "",
    ),
    (
        "A damaged or malicious file gives a valid result or one line of text, in limited time and memory, and writes "
        "nothing.",
        "`tests/faults`, `tests/test_hostile_files.py`",
        "files",
    ),
    (
        "Reading a file never executes its content and never imports a module that it names.",
        "`tests/test_hostile_files.py`, `tests/test_policy.py`",
        "",
    ),
    ("Nothing is overwritten.", "`tests/test_cli.py`, `tests/test_files.py`", ""),
    (
        "A mistake of the user is one line and exit code 2; Ctrl-C is one line and exit code 130.",
        "`tests/test_cli.py`",
        "",
    ),
    (
        "The server answers small requests while slow, pipelining or large clients are connected, and ends its work on "
        "SIGTERM.",
        "`tests/test_server_load.py`, [security](../SECURITY.md)",
        "server",
    ),
)
"""What is promised, the tests, and the name of the last count."""


def latest(test: str, key: str) -> list[Record]:
    """Return the last Record of each method or file."""
    records = [record for record in Record.read_all(RECORDS) if record.settings["test"] == test]
    return list({record.results[key]: record for record in records}.values())


def crash_points_table() -> str:
    """Return a row per method: points tried, resumed, refused, lost."""
    lines = ["| method | file operations | failures tried | resumed bit for bit | refused with one line | lost |"]
    lines += ["|---|---|---|---|---|---|"]
    for record in latest("crash points", "method"):
        r = record.results
        lines.append(
            f"| {r['method']} | {r['operations']} | {r['tried']} | {r['resumed']} | {r['refused']} | {r['lost']} |"
        )
    return "\n".join(lines)


def damaged_files_table() -> str:
    """Return a row per file: versions read, valid, refused, tracebacks, hangs, largest growth of memory."""
    lines = ["| file | damaged versions | valid result | refused with one line | traceback | over 10 s | MiB |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for record in latest("damaged files", "file"):
        r = record.results
        shown = [r[key] for key in ("count", "valid", "refused", "traceback", "hang")]
        lines.append(f"| `{r['file']}` | {' | '.join(f'{n:,}' for n in shown)} | {r['MiB']:.0f} |")
    return "\n".join(lines)


def promises_table() -> str:
    """Return a row per promise: its tests, and the last count if Records have one."""
    counts = {"": "in each test run", **count_failures(), **count_damaged(), "server": count_responses()}
    lines = ["| promise | tests | last count |", "|---|---|---|"]
    return "\n".join(lines + [f"| {text} | {tests} | {counts[name]} |" for text, tests, name in PROMISES])


def count_failures() -> dict[str, str]:
    """Return how many failures of a training were survived."""
    found: list[Any] = [record.results for record in latest("crash points", "method")]
    tried, resumed, lost = (sum(r[key] for r in found) for key in ("tried", "resumed", "lost"))
    return {"failures": f"{tried:,} failures of {len(found)} trainings: {resumed:,} resumed, {lost} lost"}


def count_damaged() -> dict[str, str]:
    """Return how many damaged files were read, and those of checkpoints and cached guides alone."""
    found: list[Any] = [record.results for record in latest("damaged files", "file")]
    bad, most = sum(r["traceback"] + r["hang"] for r in found), max(r["MiB"] for r in found)
    own = [r for r in found if "checkpoints" in r["file"] or "cache" in r["file"]]
    count = f"{sum(r['count'] for r in found):,} versions of {len(found)} files"
    text = f"{count}: {bad} tracebacks or hangs, at most {most:.0f} MiB"
    kept = f"{sum(r['count'] for r in own):,} damaged versions: {sum(r['valid'] for r in own):,} trained on"
    return {"files": text, "checkpoints": kept}


def count_responses() -> str:
    """Return the last constant load beside slow and hostile clients."""
    records = [r for r in Record.read_all(FOLDER / "serving.jsonl") if r.settings["benchmark"] == "soak"]
    loads: list[Any] = [r.results["soak"] for r in records if r.results["soak"]["hostile"]]
    if not loads:
        return "not measured yet"
    load = loads[-1]
    return f"beside hostile clients: p99 {load['p99']:.0f} ms, {100 * load['over_100_ms']:.2f} % above 100 ms"


BLOCKS = {"promises": promises_table, "crash-points": crash_points_table, "damaged-files": damaged_files_table}
