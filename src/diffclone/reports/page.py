"""Render pages that need no network and no script. All HTML is in templates/."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, final

from jinja2 import Environment, PackageLoader, StrictUndefined

from diffclone.reports.figures import PageFigure
from diffclone.reports.theme import DARK, LIGHT
from diffclone.reports.videos import Video


@final
@dataclass(frozen=True)
class Table:
    """Rows of text under column headings."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


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


@cache
def environment() -> Environment:
    """Return the template environment. Everything inserted into a template is escaped."""
    loader = PackageLoader("diffclone.reports", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def render(template: str, **values: Any) -> str:
    """Render one template as a whole document."""
    return environment().get_template(template).render(light=LIGHT, dark=DARK, **values) + "\n"


def simple_page(title: str, content: Sequence[Table | PageFigure | Paragraph | Details | Video]) -> str:
    """Render a page that shows its parts from top to bottom."""
    return render("page.html", title=title, content=content)
