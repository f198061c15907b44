"""Compare our results with the paper's numbers.

    ours       a mean with a 95 % interval of half width h        over seeds and starts (statistics.py)
    paper's    a mean with a standard deviation σ over 3 seeds:   h′ = t · σ / √3,  t = 4.303 (2 degrees of freedom)
               no printed deviation: h′ = 0
    by         = ours − paper's
    agrees     |by| ≤ √(h² + h′²): the 95 % interval of the difference contains 0
    better     it does not, and `by` has the desired sign;  short: it has the other sign

Higher success, return and episodes per second are better; lower error, drop and time are. Not comparable are shortened
runs, speeds of another machine (episodes per second, milliseconds) and majority ratios of other demonstrations.

Numbers derived from two cells a and b. Their intervals are combined as if a and b were independent.

    drop        = 100 (1 − b / a)      h = 100 / a · √(h_b² + (b / a · h_a)²)
    difference  = b − a                h = √(h_a² + h_b²)
    times       = a / b                h = 1 / b · √(h_a² + (a / b · h_b)²)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from diffclone.experiments.paper import PAPER_SEEDS, printed_value
from diffclone.experiments.record_index import RecordIndex, ResultIdentity, identify_cell, identify_measurement
from diffclone.experiments.results import ComparedCell, MeasuredValue, PrintedValue, ResultTable, Verdict
from diffclone.experiments.specification import DerivedCell, Experiment, RunOptions, SettingsSource
from diffclone.records import Record
from diffclone.tasks import TASKS

STUDENT_T = 4.302652729696142
"""The 97.5 % quantile of Student's t distribution with two degrees of freedom."""
RESAMPLES = 4000
LOWER_IS_BETTER = ("mse", "ms", "drop")
MACHINE_UNITS = ("episodes/s", "ms")
RULE = (
    "Agrees: the 95 % interval of the difference, from our interval and the paper's standard deviation over three "
    "seeds, contains 0."
)


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
        cells.append(compare_value(cell.row, cell.column, unit, value, printed_value(cell.paper_key), reason))
    measured: dict[str, list[Record]] = {}
    for entry in experiment.measurements:
        record, reason = find(lambda options, entry=entry: identify_measurement(experiment.name, entry, options))
        measured.setdefault(entry.kind, []).extend([] if record is None else [record])
        printed = printed_value(entry.paper_key)
        for heading, unit in MEASURED_UNITS.get(entry.kind, {}).items():
            value = None if record is None else read_value(record, unit)
            cells.append(compare_value(entry.label, heading, unit, value, printed, reason))
            printed = None  # the paper prints only the first
    for entry in experiment.derived:
        cells.append(derive_cell(entry, {(cell.row, cell.column): cell for cell in cells}))
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
        settings={**experiment.choices, "rule": RULE},
    )


def compare_value(
    row: str, column: str, unit: str, ours: MeasuredValue | None, printed: PrintedValue | None, reason: str | None
) -> ComparedCell:
    """Return a cell with its verdict; `reason` is why the latest attempt failed, if one did."""
    if ours is None:
        return ComparedCell(row, column, unit, None, printed, "failed" if reason else "not run", None, reason)
    if printed is None:
        return ComparedCell(row, column, unit, ours, None, "not printed", None)
    by = ours.mean - printed.mean
    if ours.record.quick:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", None, "a shortened run")
    if unit in MACHINE_UNITS:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", by, "of another machine")
    if unit == "ratio" and uses_bundled_data(ours.record):
        return ComparedCell(row, column, unit, ours, printed, "not comparable", by, "of other demonstrations")
    return ComparedCell(row, column, unit, ours, printed, compute_verdict(ours, printed, unit), by)


def uses_bundled_data(record: Record) -> bool:
    """Return whether the demonstrations come with the package; they are not the paper's."""
    return record.data.get("fingerprint") == TASKS[record.results["task"]].demonstrations().fingerprint


def compute_verdict(ours: MeasuredValue, printed: PrintedValue, unit: str) -> Verdict:
    """Apply the rule at the top of this file."""
    by = ours.mean - printed.mean
    if abs(by) <= math.hypot((ours.high - ours.low) / 2, printed_half_width(printed)):
        return "agrees"
    return "better" if (by > 0) != (unit in LOWER_IS_BETTER) else "short"


def printed_half_width(printed: PrintedValue) -> float:
    """Return h′."""
    return STUDENT_T * (printed.sd or 0.0) / math.sqrt(printed.seeds or PAPER_SEEDS)


def derive_cell(entry: DerivedCell, cells: Mapping[tuple[str, str], ComparedCell]) -> ComparedCell:
    """Return a cell computed from two others; the paper's number is the printed one, or computed in the same way."""
    a, b = cells[entry.first], cells[entry.second]
    unit = a.unit if entry.operation == "difference" else entry.operation
    printed = printed_value(entry.paper_key)
    if printed is None and a.printed and b.printed:
        mean, _ = combine(entry.operation, (a.printed.mean, 0.0), (b.printed.mean, 0.0))
        printed = PrintedValue(mean, None, None, "computed from two printed numbers")
    if a.ours is None or b.ours is None:
        reason = next((cell.reason for cell in (a, b) if cell.ours is None and cell.reason), None)
        return compare_value(entry.row, entry.column, unit, None, printed, reason)
    if {"drop": a.ours.mean, "difference": 1.0, "times": b.ours.mean}[entry.operation] == 0:
        return ComparedCell(entry.row, entry.column, unit, None, printed, "not comparable", None, "division by 0")
    ours = derive_value(entry, a.ours, b.ours)
    return compare_value(entry.row, entry.column, unit, ours, printed, None)


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
        mean, low, high = (100 * rate for rate in (results["success_rate"], *results["success_interval"]))
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
