"""Registries: the names that the command line and saved files use for methods, guides, tasks, formats and experiments.

Another package adds an entry in one of two ways:

    @METHODS.register("mine")                   in a module that the program imports
    class Mine(Method[Net]): ...

    [project.entry-points."diffclone.methods"]  in its pyproject.toml; loaded when the name is looked up or listed
    mine = "my_package:Mine"
"""

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, TypeVar

from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidPlugin, NameTaken, UnknownName

T = TypeVar("T")
E = TypeVar("E")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to entries, which explains a name that it does not have."""

    of_classes: ClassVar[list["Registry[Any]"]] = []
    """The registries whose entries are classes. `settings` finds the names of methods and guides in them."""

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, T],
        *,
        group: str | None = None,
        subclass_of: type | None = None,
        instance_of: type | None = None,
    ):
        self.kind = kind
        """What messages call an entry: "task", "method", …"""
        self.group = group
        """The group of entry points through which other packages add entries."""
        self.subclass_of = subclass_of
        """The base class of all entries, if they are classes."""
        self.instance_of = instance_of
        """The class of all entries, if they are objects of one class."""
        self._entries = dict(entries)
        self._listed: set[str] = set()
        if subclass_of is not None:
            self.of_classes.append(self)

    def register(self, name: str) -> Callable[[E], E]:
        """Return a decorator that adds a class under `name`. To add an object: `TASKS.register(name)(task)`."""

        def add(entry: E) -> E:
            self._add(name, entry)
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries and name in self._plugins:
            self._load(name)
        if name not in self._entries:
            raise UnknownName(describe_unknown(self.kind, name, sorted(self)))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load_all()
        return len(self._entries)

    def name_of(self, entry: object) -> str:
        """Return the name under which `entry` is registered."""
        for names in (self._entries, self):  # other packages are loaded only if they are needed
            for name in names:
                if self._entries[name] is entry:
                    return name
        raise UnknownName(f"{entry!r} is not a registered {self.kind}.")

    @cached_property
    def _plugins(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group) if self.group else ():
            found.setdefault(point.name, []).append(point)
        return found

    def _add(self, name: str, entry: Any) -> None:
        if wanted := self._check(entry):
            raise InvalidPlugin(f"the {self.kind} {name!r} must be {wanted}; it is {entry!r}.")
        if ":" in name or not name:
            raise InvalidPlugin(f"a {self.kind} cannot have the name {name!r}: choose a name without a colon.")
        known = self._entries.get(name)
        if known is not None and known is not entry and not _is_redefinition(known, entry):
            raise NameTaken(f"the {self.kind} {name!r} exists already: {known!r}. Choose another name for {entry!r}.")
        self._entries[name] = entry

    def _check(self, entry: object) -> str:
        """Return what `entry` should be; nothing if it is that."""
        base, cls = self.subclass_of, self.instance_of
        if base is not None and not (isinstance(entry, type) and issubclass(entry, base)):
            return f"a subclass of {base.__name__}"
        return f"of the type {cls.__name__}" if cls is not None and not isinstance(entry, cls) else ""

    def _load(self, name: str) -> None:
        """Load the entry point `name` of another package."""
        points = self._plugins[name]
        packages = " and ".join(sorted({_package(point) for point in points}))
        if len(points) > 1:
            raise InvalidPlugin(f"{packages} both add the {self.kind} {name!r}. Uninstall one of them.")
        try:
            self._add(name, points[0].load())
        except Exception as error:  # another package may raise anything
            reason = str(error).strip().split("\n")[0]
            kind = "" if isinstance(error, DiffcloneError) else f"{type(error).__name__}: "
            raise InvalidPlugin(
                f"the {self.kind} {name!r} of the package {packages} cannot be loaded ({kind}{reason}). "
                f"Update or uninstall {packages}."
            ) from error

    def _load_all(self) -> None:
        """Load all entry points. One that cannot be loaded is left out, with a warning."""
        for name in [name for name in self._plugins if name not in self._listed]:
            self._listed.add(name)
            try:
                self._load(name)
            except DiffcloneError as error:
                warnings.warn(str(error), DiffcloneWarning, stacklevel=3)


def describe_unknown(kind: str, name: str, known: Sequence[str], of: str = "") -> str:
    """Return the message about a name that is not known, with the nearest one; `of` says where it was looked up."""
    by_lower = {entry.lower(): entry for entry in known}
    nearest = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)]
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"unknown {kind} {name!r}{of}{hint} Known: {', '.join(known)}."


def _package(point: EntryPoint) -> str:
    return point.value.partition(":")[0].partition(".")[0] if point.dist is None else point.dist.name


def _is_redefinition(a: Any, b: Any) -> bool:
    """Return whether two classes have one definition: a notebook's cell that runs again defines its class again."""
    return (
        isinstance(a, type) and isinstance(b, type) and (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)
    )
