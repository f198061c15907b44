"""Render pages that need no network and can be read without script. HTML, CSS and JavaScript are in templates/."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, ClassVar, final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from diffclone.reports.figures import PageFigure
from diffclone.reports.intervals import IntervalPlot
from diffclone.reports.numbers import MISSING
from diffclone.reports.theme import DARK, LIGHT
from diffclone.reports.videos import Video

NUMBER = re.compile(r"[<≤≥ ]*[+−-]?[\d,]*\.?\d+(e[+-]?\d+)?( %)?")


@final
@dataclass(frozen=True)
class Table:
    """Rows of text under column headings."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: int | None = None
    """A row to point out."""
    filters: Sequence[int] = ()
    """Columns by whose values the reader can select rows."""

    @cached_property
    def numeric(self) -> frozenset[int]:
        """Columns of numbers, which are aligned on the right."""
        columns = range(1, len(self.columns))
        cells = {k: [row[k] for row in self.rows if k < len(row) and row[k] not in ("", MISSING)] for k in columns}
        return frozenset(k for k, found in cells.items() if found and all(map(NUMBER.fullmatch, found)))


@final
@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@final
@dataclass(frozen=True)
class Details:
    """Preformatted text that opens on a click."""

    kind: ClassVar[str] = "details"
    title: str
    text: str


@final
@dataclass(frozen=True)
class Note:
    """Something to know, with its severity (problem, warning, note) and what to do about it."""

    kind: ClassVar[str] = "note"
    severity: str
    what: str
    where: str = ""
    advice: str = ""


@final
@dataclass(frozen=True)
class Player:
    """Episodes to step through with a slider. `player.js` draws them."""

    kind: ClassVar[str] = "player"
    data: Any
    """Names, numbers and places on the map, for JSON."""


@final
@dataclass(frozen=True)
class Videos:
    """Videos beside each other."""

    kind: ClassVar[str] = "videos"
    videos: Sequence[Video]


Part = Table | PageFigure | Paragraph | Details | Note | Player | Videos | IntervalPlot


@final
@dataclass(frozen=True)
class Section:
    """Parts under a heading."""

    name: str
    """Its address on the page."""
    title: str
    parts: Sequence[Part]


@final
@dataclass(frozen=True)
class Link:
    """An entry of the table of contents."""

    name: str
    title: str


@final
@dataclass(frozen=True)
class Page:
    """A page: what was found first, then sections."""

    title: str
    kicker: str
    """The kind of page."""
    lead: Sequence[str]
    """What was found, in a few sentences."""
    facts: Sequence[tuple[str, str]]
    """The most important numbers, each with what it is."""
    sections: Sequence[Section]
    command: str
    """The command that writes such a page."""


@cache
def environment() -> Environment:
    """Return the template environment. Everything inserted into a template is escaped."""
    loader = PackageLoader("diffclone.reports", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@cache
def read_script(name: str) -> Markup:
    """Return the text of a script."""
    return Markup(files("diffclone.reports").joinpath("templates", name).read_text(encoding="utf-8"))


def security_policy(scripts: Sequence[str]) -> str:
    """Return the policy of a page: it requests nothing, and runs these scripts only."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; script-src {allowed}"


def render(template: str, *, scripts: Sequence[str] = ("page.js",), **values: Any) -> str:
    """Render one template as a whole document with scripts of templates/."""
    texts = [read_script(name) for name in scripts]
    policy = security_policy(texts)
    values |= {"light": LIGHT, "dark": DARK, "scripts": texts, "policy": policy}
    return environment().get_template(template).render(**values) + "\n"


def render_page(page: Page) -> str:
    """Render a page that shows its sections from top to bottom."""
    contents = [Link(section.name, section.title) for section in page.sections]
    moves = any(isinstance(part, Player) for section in page.sections for part in section.parts)
    scripts = ("page.js", "player.js") if moves else ("page.js",)
    return render("page.html", scripts=scripts, title=page.title, kicker=page.kicker, contents=contents, page=page)
