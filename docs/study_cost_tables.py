"""Tables of what the study and the paper's recipe cost, and of the controls at the end of training."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np

from diffclone.experiments.study.candidates import CONTROLS
from diffclone.experiments.study.plan import CONTROL_SETTINGS
from diffclone.experiments.study.results import Estimate, difference, training_length
from diffclone.records import Record
from docs import recipe_tables, study_tables

RECORDS = Path(__file__).parent / "records"
GUIDED = "DBC"
RATES = {"policy": "bc", GUIDED: "dbc", "guide": "guide"}
"""What is trained, and its name in the benchmark."""


def controls_difference_table() -> str:
    """Return each control, and DBC, against BC at the last snapshot; and what DBC has beyond each control."""
    lines = ["| setting | control | minus BC, untuned | DBC (paper), untuned minus control |", f"|{'---|' * 4}"]
    for setting in CONTROL_SETTINGS:
        unit = study_tables.unit_of(setting)
        bc, dbc = (last_point("fresh", setting, f"{name}, untuned") for name in ("BC", "DBC (paper)"))
        if bc is None or dbc is None:
            continue
        lines.append(
            f"| {setting} | none: DBC (paper), untuned | {study_tables.signed(difference(dbc, bc), unit)} | – |"
        )
        for name in CONTROLS:
            control = last_point("controls", setting, name)
            if control is not None:
                ours, rest = difference(control, bc), difference(dbc, control)
                cells = f"{study_tables.signed(ours, unit)} | {study_tables.signed(rest, unit)}"
                lines.append(f"| {setting} | {name} | {cells} |")
    return "\n".join(lines)


def last_point(study: str, setting: str, method: str) -> Estimate | None:
    """Return the outcomes of a method at its last snapshot; None if it was not run."""
    points = training_length(study_tables.read_records(), study, setting, method)
    return points[-1] if points else None


@cache
def released_rates() -> dict[str, float]:
    """Return the updates per second of the released style on the H200, means over all runs of the benchmark."""
    found: dict[str, list[float]] = defaultdict(list)
    for record in Record.read_all(RECORDS / "performance.jsonl.gz"):
        rates = record.results.get("rates", {})
        if "H200" in record.device and "released" in rates:
            found[record.settings["case"]["model"]].append(float(rates["released"]["member_updates_per_second"]))
    return {name: float(np.mean(values)) for name, values in found.items()}


def cost_table() -> str:
    """Return policies, member-updates and time of each part, beside the time of the released style."""
    rows = {
        "the paper's recipe": recipe_work(),
        "tuning": study_work("tuning"),
        "fresh seeds: chosen and untuned": study_work("fresh"),
        "controls": study_work("controls"),
    }
    lines = [
        "| part | policies | updates of policies, millions | updates of guides, millions "
        "| training, hours of a process | released style, hours |",
        f"|{'---|' * 6}",
    ]
    total = [0.0] * 5
    for name, work in rows.items():
        for k, value in enumerate(work):
            total[k] += value
        lines.append(format_work(name, work))
    lines.append(format_work("sum", total))
    return "\n".join(lines)


def format_work(name: str, work: Iterable[float]) -> str:
    """Return a row: policies, updates of policies and guides, seconds of training, seconds of the released style."""
    policies, own, guides, seconds, released = work
    return (
        f"| {name} | {policies:,.0f} | {own / 1e6:,.1f} | {guides / 1e6:,.1f} | {seconds / 3600:.2f} "
        f"| {released / 3600:,.0f} |"
    )


def study_work(study: str) -> tuple[float, float, float, float, float]:
    """Return the work of a part of the study. A guide is counted once for each setting and seed."""
    stages: dict[tuple[str, str, str], Record] = {}
    for record in study_tables.read_records():
        r = record.results
        if r.get("study") == study:
            stages[r["setting"], r["method"], str(r["fields"])] = record
    guides: dict[tuple[str, str, int], int] = {}
    policies, own, seconds, released = 0, 0, 0.0, 0.0
    for (setting, _, _), record in stages.items():
        updates = len(record.members) * int(record.settings["training"]["updates"])
        guide = record.settings.get("guide")
        policies, own, seconds = policies + len(record.members), own + updates, seconds + training_seconds(record)
        released += updates / released_rates()[RATES[GUIDED] if guide else RATES["policy"]]
        if guide:
            kind = f"{guide['training']} {guide.get('shuffle_pairs')}"
            count = int(guide["training"]["updates"])
            guides |= {(setting, kind, int(member["seed"])): count for member in record.members}
    total = sum(guides.values())
    return policies, own, total, seconds, released + total / released_rates()[RATES["guide"]]


def training_seconds(record: Record) -> float:
    """Return the time of a training, with its guides unless they were in the cache."""
    return float(record.results["training_seconds"])


def recipe_work() -> tuple[float, float, float, float, float]:
    """Return the work of the paper's recipe."""
    policies, own, guides, seconds, released = 0, 0, 0, 0.0, 0.0
    for record in recipe_tables.read_records():
        if record.kind != "training":
            continue
        kind = str(record.settings["type"])
        updates = len(record.members) * int(record.settings["training"]["updates"])
        seconds += record.seconds
        if kind == "diffusion":
            guides += updates
            released += updates / released_rates()[RATES["guide"]]
        else:
            policies, own = policies + len(record.members), own + updates
            released += updates / released_rates()[kind]
    return policies, own, guides, seconds, released


def device_table() -> str:
    """Return the time for which the GPU was held, with its start, transfers, idle time and lost runs."""
    lines = ["| what | GPU held, s | processes at once |", "|---|---|---|"]
    records = Record.read_all(RECORDS / "device_time.jsonl")
    lines += [f"| {r.results['what']} | {r.seconds:,.0f} | {r.results['processes']} |" for r in records]
    total = sum(record.seconds for record in records)
    return "\n".join([*lines, f"| sum | {total:,.0f}, {total / 3600:.2f} hours | |"])


BLOCKS = {
    "study-controls-difference": controls_difference_table,
    "study-cost": cost_table,
    "study-device": device_table,
}
"""For docs/make.py."""
