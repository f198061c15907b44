"""Claims of the paper with their verdicts, and tables of the experiments beside the printed numbers.

python -m docs.reproduction_tables OUT/records.jsonl    replace docs/records/reproduction.jsonl.gz by the Records of
                                                        `diffclone reproduce --out OUT` that a table or figure uses
python -m docs.reproduction_tables --small OUT/records.jsonl …    add to small_schedule.jsonl.gz what tables use of the
                                                        Records of `diffclone reproduce --small --out OUT`
"""

import gzip
import json
import sys
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.experiments import EXPERIMENTS
from diffclone.experiments.catalogue.claim_tests import SMALL_SCHEDULE
from diffclone.experiments.claims import ClaimsTable
from diffclone.experiments.claims_table import decide_claims
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.results import ResultTable
from diffclone.experiments.specification import SettingsSource
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.files import write_atomically
from diffclone.records import Record
from diffclone.reports.claims import MARKS, claims_markdown, count_verdicts, describe_difference, markdown_notes
from diffclone.reports.numbers import cell_at, format_count, format_estimate, format_number, format_signed, unit_label
from diffclone.reports.summary import describe_levels, list_absent, list_contradictions
from diffclone.reports.text_tables import escape_markdown, markdown_row, to_markdown

RECORDS = Path(__file__).parent / "records"
TABLE_FILES = ("reproduction.jsonl.gz", "methods.jsonl.gz")
SMALL_FILE = "small_schedule.jsonl.gz"
CLAIM_FILES = (*TABLE_FILES, "best.jsonl", "paper_recipe*.jsonl.gz", "settings*.jsonl", "*study*.jsonl.gz", SMALL_FILE)
"""Files may be absent: what they would hold then counts as not run."""


def read_records(patterns: tuple[str, ...]) -> list[Record]:
    """Return the Records of all files with these names."""
    return [record for name in patterns for path in sorted(RECORDS.glob(name)) for record in Record.read_all(path)]


@cache
def load_results() -> tuple[ResultTable, ...]:
    """Return the results of all experiments."""
    return tuple(compare_experiments(list(EXPERIMENTS.values()), read_records(TABLE_FILES), "ours"))


@cache
def load_small_results() -> tuple[ResultTable, ...]:
    """Return the results of the small schedule, without the experiments that were not run."""
    tables = compare_experiments(list(EXPERIMENTS.values()), read_records((SMALL_FILE,)), "small")
    found = [replace(t, cells=tuple(c for c in t.cells if c.ours is not None)) for t in tables]
    return tuple(table for table in found if table.cells)


@cache
def load_claims() -> ClaimsTable:
    """Return the claims with their verdicts."""
    return decide_claims(read_records(CLAIM_FILES))


def claims_of(*names: str) -> str:
    """Return the table of some claims."""
    table = load_claims()
    return claims_markdown(replace(table, rows=tuple(row for row in table.rows if row.name in names))).rstrip("\n")


def decided_claims() -> str:
    """Return a short table of the tests that have the data they need: a line per claim."""
    heads = ["claim of the paper", "with the paper's settings", "tuned equally", "small networks, 4,000 updates"]
    cells: dict[str, list[list[str]]] = {}
    for row in load_claims().rows:
        if row.verdict == "not run" or (row.p is None and row.unit != "ratio"):
            continue
        setting, tuned = row.on.partition(",")[0], row.on.partition(",")[0] in TASK_SETTINGS
        small = row.on.endswith(SMALL_SCHEDULE)
        _, _, value = describe_difference(row).rpartition(": ")  # what is compared follows from the claim
        on = row.on.removesuffix(f", {SMALL_SCHEDULE}") if tuned or small or row.unit == "ratio" else setting
        why = f" ({row.reason})" if row.reason else ""
        verdict = f"{MARKS.get(row.verdict, '')} {row.verdict}{why}".strip()
        column = 2 if small else int(tuned)
        cells.setdefault(row.claim, [[], [], []])[column].append(escape_markdown(f"{on}: {value}, {verdict}"))
    lines = [markdown_row(heads), "|" + "---|" * len(heads)]
    for claim, columns in cells.items():
        lines.append(f"| {escape_markdown(claim)} | {' | '.join('<br>'.join(found) or '–' for found in columns)} |")
    return "\n".join(lines)


def small_table() -> str:
    """Return the scores of the small schedule, one line per cell."""
    heads = ["experiment", "", "", "unit", "mean (95 %)", "seeds × episodes"]
    lines = [markdown_row(heads), "|" + "---|" * len(heads)]
    for table in load_small_results():
        for cell in table.cells:
            assert cell.ours is not None
            numbers = [unit_label(cell.unit), format_estimate(cell.ours, cell.unit), format_count(cell.ours)]
            lines.append(markdown_row([table.title, cell.row, cell.column, *numbers]))
    return "\n".join(lines)


def claims_rule() -> str:
    """Return how verdicts are decided."""
    return escape_markdown(load_claims().rule)


def experiment_table(name: str) -> str:
    """Return the table of an experiment, one line per cell."""
    table = next(table for table in load_results() if table.name == name)
    if table.cells:
        return to_markdown(table).rstrip("\n")
    measured = sum(len(records) for records in table.measured.values())
    return f"No table: a figure of {measured} Records." if measured else "Not run."


def method_table(row: str) -> str:
    """Return the row of a method in the main table, one line per task."""
    table = next(table for table in load_results() if table.name == "main-table")
    cells = tuple(cell for cell in table.cells if cell.row == row)
    return to_markdown(replace(table, rows=(row,), cells=cells)).rstrip("\n")


