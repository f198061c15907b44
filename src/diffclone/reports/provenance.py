"""Where numbers come from: the Records of a report, numbered, each with a place to link to."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, final

from diffclone.experiments.sheet import Sheet
from diffclone.records import Record
from diffclone.reports.words import text

LONGEST = 12
"""Items of a result that is shown whole; longer ones are drawn, or told by their length."""


def records_of(sheet: Sheet) -> Iterator[Record]:
    """Of its cells, then of what was measured."""
    for cell in sheet.cells:
        if cell.ours is not None:
            yield cell.ours.record
    for records in sheet.measured.values():
        yield from records


@final
class Provenance:
    """Numbers the Records of some sheets in the order in which they are met; equal ones are one."""

    def __init__(self, sheets: Iterable[Sheet]):
        self._numbers: dict[str, int] = {}
        self.records: list[Record] = []
        for sheet in sheets:
            for record in records_of(sheet):
                key = identity(record)
                if key not in self._numbers:
                    self.records.append(record)
                    self._numbers[key] = len(self.records)

    def link(self, record: Record, of: str) -> str:
        """To its place in the list; `of` says whose it is to those who hear links one by one."""
        number = self._numbers[identity(record)]
        return f'<a href="#record-{number}" aria-label="Record {number}, of {text(of)}">Record {number}</a>'

    def to_html(self) -> str:
        """The list."""
        items = (f'<li id="record-{k}">{record_html(record)}</li>' for k, record in enumerate(self.records, 1))
        return f'<ol class="records">{"".join(items)}</ol>'


def identity(record: Record) -> str:
    """Equal Records have equal ones."""
    return json.dumps(asdict(record), sort_keys=True, default=str)


def record_html(record: Record) -> str:
    """A line that says which it is, and everything behind it."""
    settings: Any = record.settings
    names = [record.kind, record.results.get("task"), settings.get("type"), record.results.get("label")]
    title = ", ".join(str(name) for name in names if name)
    quick = ", quick" if record.quick else ""
    facts = {
        "Seeds": ", ".join(dict.fromkeys(str(member.get("seed", member)) for member in record.members)) or "none",
        "Demonstrations": as_words(record.data),
        "Results": as_words(record.results),
        "Versions": as_words(record.versions),
        "Device": record.device,
        "Wall clock": f"{record.seconds:,.1f} s",
        "When": record.when,
    }
    told = "".join(f"<dt>{name}</dt><dd>{text(fact)}</dd>" for name, fact in facts.items())
    whole = text(
        json.dumps({"settings": settings, "members": record.members}, indent=1, ensure_ascii=False, default=str)
    )
    members = f"{len(record.members)} members, " if record.members else ""
    return (
        f"<details><summary>{text(title)}{quick}: {members}{text(record.device)}, {text(record.when[:10])}</summary>"
        f'<dl>{told}</dl><pre tabindex="0" role="region" aria-label="Settings of {text(title)}">{whole}</pre></details>'
    )


def as_words(values: Any) -> str:
    """Name by name; what is long, by its length."""
    return "; ".join(f"{name}: {brief(value)}" for name, value in values.items()) or "none"


def brief(value: Any) -> str:
    """A number or a short list as it is."""
    if isinstance(value, list | tuple | dict) and len(json.dumps(value, default=str)) > LONGEST * 10:
        return f"{len(value)} entries"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
