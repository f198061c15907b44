"""Tables of the paper's own recipe at full length, made from docs/records/paper_recipe.jsonl.gz."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.experiments import paper
from diffclone.records import Record
from diffclone.reports.numbers import format_number, format_signed, unit_label
from diffclone.statistics import difference_interval, mean_interval, paired_permutation_p
from diffclone.tasks import TASKS

RECORDS = Path(__file__).parent / "records" / "paper_recipe.jsonl.gz"
TASK_NAMES = ("maze", "fetch-pick", "hand-rotate", "cheetah", "walker", "ant-reach")
BASELINE = "bc/paper"
"""The arm that all differences are to."""
ARMS = {
    BASELINE: ("BC `paper`", "bc"),
    "dbc/paper": ("DBC `paper`", "dbc"),
    "dbc/release": ("DBC `release`", "dbc"),
    "ibc/paper": ("IBC `paper`", "implicit-bc"),
    "diffusion-policy/paper": ("Diffusion Policy `paper`", "diffusion-policy"),
}
"""Method and preset, their name in the table, and their name among the paper's numbers."""
NOT_RUN = "not run"
PRECISIONS = {"float32": "", "tf32": ", TF32"}
"""Precision of the matrix products, and how the name of a row says it."""


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """All episodes of one arm with one protocol."""

    seeds: tuple[int, ...]
    table: npt.NDArray[Any]
    """(seeds, episodes): success, or the return."""


@cache
def read_records() -> tuple[Record, ...]:
    """Return the Records, without shortened runs."""
    return tuple(record for record in Record.read_all(RECORDS) if not record.quick)


def find_outcomes(task: str, demos: str, arm: str, precision: str, protocol: str) -> Outcomes | None:
    """Return the episodes of an arm, joined over the Records that hold some of its seeds each; None if not run."""
    rows: dict[int, list[float]] = {}
    wanted = (f"{task}/{arm}", precision, protocol)
    for record in read_records():
        results: Any = record.results
        if record.kind != "evaluation":
            continue
        if (results["preset"], results["precision"], results["protocol"]) != wanted:
            continue
        if describe_demonstrations(record) != demos:
            continue
        if TASKS[task].metric == "success":
            outcomes = [[letter == "1" for letter in row] for row in results["outcomes"]["success"]]
        else:
            outcomes = results["outcomes"]["returns"]
        rows |= {int(member["seed"]): row for member, row in zip(record.members, outcomes, strict=True)}
    return Outcomes(tuple(sorted(rows)), np.array([rows[seed] for seed in sorted(rows)])) if rows else None


def describe_demonstrations(record: Record) -> str:
    """Return what a Record was trained on: the demonstrations of this repository, or the authors' file."""
    bundled = TASKS[record.results["task"]].demonstrations().fingerprint
    return "bundled" if record.data["fingerprint"] == bundled else f"the authors' file {record.data['meta']['source']}"


def describe_mean(task: str, outcomes: Outcomes) -> str:
    """Return the mean over seeds and starts, with its interval."""
    unit, scale = TASKS[task].metric, scale_of(task)
    low, high = mean_interval(outcomes.table)
    mean = format_number(scale * outcomes.table.mean(), unit)
    return f"{mean} ({format_number(scale * low, unit)} … {format_number(scale * high, unit)})"


def describe_difference(task: str, ours: Outcomes, baseline: Outcomes, note: str = "") -> str:
    """Return the paired difference of the means with its interval and a note, and the p-value over seeds."""
    unit, scale = TASKS[task].metric, scale_of(task)
    seeds = [seed for seed in ours.seeds if seed in baseline.seeds]
    first = ours.table[[ours.seeds.index(seed) for seed in seeds]].astype(np.float64)
    second = baseline.table[[baseline.seeds.index(seed) for seed in seeds]].astype(np.float64)
    mean, low, high = (
        format_signed(scale * value, unit) for value in ((first - second).mean(), *difference_interval(first, second))
    )
    p = paired_permutation_p((first - second).mean(1).tolist())
    return f"{mean} ({low} … {high}){note} | {p:.3f} ({len(seeds)} seeds)"


def describe_spread(task: str, outcomes: Outcomes | None) -> str:
    """Return the mean and the standard deviation over seeds, as the paper prints them."""
    if outcomes is None:
        return NOT_RUN
    means = scale_of(task) * outcomes.table.mean(1)
    return f"{format_number(means.mean(), TASKS[task].metric)} ± {format_number(means.std(ddof=1), TASKS[task].metric)}"


def scale_of(task: str) -> float:
    """Return 100 for success, which is printed in percent."""
    return 100.0 if TASKS[task].metric == "success" else 1.0


def task_table(task: str) -> str:
    """Return the table of one task, with one row per arm."""
    unit = unit_label(TASKS[task].metric)
    lines = [
        f"| method and preset | demonstrations | {unit}, `fixed` (95 %) | minus BC, paired (95 %) | p (seeds) "
        f"| {unit}, `paper` ± sd over seeds | the paper | seeds × episodes |",
        f"|{'---|' * 8}",
    ]
    sources = {describe_demonstrations(record) for record in read_records() if record.results["task"] == task}
    for demos in sorted(sources, reverse=True) or ["bundled"]:
        for arm in ARMS:
            run = [precision for precision in PRECISIONS if find_outcomes(task, demos, arm, precision, "fixed")]
            lines += [task_row(task, demos, arm, precision) for precision in run or ["float32"]]
    return "\n".join(lines)


def task_row(task: str, demos: str, arm: str, precision: str) -> str:
    """Return the row of one arm. Its difference is to BC of the same precision, or else to BC of another one."""
    name, printed_as = ARMS[arm]
    outcomes, printed = find_outcomes(task, demos, arm, precision, "fixed"), paper()["main-table"][task][printed_as]
    mean, difference, count = NOT_RUN, "– | –", "–"
    if outcomes is not None:
        mean, count = describe_mean(task, outcomes), " × ".join(str(size) for size in outcomes.table.shape)
        if arm != BASELINE:
            difference = next(
                (
                    describe_difference(task, outcomes, baseline, "" if other == precision else f", to {other} BC")
                    for other in (precision, *PRECISIONS)
                    if (baseline := find_outcomes(task, demos, BASELINE, other, "fixed"))
                ),
                difference,
            )
    spread = describe_spread(task, find_outcomes(task, demos, arm, precision, "paper"))
    return (
        f"| {name}{PRECISIONS[precision]} | {demos} | {mean} | {difference} | {spread} "
        f"| {printed['mean']:,} ± {printed['sd']} | {count} |"
    )


def training_table() -> str:
    """Return the updates and the time of every training."""
    lines = ["| task | trained | seeds | updates | seconds | device |", "|---|---|---|---|---|---|"]
    for record in sorted(read_records(), key=lambda record: TASK_NAMES.index(record.results["task"])):
        if record.kind != "training":
            continue
        task, method, preset = record.results["preset"].split("/")
        seeds = [int(member["seed"]) for member in record.members]
        guide = record.settings["type"] == "diffusion"
        name = "guide, shared by all seeds" if guide else ARMS[f"{method}/{preset}"][0]
        name += PRECISIONS[record.results["precision"]]
        span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        updates = record.settings["training"]["updates"]
        lines.append(f"| {task} | {name} | {span} | {updates:,} | {record.seconds:.0f} | {record.device} |")
    return "\n".join(lines)


BLOCKS = {
    "recipe-training": training_table,
    **{f"recipe-{task}": lambda task=task: task_table(task) for task in TASK_NAMES},
}
"""For docs/make.py."""
