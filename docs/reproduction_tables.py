"""Tables and lists that compare Records of the experiments with the paper.

python -m docs.reproduction_tables OUT/records.jsonl    replace docs/records/reproduction.jsonl by the Records of
                                                        `diffclone reproduce --out OUT` that a table or figure uses
"""

import sys
from functools import cache
from pathlib import Path

from diffclone.experiments import EXPERIMENTS
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.results import ResultTable, Verdict
from diffclone.records import Record
from diffclone.reports.summary import (
    cells_with_verdict,
    describe_cell,
    describe_verdicts,
    list_absent,
    list_contradictions,
    verdict_rule,
)
from diffclone.reports.text_tables import escape_markdown, to_markdown

RECORDS = Path(__file__).parent / "records"
FILES = "reproduction*.jsonl"


@cache
def load_results() -> tuple[ResultTable, ...]:
    """Return the results of all experiments."""
    records = [record for path in sorted(RECORDS.glob(FILES)) for record in Record.read_all(path)]
    return tuple(compare_experiments(list(EXPERIMENTS.values()), records, "ours"))


def experiment_table(name: str) -> str:
    """Return the table of an experiment, one line per cell."""
    table = next(table for table in load_results() if table.name == name)
    if table.cells:
        return to_markdown(table).rstrip("\n")
    measured = sum(len(records) for records in table.measured.values())
    return f"No table: a figure of {measured} Records." if measured else "Not run."


def rule() -> str:
    """Return how verdicts are computed."""
    return escape_markdown(verdict_rule(load_results()))


def summary() -> str:
    """Return how many cells have which verdict."""
    return describe_verdicts(load_results())


def verdict_list(verdict: Verdict) -> str:
    """List the cells with a verdict."""
    return markdown_list(
        [f"{table.title}: {describe_cell(cell)}" for table, cell in cells_with_verdict(load_results(), verdict)]
    )


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


def select_used(records: list[Record]) -> list[Record]:
    """Return the Records that a cell or a figure uses, in their order."""
    used = [
        record
        for table in compare_experiments(list(EXPERIMENTS.values()), records, "ours")
        for record in (
            *(cell.ours.record for cell in table.cells if cell.ours is not None),
            *(record for measured in table.measured.values() for record in measured),
        )
    ]
    return [record for record in records if any(record is other for other in used)]


BLOCKS = {
    "reproduction-rule": rule,
    "reproduction-summary": summary,
    "reproduction-agrees": lambda: verdict_list("agrees"),
    "reproduction-better": lambda: verdict_list("better"),
    "reproduction-short": lambda: verdict_list("short"),
    "reproduction-missing": missing_list,
    "reproduction-contradictions": contradictions_list,
    "reproduction-energy": energy_choice,
    **{f"reproduction-{name}": lambda name=name: experiment_table(name) for name in EXPERIMENTS},
}
"""Blocks that docs/make.py fills."""


if __name__ == "__main__":
    target = RECORDS / "reproduction.jsonl"
    kept = select_used(Record.read_all(Path(sys.argv[1])))
    target.unlink(missing_ok=True)
    for record in kept:
        record.append_to(target)
