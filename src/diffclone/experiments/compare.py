"""What came out, laid beside what is printed.

    ours     a mean with a 95 % interval of half width h          over seeds and starts (statistics.py)
    paper's  a mean with a standard deviation σ over 3 seeds:     h′ = t · σ / √3,  t = 4.303, of 2 degrees of freedom
             no spread printed: h′ = 0
    by       = ours − paper's
    agrees   |by| ≤ √(h² + h′²): the 95 % interval of the difference holds 0
    better   it does not, and by has the sign that is wanted; short: it has the other

More success, return and episodes a second are wanted; less error, drop and time. What is of shortened runs, of another
machine (episodes a second, milliseconds), or of other demonstrations (majority ratios of the bundled ones) is not
comparable.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.experiments.choices import Options
from diffclone.experiments.content import Content, Found, cell_content, measure_content
from diffclone.experiments.derive import derive
from diffclone.experiments.material import Material
from diffclone.experiments.paper import paper
from diffclone.experiments.results import ComparedCell, MeasuredValue, PrintedValue, ResultTable, Verdict
from diffclone.experiments.specification import Experiment, Measurement, SettingsSource, TableCell
from diffclone.experiments.values import table_values
from diffclone.records import Record
from diffclone.tasks import TASKS

T_OF_THREE = 4.302652729696142
"""The 97.5 % point of Student's t with two degrees of freedom."""
PAPER_SEEDS = 3
LESS_IS_BETTER = ("mse", "ms", "drop")
OTHER_MACHINE = ("episodes/s", "ms")


def sheets(
    experiments: Sequence[Experiment],
    records: Sequence[Record],
    source: SettingsSource = "ours",
    files: Mapping[str, str] | None = None,
) -> list[ResultTable]:
    """One an experiment. Quick Records stand in where there are no others."""
    found = Found(records)
    return [sheet(experiment, found, source, files or {}) for experiment in experiments]


def sheet(experiment: Experiment, found: Found, source: SettingsSource, files: Mapping[str, str]) -> ResultTable:
    """One."""
    ways = [Options(source=source, quick=quick, files=files) for quick in (False, True)]
    materials = [Material(options) for options in ways]

    def cell_contents(cell: TableCell) -> list[Content]:
        return [cell_content(cell, options, material) for options, material in zip(ways, materials, strict=True)]

    def measure_contents(measure: Measurement) -> list[Content]:
        pairs = zip(ways, materials, strict=True)
        return [measure_content(experiment.name, measure, options, material) for options, material in pairs]

    compared: list[ComparedCell] = []
    for cell in experiment.cells:
        record, why = best(found, cell_contents(cell))
        compared += compare_all(cell.row, cell.column, cell.variant.task, "evaluation", cell.paper_key, record, why)
    measured: dict[str, list[Record]] = {}
    for measure in experiment.measurements:
        record, why = best(found, measure_contents(measure))
        measured.setdefault(measure.kind, [])
        if record is not None:
            measured[measure.kind].append(record)
        task = measure.variant.task if measure.variant else str(measure.task)
        compared += compare_all(measure.label, "", task, measure.kind, measure.paper_key, record, why)
    for entry in experiment.derived:
        unit, ours, printed = derive(entry, compared, read_printed(entry.paper_key))
        of = [cell for cell in compared if (cell.row, cell.column) in (entry.first, entry.second)]
        if ours is None and all(cell.ours for cell in of):
            undefined = ComparedCell(
                entry.row, entry.column, unit, None, printed, "not comparable", None, "of nothing, 0"
            )
            compared.append(undefined)
            continue
        why = next((cell.reason for cell in of if cell.ours is None and cell.reason), None)
        compared.append(judged(entry.row, entry.column, unit, ours, printed, why))
    every = [record for records in measured.values() for record in records]
    every += [cell.ours.record for cell in compared if cell.ours]
    return ResultTable(
        name=experiment.name,
        title=experiment.title,
        about=experiment.about,
        source=source,
        rows=tuple(dict.fromkeys(cell.row for cell in compared)),
        columns=tuple(dict.fromkeys(cell.column for cell in compared)),
        cells=tuple(compared),
        measured={kind: tuple(records) for kind, records in measured.items()},
        quick=any(record.quick for record in every),
        settings={
            **experiment.choices,
            "rule": "Agrees: the 95 % interval of the difference, from our interval and the paper's standard deviation "
            "over three seeds, holds 0.",
        },
    )


def best(found: Found, contents: Sequence[Content]) -> tuple[Record | None, str | None]:
    """The best Record of the first content that has one, or why there is none."""
    record = next((known for content in contents if (known := found.best(content)) is not None), None)
    why = next((said for content in contents if (said := found.reason(content)) is not None), None)
    return record, why


def compare_all(
    row: str, column: str, task: str, kind: str, path: str | None, record: Record | None, why: str | None
) -> list[ComparedCell]:
    """The numbers of a Record; one at least if the paper prints one, or if it is a cell of a table."""
    printed = read_printed(path)
    return [
        judged(row, column or heading, unit, value, printed if first else None, why)
        for heading, unit, value, first in table_values(kind, task, record)
    ]


def judged(
    row: str, column: str, unit: str, ours: MeasuredValue | None, printed: PrintedValue | None, why: str | None
) -> ComparedCell:
    """With its verdict."""
    if ours is None:
        verdict: Verdict = "failed" if why else "not run"
        return ComparedCell(row, column, unit, None, printed, verdict, None, why)
    if printed is None:
        return ComparedCell(row, column, unit, ours, None, "not printed", None)
    by = ours.mean - printed.mean
    if ours.record.quick:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", None, "a shortened run")
    if unit in OTHER_MACHINE:
        return ComparedCell(row, column, unit, ours, printed, "not comparable", by, "of another machine")
    if unit == "ratio" and is_bundled(ours.record):
        return ComparedCell(row, column, unit, ours, printed, "not comparable", by, "of other demonstrations")
    return ComparedCell(row, column, unit, ours, printed, verdict_of(ours, printed, unit), by)


def is_bundled(record: Record) -> bool:
    """Whether a Record is of demonstrations that come with the package, which are not the paper's."""
    return record.data.get("fingerprint") == TASKS[record.results["task"]].demonstrations().fingerprint


def verdict_of(ours: MeasuredValue, printed: PrintedValue, unit: str) -> Verdict:
    """By the rule on top."""
    by = ours.mean - printed.mean
    if abs(by) <= math.hypot((ours.high - ours.low) / 2, half_width(printed)):
        return "agrees"
    return "better" if (by > 0) != (unit in LESS_IS_BETTER) else "short"


def half_width(printed: PrintedValue) -> float:
    """h′."""
    return T_OF_THREE * (printed.sd or 0.0) / math.sqrt(printed.seeds or PAPER_SEEDS)


def read_printed(path: str | None) -> PrintedValue | None:
    """A number of paper.toml."""
    if path is None:
        return None
    entry: Any = paper()
    for key in path.split("."):
        entry = entry[key]
    if not isinstance(entry, dict):
        return PrintedValue(float(entry), None, None)
    sd = entry.get("sd")
    return PrintedValue(float(entry["mean"]), sd, None if sd is None else PAPER_SEEDS, entry.get("note"))
