"""Tables of the monitoring benchmark, made from Records."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"

DEFAULT_LEVEL = {"fetch-pick": "1.25", "ant-reach": "0.01"}
"""The default noise of each task, at which scores were calibrated."""
MIN_EPISODES = 5
"""Smallest number of failures and of successes for which a level's AUROC is shown."""


def format_auroc(found: Any, key: str) -> str:
    """Return an AUROC with its interval."""
    if found[key] is None:
        return "–"
    low, high = found[f"{key}_interval"]
    return f"{found[key]:.2f} ({low:.2f} … {high:.2f})"


def format_level(found: Any) -> str:
    """Return the early AUROC at one level."""
    return "–" if min(found["failures"], found["successes"]) < MIN_EPISODES else f"{found['early_auroc']:.2f}"


def format_rate(count: int, total: int) -> str:
    """Return a percentage and its total."""
    return "–" if total == 0 else f"{100 * count / total:.1f} of {total}"


def task_table(record: Record) -> str:
    """Return the table of all scores on one task."""
    settings: Any = record.settings
    detectors: Any = record.results["detectors"]
    levels, default = [f"{level:g}" for level in settings["levels"]], DEFAULT_LEVEL[settings["task"]]
    any_score = next(iter(detectors.values()))
    noise = " and ".join(name.replace("_", " ") for name in settings["noise"])
    counts = " + ".join(str(n) for n in record.results["calibrated_on"])
    heads = [
        "score",
        "AUROC, all levels (95 %)",
        "early (95 %)",
        *(f"early, at {level}" for level in levels),
        f"false alarms at {default}, %",
        "at all levels, %",
        "failures detected, %",
        "at step",
    ]
    failed = [f"{any_score[level]['failures']} failed" for level in ("all", *levels)]
    lines = [
        f"{settings['task']}, {noise} {levels[0]} to {levels[-1]}; {len(record.members)} members, "
        f"{settings['episodes']} episodes per member and level; calibrated on {counts} successes, "
        f"α = {settings['alpha']:g}:",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        f"| episodes | {failed[0]} | {' | '.join(failed)} | | | | |",
    ]
    for name, by_level in detectors.items():
        pooled = by_level["all"]
        row = [
            name,
            format_auroc(pooled, "auroc"),
            format_auroc(pooled, "early_auroc"),
            *(format_level(by_level[level]) for level in levels),
            format_rate(by_level[default]["false_alarms"], by_level[default]["successes"]),
            format_rate(pooled["false_alarms"], pooled["successes"]),
            format_rate(pooled["detected"], pooled["failures"]),
            "–" if pooled["detection_step"] is None else f"{pooled['detection_step']:g}",
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def monitor_table() -> str:
    """Return the tables of the latest Record of each task."""
    found = [r for r in Record.read_all(RECORDS / "monitor.jsonl") if r.settings.get("benchmark") == "monitoring"]
    latest = {str(record.settings["task"]): record for record in found}
    return "\n\n".join(task_table(record) for record in latest.values())
