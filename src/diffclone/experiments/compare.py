"""Put our results beside the paper's numbers.

    compared              ours was trained on the demonstrations that the authors released (Maze, Walker):
                          by = ours − paper's
    other demonstrations  the level depends on the expert more than on the method, so there is nothing to compare
    not comparable        shortened runs, times of another machine, and errors that depend on how they are measured

A difference in level is no verdict: claims are tested in claims_table.py. The paper's standard deviations are over
three seeds.

Numbers derived from two cells a and b. Their intervals are combined as if a and b were independent.

    drop        = 100 (1 − b / a)      h = 100 / a · √(h_b² + (b / a · h_a)²)
    difference  = b − a                h = √(h_a² + h_b²)
    times       = a / b                h = 1 / b · √(h_a² + (a / b · h_b)²)
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from diffclone.experiments.paper import paper, printed_value
from diffclone.experiments.record_index import (
    RecordIndex,
    ResultIdentity,
    identify_cell,
    identify_measurement,
    read_demonstrations,
)
from diffclone.experiments.results import ComparedCell, MeasuredValue, PrintedValue, ResultTable
from diffclone.experiments.specification import DerivedCell, Experiment, RunOptions, SettingsSource
from diffclone.records import Record
from diffclone.statistics import constant_interval
from diffclone.tasks import TASKS

RESAMPLES = 4000
MACHINE_UNITS = ("episodes/s", "ms", "times")
METHOD_DEPENDENT = {"mse": "it depends on how far an action is noised before it is reconstructed"}
"""Units of numbers that depend on choices which the paper does not print."""


def compare_experiments(
    experiments: Sequence[Experiment],
    records: Sequence[Record],
    source: SettingsSource = "ours",
    files: Mapping[str, str] | None = None,
) -> list[ResultTable]:
    """Return one table per experiment. Quick Records are used only where there are no others."""
    index = RecordIndex(records)
    return [compare_experiment(experiment, index, source, files or {}) for experiment in experiments]


def compare_experiment(
    experiment: Experiment, index: RecordIndex, source: SettingsSource, files: Mapping[str, str]
) -> ResultTable:
    """Return the table of one experiment."""
    candidates = [RunOptions(source=source, quick=quick, files=files) for quick in (False, True)]

    def find(identify: Callable[[RunOptions], ResultIdentity]) -> tuple[Record | None, str | None]:
        """Return the best Record, and why an attempt failed."""
        identities = [identify(options) for options in candidates]
        record = next(filter(None, map(index.best, identities)), None)
        return record, next(filter(None, map(index.failure_reason, identities)), None)

    cells: list[ComparedCell] = []
    for cell in experiment.cells:
        record, reason = find(lambda options, cell=cell: identify_cell(cell, options))
        unit = "success" if TASKS[cell.variant.task].metric == "success" else "return"
        value = None if record is None else read_value(record, unit)
        authors = uses_authors_data(cell.variant.task, files)
        printed = printed_value(cell.paper_key)
        found = compare_value(cell.row, cell.column, unit, value, printed, reason, authors=authors)
        cells.append(replace(found, task=cell.variant.task, method=cell.variant.method))
    measured: dict[str, list[Record]] = {}
    for entry in experiment.measurements:
        record, reason = find(lambda options, entry=entry: identify_measurement(experiment.name, entry, options))
        measured.setdefault(entry.kind, []).extend([] if record is None else [record])
        printed, authors = printed_value(entry.paper_key), uses_authors_data(entry.task_name, files)
        for heading, unit in MEASURED_UNITS.get(entry.kind, {}).items():
            value = None if record is None else read_value(record, unit)
            found = compare_value(entry.label, heading, unit, value, printed, reason, authors=authors)
            method = "" if entry.variant is None else entry.variant.method
            cells.append(replace(found, task=entry.task_name, method=method))
            printed = None  # the paper prints only the first
    for entry in experiment.derived:
        known = {(cell.row, cell.column): cell for cell in cells}
        first, second = known[entry.first], known[entry.second]
        method = first.method if first.method == second.method else ""
        cells.append(replace(derive_cell(entry, known), task=first.task, method=method))
    cells = [replace(cell, row=name_row(cell.row, source)) for cell in cells]
    used = [record for records in measured.values() for record in records]
    used += [cell.ours.record for cell in cells if cell.ours]
    return ResultTable(
        name=experiment.name,
        title=experiment.title,
        about=experiment.about,
        source=source,
        rows=tuple(dict.fromkeys(cell.row for cell in cells)),
        columns=tuple(dict.fromkeys(cell.column for cell in cells)),
        cells=tuple(cells),
        measured={kind: tuple(records) for kind, records in measured.items()},
        quick=any(record.quick for record in used),
        settings=experiment.choices,
    )


def name_row(row: str, source: SettingsSource) -> str:
    """Return the name of a row, which says whose DBC it is."""
    return re.sub(r"^DBC(?= over |$)", f"DBC ({source})", row)


def compare_value(
    row: str,
    column: str,
    unit: str,
    ours: MeasuredValue | None,
    printed: PrintedValue | None,
    reason: str | None,
    *,
    authors: bool,
) -> ComparedCell:
    """Return a cell with its status.

    `reason` is why the latest attempt failed, if one did; `authors` whether the demonstrations are the authors'.
    """
    if ours is None:
        return ComparedCell(row, column, unit, None, printed, "failed" if reason else "not run", None, reason)
    if printed is None:
        return ComparedCell(row, column, unit, ours, None, "not printed", None)
    if ours.record.quick:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", None, "a shortened run")
    if unit in MACHINE_UNITS:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", None, "of another machine")
    if unit in METHOD_DEPENDENT:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", None, METHOD_DEPENDENT[unit])
    if not authors:
        return ComparedCell(row, column, unit, ours, printed, "other demonstrations", None)
    return ComparedCell(row, column, unit, ours, printed, "compared", ours.mean - printed.mean)


def uses_authors_data(task: str, files: Mapping[str, str]) -> bool:
    """Return whether the demonstrations of a task, or the file given for it, are those that the authors released."""
    known = paper()["authors"].get(task)
    return known is not None and read_demonstrations(task, files.get(task)).fingerprint == known


def derive_cell(entry: DerivedCell, cells: Mapping[tuple[str, str], ComparedCell]) -> ComparedCell:
    """Return a cell computed from two others; the paper's number is the printed one, or computed in the same way."""
    a, b = cells[entry.first], cells[entry.second]
    unit = a.unit if entry.operation == "difference" else entry.operation
    printed = printed_value(entry.paper_key)
    if printed is None and a.printed and b.printed:
        mean, _ = combine(entry.operation, (a.printed.mean, 0.0), (b.printed.mean, 0.0))
        printed = PrintedValue(mean, None, None, "computed from two printed numbers")
    authors = "compared" in (a.status, b.status)
    if a.ours is None or b.ours is None:
        reason = next((cell.reason for cell in (a, b) if cell.ours is None and cell.reason), None)
        return compare_value(entry.row, entry.column, unit, None, printed, reason, authors=authors)
    if {"drop": a.ours.mean, "difference": 1.0, "times": b.ours.mean}[entry.operation] == 0:
        return ComparedCell(entry.row, entry.column, unit, None, printed, "not comparable", None, "division by 0")
    ours = derive_value(entry, a.ours, b.ours)
    return compare_value(entry.row, entry.column, unit, ours, printed, None, authors=authors)


