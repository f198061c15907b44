"""Names for things: what the command line and saved files call a method, guide, task or preset."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from diffclone.errors import UnknownName

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A read-only mapping whose missing keys are explained."""

    def __init__(self, kind: str, entries: Mapping[str, T]):
        self.kind = kind
        """What an entry is called in messages: "task", "method", …"""
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            nearest = difflib.get_close_matches(name, self._entries, n=1, cutoff=0.5)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
            raise UnknownName(f"unknown {self.kind} {name!r}{hint} Known: {', '.join(sorted(self._entries))}.")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def name_of(self, entry: object) -> str:
        """The name under which `entry` (or its class) is registered."""
        for name, known in self._entries.items():
            if known is entry:
                return name
        raise UnknownName(f"{entry!r} is not a registered {self.kind}.")
