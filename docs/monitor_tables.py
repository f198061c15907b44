"""The table about monitoring, made from Records."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"

OWN_LEVEL = {"fetch-pick": "1.25", "ant-reach": "0.01"}
"""The noise that a task has where no option is given, in which scores were calibrated."""
FEW = 5
"""Fewer failures or successes at a level tell nothing about an area."""


def area(found: Any, key: str) -> str:
    """With its interval."""
    if found[key] is None:
        return "–"
    low, high = found[f"{key}_interval"]
    return f"{found[key]:.2f} ({low:.2f} … {high:.2f})"


def at_level(found: Any) -> str:
    """The early area at one level."""
    return "–" if min(found["failures"], found["successes"]) < FEW else f"{found['early_auroc']:.2f}"


def share(count: int, of: int) -> str:
    """In percent, and of how many."""
    return "–" if of == 0 else f"{100 * count / of:.1f} of {of}"


def task_table(record: Record) -> str:
    """Every score on one task."""
    settings: Any = record.settings
    detectors: Any = record.results["detectors"]
    levels, own = [f"{level:g}" for level in settings["levels"]], OWN_LEVEL[settings["task"]]
    any_score = next(iter(detectors.values()))
    noise = " and ".join(name.replace("_", " ") for name in settings["noise"])
    counts = " + ".join(str(n) for n in record.results["calibrated_on"])
    heads = [
        "score",
        "AUROC, all levels (95 %)",
        "early (95 %)",
        *(f"early, at {level}" for level in levels),
        f"false alarms at {own}, %",
        "at all levels, %",
        "failures told, %",
        "at step",
    ]
    failed = [f"{any_score[level]['failures']} failed" for level in ("all", *levels)]
    lines = [
        f"{settings['task']}, {noise} {levels[0]} to {levels[-1]}; {len(record.members)} members, "
        f"{settings['episodes']} episodes each at each level; calibrated on {counts} successes, "
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
            area(pooled, "auroc"),
            area(pooled, "early_auroc"),
            *(at_level(by_level[level]) for level in levels),
            share(by_level[own]["false_alarms"], by_level[own]["successes"]),
            share(pooled["false_alarms"], pooled["successes"]),
            share(pooled["detected"], pooled["failures"]),
            "–" if pooled["detection_step"] is None else f"{pooled['detection_step']:g}",
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def monitor_table() -> str:
    """The latest Record of each task."""
    found = [r for r in Record.read_all(RECORDS / "monitor.jsonl") if r.settings.get("benchmark") == "monitoring"]
    latest = {str(record.settings["task"]): record for record in found}
    return "\n\n".join(task_table(record) for record in latest.values())