def derive_value(entry: DerivedCell, a: MeasuredValue, b: MeasuredValue) -> MeasuredValue:
    """Return the number computed from two of ours, with a Record that names their Records."""
    mean, half = combine(entry.operation, (a.mean, (a.high - a.low) / 2), (b.mean, (b.high - b.low) / 2))
    record = Record(
        kind="derived",
        settings={"how": entry.operation, "first": list(entry.first), "second": list(entry.second)},
        members=a.record.members,
        data=a.record.data,
        results={"value": mean, "half_width": half, "of": [a.record.when, b.record.when]},
        device=a.record.device,
        seconds=0.0,
        quick=a.record.quick or b.record.quick,
        versions=a.record.versions,
        when=max(a.record.when, b.record.when),
    )
    return MeasuredValue(mean, mean - half, mean + half, min(a.seeds, b.seeds), min(a.episodes, b.episodes), record)


def combine(operation: str, first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the mean and the half width of a derived number, given those of both cells."""
    (a, half_a), (b, half_b) = first, second
    if operation == "difference":
        return b - a, math.hypot(half_a, half_b)
    if operation == "drop":
        return 100 * (1 - b / a), 100 / abs(a) * math.hypot(half_b, b / a * half_a)
    return a / b, math.hypot(half_a, a / b * half_b) / abs(b)


def read_value(record: Record, unit: str) -> MeasuredValue:
    """Read the number with this unit from a Record. Speeds have no interval; success is in percent."""
    results: Any = record.results
    seeds, episodes = len(record.members), int(results.get("episodes") or 0)
    if unit == "success":
        rate = float(results["success_rate"])
        # Older Records have an interval over starts alone where all episodes end alike.
        constant = seeds > 1 and rate in (0, 1)
        interval = constant_interval(rate, min(seeds, episodes)) if constant else results["success_interval"]
        mean, low, high = (100 * value for value in (rate, *interval))
    elif unit == "return":
        mean, (low, high) = results["mean_return"], results["return_interval"]
    elif unit == "ratio":  # with the range over seeds of k-means
        mean, low, high = results["ratio"], results["least"], results["most"]
        seeds = int(record.settings["seeds"])
    elif unit == "mse":  # with an interval bootstrapped over seeds
        errors = np.array(results["mse"])
        means = np.random.default_rng(0).choice(errors, (RESAMPLES, len(errors))).mean(1)
        mean, low, high = map(float, (errors.mean(), *np.quantile(means, (0.025, 0.975))))
        seeds = len(errors)
    else:
        mean = low = high = results[{"episodes/s": "episodes_per_second", "ms": "milliseconds"}[unit]]
        seeds, episodes = 1, episodes if unit == "episodes/s" else 0
    return MeasuredValue(mean, low, high, seeds, episodes, record)


MEASURED_UNITS: Mapping[str, Mapping[str, str]] = {
    "multimodality": {"majority ratio": "ratio"},
    "inference": {"episodes/s": "episodes/s", "ms per action": "ms"},
    "reconstruction": {"MSE": "mse"},
}
"""Column headings and units of measurements that are numbers. The other measurements are figures."""
