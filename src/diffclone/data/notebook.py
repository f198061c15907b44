"""Tables that a notebook shows of an object in the last line of a cell.

A table has no colours of its own, so it can be read on a light and on a dark page, and loads nothing.
"""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffclone.data.streamed import AnyDemonstrations

LEFT = ' style="text-align: left"'


def html_table(title: str, rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return a table as HTML; only its title if there are no rows. All texts are escaped.

    Args:
        title: the line above the table.
        rows: the cells. In a table without a header the first cell of each row is its name.
        header: the names of the columns.
    """
    head = "".join(f"<th{LEFT}>{html.escape(name)}</th>" for name in header)
    lines = [f"<thead><tr>{head}</tr></thead>"] if header else []
    for row in rows:
        cells = [f"<td{LEFT}>{html.escape(cell)}</td>" for cell in row]
        if not header:
            cells[0] = f"<th{LEFT}>{html.escape(row[0])}</th>"
        lines.append(f"<tr>{''.join(cells)}</tr>")
    # Pages without a document type give tables the colour black, whatever the page has.
    table = f'<table style="color: inherit">{"".join(lines)}</table>' if rows else ""
    return f"<div><p>{html.escape(title)}</p>{table}</div>"


def demonstrations_table(demos: "AnyDemonstrations", *last: tuple[str, str]) -> str:
    """Return the table of demonstrations in memory or in files; `last` are rows at its end."""
    shortest, longest = int(demos.lengths.min()), int(demos.lengths.max())
    lengths = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    rows = [
        ("episodes", f"{demos.num_episodes:,}"),
        ("steps", f"{demos.num_steps:,} ({lengths} per episode)"),
        ("observation", str(demos.layout or f"{demos.obs_size:,} {'bytes' if demos.obs.dtype == 'u1' else 'numbers'}")),
        ("action", f"{demos.act.shape[1]:,} numbers"),
    ]
    if (bounds := demos.action_bounds) is not None:
        low, high = (list_numbers(bound.tolist()) for bound in bounds)
        rows.append(("action bounds", f"{low} … {high}" if demos.act.shape[1] == 1 else f"({low}) … ({high})"))
    named = [(name, shorten(str(demos.meta[name]))) for name in ("task", "source") if demos.meta.get(name)]
    return html_table(type(demos).__name__, [*rows, *named, *last])


def list_numbers(values: Sequence[float], most: int = 6) -> str:
    """Return numbers as text; of many, the first and the last ones."""
    shown = [f"{value:g}" for value in values]
    return ", ".join(shown if len(shown) <= most else [*shown[: most // 2], "…", *shown[-(most // 3) :]])


def shorten(text: str, most: int = 60) -> str:
    """Return text of at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
