"""Tables of the failures that a training survives and of damaged files, made from Records."""

from pathlib import Path

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records" / "reliability.jsonl"


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


BLOCKS = {"crash-points": crash_points_table, "damaged-files": damaged_files_table}
