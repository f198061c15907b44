"""Tables of docs/all-methods.md, from the Records of `diffclone reproduce tuning --small` and of benchmarks/acting.py.

python -m docs.small_study_tables OUT/records.jsonl …   add the Records of output folders to small_study.jsonl.gz
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

from diffclone.experiments.study.candidates import SINGLE_ACTIONS, TUNED_METHODS
from diffclone.experiments.study.results import (
    BASELINE,
    TunedRow,
    chosen_estimate,
    difference,
    tuned_rows,
)
from diffclone.experiments.study.small import shrink
from diffclone.records import Record
from diffclone.reports.numbers import unit_label
from docs.study_tables import NOT_RUN, add_records, signed, tuned_cells, unit_of

RECORDS = Path(__file__).parent / "records" / "small_study.jsonl.gz"
ACTING = Path(__file__).parent / "records" / "acting.jsonl"
CHUNKS = ", chunks"


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


def chunks_table() -> str:
    """Return, for each method, its score with chunks minus its score without."""
    found = settings()
    lines = [f"| chunks − single actions | {' | '.join(found)} |", f"|{'---|' * (1 + len(found))}"]
    for name in (method.name for method in SINGLE_ACTIONS.values()):
        cells = [compare(setting, name + CHUNKS, name) for setting in found]
        if any(cell != NOT_RUN for cell in cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def guide_table() -> str:
    """Return DBC minus BC, without and with chunks."""
    found = settings()
    lines = [f"| paired difference | {' | '.join(found)} |", f"|{'---|' * (1 + len(found))}"]
    for suffix in ("", CHUNKS):
        for name in ("DBC (paper)", "DBC (ours)"):
            cells = [compare(setting, name + suffix, BASELINE + suffix) for setting in found]
            if any(cell != NOT_RUN for cell in cells):
                lines.append(f"| {name}{suffix} − {BASELINE}{suffix} | {' | '.join(cells)} |")
    return "\n".join(lines)


def compare(setting: str, ours: str, theirs: str) -> str:
    """Return the paired difference of two methods, if both were run."""
    found = [chosen_estimate(read_records(), setting, name) for name in (ours, theirs)]
    return signed(difference(found[0], found[1]), unit_of(setting)) if found[0] and found[1] else NOT_RUN


BLOCKS = {"methods-all": methods_table, "methods-chunks": chunks_table, "methods-guide": guide_table}
"""For docs/make.py."""

if __name__ == "__main__":
    for name in sys.argv[1:]:
        add_records(RECORDS, Path(name))
