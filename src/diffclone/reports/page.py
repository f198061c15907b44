"""A page that holds everything it shows: no script, no network."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

STYLE = """
:root { color-scheme: light dark; --ink: #111827; --paper: #ffffff; --line: #d1d5db; --soft: #6b7280; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --paper: #111827; --line: #374151; --soft: #9ca3af; }
}
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
caption, .note { color: var(--soft); text-align: left; font-size: .9rem; }
figure { margin: 1.5rem 0; padding: .5rem; background: #ffffff; border: 1px solid var(--line); border-radius: 6px;
         overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #4b5563; font-size: .9rem; }
pre { overflow-x: auto; font-size: .85rem; }
"""


@final
@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def to_html(self) -> str:
        """With its caption."""
        head = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in self.rows)
        return (
            f"<table><caption>{html.escape(self.caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


@final
@dataclass(frozen=True)
class Picture:
    """An SVG with a caption, which is also what a screen reader says."""

    svg: str
    caption: str

    def to_html(self) -> str:
        """As a figure."""
        caption = html.escape(self.caption)
        return f'<figure role="img" aria-label="{caption}">{self.svg}<figcaption>{caption}</figcaption></figure>'


@final
@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def to_html(self) -> str:
        """Escaped."""
        return f'<p class="note">{html.escape(self.text)}</p>'


@final
@dataclass(frozen=True)
class Source:
    """Where the numbers come from, folded away."""

    title: str
    text: str

    def to_html(self) -> str:
        """Behind a line to open."""
        return f"<details><summary>{html.escape(self.title)}</summary><pre>{html.escape(self.text)}</pre></details>"


def page(title: str, parts: Sequence[Table | Picture | Text | Source]) -> str:
    """The whole document."""
    body = "\n".join(part.to_html() for part in parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><main><h1>{html.escape(title)}</h1>\n{body}\n</main></body>\n</html>\n"
    )
