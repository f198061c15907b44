"""Tables of scale.md: training from data larger than memory, and the plan to a million episodes."""

from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.speed.tables import round_to_3_digits
from diffclone.data.formats.memory import format_bytes
from diffclone.records import Record
from diffclone.training.time_left import format_time

RECORDS = Path(__file__).parent / "records"
FILE = RECORDS / "streaming.jsonl"
WIDTH = 130
"""Characters of a line."""
MISSING = "(not measured yet)"
EPISODES, STEPS, SEEDS, BATCH = 1_000_000, 300, 1_000, 128
"""The size that the plan is for: episodes, steps of each, seeds, and pairs per update."""
PAIR = 200
"""Bytes of a pair: 40 numbers of an observation and 10 of an action, as in the benchmark."""
CASES = (
    ("BC, networks of Maze", "bc", "maze", 1),
    ("BC, networks of Maze", "bc", "maze", 24),
    ("guide, networks of Maze", "guide", "maze", 64),
    ("guide, networks of FetchPick", "guide", "fetch-pick", 24),
)


def measured() -> Record | None:
    """Return the last complete run of the benchmark."""
    found = [record for record in Record.read_all(FILE) if not record.quick] if FILE.exists() else []
    return found[-1] if found else None


def to_table(rows: list[list[str]]) -> str:
    """Return rows as a table; the first one is its header."""
    return "\n".join([f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])])


def streaming_table() -> str:
    """Return what the benchmark measured."""
    if (record := measured()) is None:
        return MISSING
    found: Any = record.results
    compared, memory = found["compared"], record.settings["memory"]
    rows = [
        ["", ""],
        ["data", f"{format_bytes(found['bytes'])}, {found['pairs']:,} pairs in {record.data['shards']} npz shards"],
        ["`--memory`", format_bytes(memory)],
        ["peak resident size", f"{format_bytes(found['peak'])} ({found['peak'] / memory:.0%})"],
        ["resident size before the data was opened", format_bytes(found["baseline"])],
        ["one pass for statistics and fingerprints", format_time(found["summary_seconds"])],
    ]
    for name, what in (("bc", "BC"), ("guide", "diffusion guide")):
        rates = compared[name]
        shown = [round_to_3_digits(rates[key]) for key in ("streamed", "in memory")]
        spread = f"{min(rates['ratios']):.0%} … {max(rates['ratios']):.0%}"
        rows.append(
            [
                f"{what}: updates/s from files, from memory",
                f"{shown[0]}, {shown[1]}; ratio, median of rounds {rates['ratio']:.0%} ({spread})",
            ]
        )
    machine = record.settings["machine"]
    note = (
        f"{machine['cores']} cores, {record.settings['members']} members, load average {machine['load_before']:.1f} "
        "before the start. Rounds from files and from memory alternate, so that other programs affect both alike."
    )
    return f"{to_table(rows)}\n\n{fill(note, WIDTH)}"


def member_rates() -> dict[tuple[str, str, int], tuple[float, str]]:
    """Return the last member-updates per second of each case on a GPU, and the GPU's name."""
    rates: dict[tuple[str, str, int], tuple[float, str]] = {}
    for record in Record.read_all(RECORDS / "performance.jsonl.gz"):
        if record.settings.get("benchmark") == "training" and record.device != "cpu" and not record.quick:
            case: Any = record.settings["case"]
            rate = record.results["rates"]["ours"]["member_updates_per_second"]
            rates[case["model"], case["task"], case["members"]] = (rate, record.device)
    return rates


def plan_table() -> str:
    """Return the cost of one epoch of a million episodes for a thousand seeds."""
    pairs, rates = EPISODES * STEPS, member_rates()
    updates = pairs / BATCH
    rows = [["stage", "member-updates/s", "GPU-hours", "stacks", "read per stack", "read per second"]]
    for name, model, task, members in CASES:
        rate, device = rates[model, task, members]
        reading = rate / members * BATCH * PAIR
        rows.append(
            [
                f"{name}, {members} member{'s' * (members > 1)} on one {device}",
                f"{rate:,.0f}",
                round_to_3_digits(SEEDS * updates / rate / 3600),
                str(-(-SEEDS // members)),
                format_bytes(pairs * PAIR),
                format_bytes(round(reading)),
            ]
        )
    text = (
        f"{EPISODES:,} episodes of {STEPS} steps are {pairs:,} pairs, {format_bytes(pairs * PAIR)} at {PAIR} bytes "
        "each. "
        f"One epoch in batches of {BATCH} is {updates / 1e6:.2f} million updates, {SEEDS * updates / 1e9:.2f} "
        f"billion for {SEEDS:,} seeds."
    )
    if (record := measured()) is not None:
        speed = record.results["bytes"] / record.results["summary_seconds"]
        took = format_time(pairs * PAIR / speed)
        text += f" The pass for statistics takes {took} at the measured {format_bytes(round(speed))}/s."
    return f"{fill(text, WIDTH)}\n\n{to_table(rows)}"


BLOCKS: dict[str, Callable[[], str]] = {"streaming": streaming_table, "scale-plan": plan_table}
