"""Tables of docs/all-methods.md, from the Records of `diffclone reproduce tuning --small` and of benchmarks/acting.py.

python -m docs.small_study_tables OUT/records.jsonl …   add the Records of output folders to small_study.jsonl.gz
"""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from diffclone.experiments.study.candidates import SINGLE_ACTIONS, TUNED_METHODS
from diffclone.experiments.study.results import (
    BASELINE,
    Estimate,
    TunedRow,
    chosen_estimate,
    difference,
    tuned_rows,
)
from diffclone.experiments.study.small import shrink
from diffclone.records import Record
from diffclone.reports.numbers import format_number, unit_label
from docs.study_tables import NOT_RUN, add_records, signed, tuned_cells, unit_of

RECORDS = Path(__file__).parent / "records" / "small_study.jsonl.gz"
ACTING = Path(__file__).parent / "records" / "acting.jsonl"
CHUNKS = ", chunks"
SINGLE_NAMES = tuple(method.name for method in SINGLE_ACTIONS.values())


@cache
def read_records() -> tuple[Record, ...]:
    """Return the Records."""
    return tuple(Record.read_all(RECORDS))


def settings() -> list[str]:
    """Return the settings of the Records."""
    return list(dict.fromkeys(str(record.results["setting"]) for record in read_records()))


@cache
def complete_rows() -> dict[tuple[str, str], TunedRow]:
    """Return the rows of methods whose tries are all done, by setting and method."""
    tries = {shrink(key).name: shrink(key).tries for key in TUNED_METHODS}
    return {(row.setting, row.method): row for row in tuned_rows(read_records()) if row.tries == tries[row.method]}


def methods_table() -> str:
    """Return one row per setting and method: calls, time, the choice and the score."""
    acting: Any = Record.read_all(ACTING)[-1].results
    lines = [
        "| setting | method | network calls per action | ms per action | chosen of 8 tries | validation "
        "| evaluation, fresh seeds (95 %) | minus BC, paired (95 %) | seeds × starts |",
        f"|{'---|' * 9}",
    ]
    for setting in settings():
        unit = unit_of(setting)
        for name in (method.name for method in TUNED_METHODS.values()):
            row = complete_rows().get((setting, name))
            if row is None:
                continue
            lines.append(
                f"| {setting} ({unit_label(unit)}) | {name} | {acting['calls'][name]:g} "
                f"| {acting['milliseconds'][name]:.2f} | {tuned_cells(row, unit)} |"
            )
    return "\n".join(lines)


def overview_table() -> str:
    """Return the scores of all methods, one row per setting: with single actions / with chunks."""
    names = [name for name in SINGLE_NAMES if any(row[1] == name for row in complete_rows())]
    lines = [f"| setting | {' | '.join(names)} |", f"|{'---|' * (1 + len(names))}"]
    for setting in settings():
        cells = [" / ".join(short_score(setting, name + suffix) for suffix in ("", CHUNKS)) for name in names]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


def short_score(setting: str, name: str) -> str:
    """Return the score of a method, without its interval."""
    row = complete_rows().get((setting, name))
    return "–" if row is None or row.reported is None else format_number(row.reported.mean, unit_of(setting))


def best_table() -> str:
    """Return the best method of each setting with at most one network call per action, and with any number."""
    calls: Any = Record.read_all(ACTING)[-1].results["calls"]
    lines = [
        "| setting | at most one call per action | not resolved from it | any number of calls | not resolved from it |"
    ]
    lines.append(f"|{'---|' * 5}")
    for setting in settings():
        found = {
            name: row.reported
            for (place, name), row in complete_rows().items()
            if place == setting and row.reported is not None
        }
        few = {name: score for name, score in found.items() if calls[name] <= 1}
        lines.append(f"| {setting} | {describe_best(few, setting)} | {describe_best(found, setting)} |")
    return "\n".join(lines)


def describe_best(scores: Mapping[str, Estimate], setting: str) -> str:
    """Return two cells: the method with the highest mean, and those whose difference from it has an interval with 0."""
    best = max(scores, key=lambda name: scores[name].mean)
    near = [name for name in scores if name != best and difference(scores[best], scores[name]).interval[0] <= 0]
    return f"{best} {format_number(scores[best].mean, unit_of(setting))} | {'; '.join(near) or '–'}"


def beside_bc_table() -> str:
    """Return, for each method, the settings on which its difference from BC is above 0, not resolved, or below."""
    lines = ["| method | above BC | not resolved | below BC |", f"|{'---|' * 4}"]
    for name in (method.name for method in TUNED_METHODS.values()):
        places: tuple[list[str], list[str], list[str]] = ([], [], [])
        for setting in settings():
            row = complete_rows().get((setting, name))
            if row is not None and row.minus_bc is not None:
                low, high = row.minus_bc.interval
                places[0 if low > 0 else 2 if high < 0 else 1].append(setting)
        if any(places):
            cells = [f"{len(found)}: {', '.join(found)}" if found else "–" for found in places]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chunks_table() -> str:
    """Return, for each setting, the score of every method with chunks minus its score without."""
    return difference_table({name: (name + CHUNKS, name) for name in SINGLE_NAMES})


def guide_table() -> str:
    """Return DBC minus BC, without and with chunks."""
    pairs = [(name + suffix, BASELINE + suffix) for suffix in ("", CHUNKS) for name in ("DBC (paper)", "DBC (ours)")]
    return difference_table({f"{ours} − {theirs}": (ours, theirs) for ours, theirs in pairs})


def velocity_table() -> str:
    """Return Diffusion Policy that predicts the velocity minus one that predicts the noise, without and with chunks."""
    name = "Diffusion Policy"
    heads = {"": "single actions", CHUNKS: "chunks"}
    return difference_table({head: (f"{name}, velocity{suffix}", name + suffix) for suffix, head in heads.items()})


def difference_table(pairs: Mapping[str, tuple[str, str]]) -> str:
    """Return paired differences: one row per setting, one column per pair of methods, of those that were run."""
    columns = {head: [compare(setting, *pair) for setting in settings()] for head, pair in pairs.items()}
    columns = {head: cells for head, cells in columns.items() if set(cells) != {NOT_RUN}}
    lines = [f"| setting | {' | '.join(columns)} |", f"|{'---|' * (1 + len(columns))}"]
    for setting, *cells in zip(settings(), *columns.values(), strict=True):
        if set(cells) != {NOT_RUN}:
            lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


def compare(setting: str, ours: str, theirs: str) -> str:
    """Return the paired difference of two methods, if both were run."""
    found = [chosen_estimate(read_records(), setting, name) for name in (ours, theirs)]
    return signed(difference(found[0], found[1]), unit_of(setting)) if found[0] and found[1] else NOT_RUN


BLOCKS = {
    "methods-overview": overview_table,
    "methods-best": best_table,
    "methods-beside-bc": beside_bc_table,
    "methods-all": methods_table,
    "methods-chunks": chunks_table,
    "methods-guide": guide_table,
    "methods-velocity": velocity_table,
}
"""For docs/make.py."""

if __name__ == "__main__":
    for name in sys.argv[1:]:
        add_records(RECORDS, Path(name))