def main_differences() -> str:
    """Return DBC minus BC on every task, with our settings."""
    main, pixels = (next(table for table in load_results() if table.name == name) for name in ("main-table", "pixels"))
    lines = ["| task | BC | DBC (ours) | difference | seeds |", "|---|---|---|---|---|"]
    for table in (main, pixels):
        for column in table.columns:
            bc, dbc = (cell_at(table, row, column) for row in ("BC", "DBC (ours)"))
            if bc is None or dbc is None or bc.ours is None or dbc.ours is None:
                continue
            means = [format_number(cell.ours.mean, cell.unit) for cell in (bc, dbc) if cell.ours]
            by = format_signed(dbc.ours.mean - bc.ours.mean, bc.unit)
            lines.append(f"| {column} | {' | '.join(means)} | {by} | {bc.ours.seeds}, {dbc.ours.seeds} |")
    return "\n".join(lines)


def loss_table() -> str:
    """Return both losses of each policy at the beginning and at the end of training."""
    lines = ["| minimised | L_BC, first | L_BC, last | L_DM, first | L_DM, last | seeds |", "|---|---|---|---|---|---|"]
    minimised = {"BC": "L_BC", "DM": "L_DM", "DBC": "both"}
    table = next(table for table in load_results() if table.name == "loss-curves")
    for record in table.measured["curves"]:
        results: Any = record.results
        values = [
            f"{np.mean(losses[k]):.3g}" for losses in (results["losses"][n] for n in ("L_BC", "L_DM")) for k in (0, -1)
        ]
        lines.append(f"| {minimised[results['label']]} | {' | '.join(values)} | {len(record.members)} |")
    return "\n".join(line.replace("L_", "L\\_") for line in lines)


def missing_list() -> str:
    """List what was not run, and why."""
    return markdown_list(
        [
            f"{table.title}: {'; '.join(cells)} ({reason})"
            for table in load_results()
            for reason, cells in list_absent(table).items()
        ]
    )


def contradictions_list() -> str:
    """List numbers of the paper that contradict each other."""
    return markdown_list([f"{'; '.join(where)}: {note}" for note, where in list_contradictions(load_results()).items()])


def energy_choice() -> str:
    """Return the success of the energy guide with BC on FetchPick, by λ."""
    rates: dict[tuple[float, str, int], list[float]] = {}
    for record in Record.read_all(RECORDS / "energy.jsonl"):
        for member, rate in zip(record.members, record.results["member_success"], strict=True):
            value = float(member.get("coefficient", record.settings["coefficient"]))
            rates.setdefault((value, record.results["starts"], record.results["episodes"]), []).append(100 * rate)
    lines = [
        f"| {value:g} | {starts} | {sum(some) / len(some):.1f} | {len(some)} × {episodes} |"
        for (value, starts, episodes), some in rates.items()
    ]
    return "\n".join(["| λ | starts | success, % | seeds × episodes |", "|---|---|---|---|", *lines])


def markdown_list(lines: list[str]) -> str:
    """Return a Markdown list."""
    return "\n".join(f"- {escape_markdown(line)}" for line in lines) or "None."


def select_used(records: list[Record], source: SettingsSource = "ours") -> list[Record]:
    """Return the Records that a cell, a figure or a claim uses, in their order."""
    used = [
        record
        for table in compare_experiments(list(EXPERIMENTS.values()), records, source)
        for record in (
            *(cell.ours.record for cell in table.cells if cell.ours is not None),
            *(record for measured in table.measured.values() for record in measured),
        )
    ]
    if source == "small":
        used += [r for row in decide_claims(records).rows if row.on.endswith(SMALL_SCHEDULE) for r in row.records]
    return [record for record in records if any(record is other for other in used)]


BLOCKS = {
    "claims": lambda: claims_markdown(load_claims()).rstrip("\n"),
    "claims-decided": decided_claims,
    "claims-against-bc": lambda: claims_of("above-bc", "level-with-bc"),
    "claims-summary": lambda: count_verdicts(load_claims()),
    "claims-rule": claims_rule,
    "claims-notes": lambda: markdown_notes(load_claims()),
    "reproduction-levels": lambda: describe_levels(load_results()),
    "reproduction-differences": main_differences,
    "results-bc": lambda: method_table("BC"),
    "results-ibc": lambda: method_table("Implicit BC"),
    "results-diffusion-policy": lambda: method_table("Diffusion Policy"),
    "results-dbc": lambda: method_table("DBC (ours)"),
    "reproduction-losses": loss_table,
    "reproduction-missing": missing_list,
    "reproduction-small": small_table,
    "reproduction-contradictions": contradictions_list,
    "reproduction-energy": energy_choice,
    **{f"reproduction-{name}": lambda name=name: experiment_table(name) for name in EXPERIMENTS},
}
"""Blocks that docs/make.py fills."""


if __name__ == "__main__":
    small = sys.argv[1] == "--small"
    target = RECORDS / (SMALL_FILE if small else "reproduction.jsonl.gz")
    files = [*([target] if small and target.exists() else []), *map(Path, sys.argv[1 + small :])]
    kept = select_used([record for file in files for record in Record.read_all(file)], "small" if small else "ours")
    lines = dict.fromkeys(json.dumps(asdict(record)) + "\n" for record in kept)  # files may share Records
    write_atomically(target, gzip.compress("".join(lines).encode(), mtime=0))
