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
from diffclone.experiments.claims import ClaimRow, ClaimsTable
from diffclone.experiments.claims_table import decide_claims
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.results import ResultTable
from diffclone.experiments.specification import SettingsSource
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.files import write_atomically
from diffclone.records import Record
from diffclone.reports.claims import claims_markdown, count_verdicts, describe_difference, markdown_notes
from diffclone.reports.numbers import cell_at, format_count, format_estimate, format_number, format_signed, unit_label
from diffclone.reports.summary import describe_levels, list_absent, list_contradictions
from diffclone.reports.text_tables import escape_markdown, markdown_row, to_markdown
from diffclone.tasks import TASKS

RECORDS = Path(__file__).parent / "records"
DECIDED = ("reproduced", "contradicted", "equivalent")
"""The verdicts of the columns of the short table that name their tests; the last column counts the other tests."""
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
    """Return a short table of the tests that have the data they need: a line per claim, a column per verdict.

    Tests without a decision are counted.
    """
    claims: dict[str, list[ClaimRow]] = {}
    for row in load_claims().rows:
        if row.verdict != "not run" and (row.p is not None or row.unit == "ratio"):
            claims.setdefault(row.claim, []).append(row)
    lines = [
        "| claim of the paper | ✓ reproduced | ✗ contradicted | = equivalent | unresolved |",
        "|---|---|---|---|---|",
    ]
    for claim, rows in claims.items():
        cells = [list_tests([row for row in rows if row.verdict == verdict], rows) for verdict in DECIDED]
        undecided = sum(row.verdict not in DECIDED for row in rows)
        lines.append(f"| {escape_markdown(claim)} | {' | '.join(cells)} | {undecided or '–'} |")
    return "\n".join(lines)


def list_tests(rows: list[ClaimRow], claim: list[ClaimRow]) -> str:
    """Return tests with their differences, by the kind of their settings. `claim` has all tests of the claim."""
    kinds: dict[str, list[str]] = {}
    for row in rows:
        where, kind = short_setting(row)
        others = [name_other(other) for other in claim if short_setting(other) == (where, kind)]
        if len(others) > 1:
            where += (
                f" beside {name_other(row)}" if len(set(others)) > 1 and None not in others else f", {row.compared}:"
            )
        value = describe_difference(row).removeprefix(f"{row.compared}: ").partition(" (")[0]
        kinds.setdefault(kind, []).append(escape_markdown(f"{where} {value}"))
    return (
        "<br>".join(f"*{kind}*: {'; '.join(found)}" if kind else "; ".join(found) for kind, found in kinds.items())
        or "–"
    )


def short_setting(row: ClaimRow) -> tuple[str, str]:
    """Return where a test was made, and the kind of its settings."""
    where, _, rest = row.on.partition(",")
    if row.unit == "ratio":
        return row.on.removeprefix("time per action, "), ""
    if where in TASK_SETTINGS:
        return where, "tuned, small" if rest else "tuned"
    return where, "small" if rest.endswith(SMALL_SCHEDULE) else "recipe" if "recipe" in rest else "brief"


def name_other(row: ClaimRow) -> str | None:
    """Return the method that a test compares with, the last one of its difference; None if it has no difference."""
    _, minus, last = row.compared.rpartition(" − ")
    name = last.partition(" at ")[0]
    return (name.rpartition(",")[0] or name) if minus else None


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


def open_questions() -> str:
    """Return the rows of the experiment on open questions that were run; the page lists the others elsewhere."""
    table = next(table for table in load_results() if table.name == "known-errors")
    return to_markdown(replace(table, cells=tuple(c for c in table.cells if c.ours is not None))).rstrip("\n")


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
    used += [record for row in decide_claims(records).rows for record in row.records]
    return [drop_returns(record) for record in records if any(record is other for other in used)]


def drop_returns(record: Record) -> Record:
    """Return the Record without the return of every episode, if its task counts successes: they are most of a file."""
    outcomes: Any = record.results.get("outcomes")
    if not outcomes or "success" not in outcomes or TASKS[record.results["task"]].metric != "success":
        return record
    kept = {key: value for key, value in record.results.items() if key != "member_return"}
    return replace(record, results={**kept, "outcomes": {"success": outcomes["success"]}})


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
    "reproduction-known-errors": open_questions,
}
"""Blocks that docs/make.py fills."""


if __name__ == "__main__":
    small = sys.argv[1] == "--small"
    target = RECORDS / (SMALL_FILE if small else "reproduction.jsonl.gz")
    files = [*([target] if small and target.exists() else []), *map(Path, sys.argv[1 + small :])]
    kept = select_used([record for file in files for record in Record.read_all(file)], "small" if small else "ours")
    lines = dict.fromkeys(json.dumps(asdict(record)) + "\n" for record in kept)  # files may share Records
    write_atomically(target, gzip.compress("".join(lines).encode(), mtime=0))
