"""Number the Records behind a report and describe each of them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, final

from diffclone.experiments.claims import ClaimRow
from diffclone.experiments.results import ResultTable
from diffclone.records import Record

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
        for record in chain(*(row.records for row in claims), *(records_of(sheet) for sheet in sheets)):
            key = _key(record)
            if key not in self._numbers:
                self.records.append(record)
                self._numbers[key] = len(self.records)

    def number(self, record: Record) -> int:
        """Return the number of a Record, starting at 1."""
        return self._numbers[_key(record)]


@final
@dataclass(frozen=True)
class RecordDescription:
    """A Record as the page shows it."""

    title: str
    summary: str
    facts: dict[str, str]
    settings: str
    """Settings and members as JSON."""


def describe_record(record: Record) -> RecordDescription:
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
