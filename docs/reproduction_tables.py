"""What agrees with the paper and what does not, made from Records of its experiments.

python -m docs.reproduction_tables OUT/records.jsonl      take over what `diffclone reproduce --out OUT` made, as far as
                                                          a table or figure is made of it
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
def reproduced() -> tuple[ResultTable, ...]:
    """Every experiment."""
    records = [record for path in sorted(RECORDS.glob(FILES)) for record in Record.read_all(path)]
    return tuple(compare_experiments(list(EXPERIMENTS.values()), records, "ours"))


def experiment_table(name: str) -> str:
    """Ours beside the paper's, a line a cell; or that nothing was run."""
    sheet = next(sheet for sheet in reproduced() if sheet.name == name)
    if sheet.cells:
        return to_markdown(sheet).rstrip("\n")
    measured = sum(len(records) for records in sheet.measured.values())
    return f"No table: a figure of {measured} Records." if measured else "Not run."


def rule() -> str:
    """How verdicts are found."""
    return escape_markdown(verdict_rule(reproduced()))


def summary() -> str:
    """How many cells have which verdict."""
    return describe_verdicts(reproduced())


def verdict_list(verdict: Verdict) -> str:
    """Cells with a verdict, by experiment."""
    return listed(
        [f"{sheet.title}: {describe_cell(cell)}" for sheet, cell in cells_with_verdict(reproduced(), verdict)]
    )


def missing_list() -> str:
    """What was not run, and why."""
    return listed(
        [
            f"{sheet.title}: {'; '.join(places)} ({why})"
            for sheet in reproduced()
            for why, places in list_absent(sheet).items()
        ]
    )


def contradictions_list() -> str:
    """What the paper says against itself."""
    return listed([f"{'; '.join(where)}: {note}" for note, where in list_contradictions(reproduced()).items()])


def energy_choice() -> str:
    """Success by λ, of the energy guide on FetchPick with BC."""
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


def listed(lines: list[str]) -> str:
    """Escaped; an empty list says so."""
    return "\n".join(f"- {escape_markdown(line)}" for line in lines) or "None."


def used(records: list[Record]) -> list[Record]:
    """Those that a cell or a figure is made of, in the order in which they were made."""
    shown = [
        record
        for sheet in compare_experiments(list(EXPERIMENTS.values()), records, "ours")
        for record in (
            *(cell.ours.record for cell in sheet.cells if cell.ours is not None),
            *(record for found in sheet.measured.values() for record in found),
        )
    ]
    return [record for record in records if any(record is other for other in shown)]


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
"""For docs/make.py."""


if __name__ == "__main__":
    kept = RECORDS / "reproduction.jsonl"
    taken = used(Record.read_all(Path(sys.argv[1])))
    kept.unlink(missing_ok=True)
    for one in taken:
        one.append_to(kept)
