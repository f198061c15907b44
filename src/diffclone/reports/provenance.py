"""Number the Records behind a report and describe each of them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, final

from diffclone.experiments.claims import ClaimRow
from diffclone.experiments.results import ResultTable
from diffclone.records import Record

STUDIES = {"fresh": "training-length"}
"""Names of studies on the command line, where Records have another."""
LONGEST_VALUE = 120
"""Characters of JSON up to which a list or mapping is shown in full."""


def records_of(sheet: ResultTable) -> Iterator[Record]:
    """Yield the Records behind the cells, then those of other measurements."""
    for cell in sheet.cells:
        if cell.ours is not None:
            yield cell.ours.record
    for records in sheet.measured.values():
        yield from records


@final
class Provenance:
    """Numbers the Records of claims and sheets in the order of appearance. Equal Records share a number."""

    def __init__(self, sheets: Iterable[ResultTable], claims: Iterable[ClaimRow] = ()):
        self._numbers: dict[str, int] = {}
        self.records: list[Record] = []
        self._sheets: dict[str, ResultTable] = {}
        sheets = list(sheets)
        for sheet in sheets:
            for record in records_of(sheet):
                self._sheets.setdefault(_key(record), sheet)
        for record in chain(*(row.records for row in claims), *(records_of(sheet) for sheet in sheets)):
            key = _key(record)
            if key not in self._numbers:
                self.records.append(record)
                self._numbers[key] = len(self.records)

    def number(self, record: Record) -> int:
        """Return the number of a Record, starting at 1."""
        return self._numbers[_key(record)]

    def describe(self, record: Record) -> "RecordDescription":
        """Describe a Record, with the command that makes it again."""
        return describe_record(record, redo_command(record, self._sheets.get(_key(record))))


@final
@dataclass(frozen=True)
class RecordDescription:
    """A Record as the page shows it."""

    title: str
    summary: str
    facts: dict[str, str]
    command: str
    """The command that makes such a Record again."""
    settings: str
    """Settings and members as JSON."""


def redo_command(record: Record, sheet: ResultTable | None = None) -> str:
    """Return the command that makes a Record again; `sheet` is the experiment that shows it."""
    results, task = record.results, record.results.get("task")
    method = record.settings.get("type")
    quick = " --quick" if record.quick else ""
    if "study" in results:
        study = STUDIES.get(str(results["study"]), str(results["study"]))
        small = " --small" if results.get("small") else ""
        return f"diffclone reproduce {study}{small} --only {results['setting']}{quick}"
    preset = str(results.get("preset", "")).split("/")
    seeds = [int(member["seed"]) for member in record.members if "seed" in member]
    if sheet is None and len(preset) == 3 and preset[2] in ("paper", "release") and seeds:
        chosen = f"{min(seeds)}-{max(seeds)}" if len(seeds) > 1 else str(seeds[0])
        return f"python -m scripts.paper_recipe evaluate {preset[0]} {preset[1]} {chosen} --preset {preset[2]}"
    if sheet is None:
        only = ",".join(str(name) for name in (task, method) if name)
        return f"diffclone reproduce claims{f' --only {only}' if only else ''}{quick}"
    only = ",".join(str(name) for name in (task, None if "experiment" in results else method) if name)
    words = [f"diffclone reproduce {sheet.name}", f"--only {only}" if only else ""]
    words += [f"--seeds {len(seeds)}" if len(seeds) > 1 else "", f"--source {sheet.source}"]
    words += [f"--episodes {results['episodes']}" if record.kind == "evaluation" and "episodes" in results else ""]
    return " ".join(filter(None, words)) + quick


def describe_record(record: Record, command: str) -> RecordDescription:
    """Describe a Record with everything that can change its numbers."""
    settings: Any = record.settings
    names = [record.kind, record.results.get("task"), settings.get("type"), record.results.get("label")]
    title = ", ".join(str(name) for name in names if name)
    members = f"{len(record.members)} members, " if record.members else ""
    return RecordDescription(
        title,
        f"{title}{', quick' if record.quick else ''}: {members}{record.device}, {record.when[:10]}",
        {
            "Seeds": ", ".join(dict.fromkeys(str(member.get("seed", member)) for member in record.members)) or "none",
            "Demonstrations": _list_values(record.data),
            "Results": _list_values(record.results),
            "Versions": _list_values(record.versions),
            "Device": record.device,
            "Wall clock": f"{record.seconds:,.1f} s",
            "When": record.when,
        },
        command,
        json.dumps({"settings": settings, "members": record.members}, indent=1, ensure_ascii=False, default=str),
    )


def _key(record: Record) -> str:
    return json.dumps(asdict(record), sort_keys=True, default=str)


def _list_values(values: Any) -> str:
    return "; ".join(f"{name}: {_shorten(value)}" for name, value in values.items()) or "none"


def _shorten(value: Any) -> str:
    if isinstance(value, list | tuple | dict) and len(json.dumps(value, default=str)) > LONGEST_VALUE:
        return f"{len(value)} entries"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
