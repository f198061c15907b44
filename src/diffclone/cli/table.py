"""Arrange a table in a number of columns of text.

Cells are broken between words; inside one only if it fills half of the page. If a table is still too wide, first cells
that are long get a line of their own; if that is not enough, every cell does.
"""

import textwrap
from collections.abc import Sequence

GAP = 2
"""Spaces between two columns, and before a line that belongs to the one above it."""
FIRST = 8
"""Columns of text that the first column has at least."""


def format_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, notes: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the lines of the head and of the body.

    Columns without names have no head. `notes` has a line of text for each row, which is printed below it.
    """
    widths = fit_columns(columns, rows, width)
    if widths is None:
        rest = fit_columns(columns[1:], [row[1:] for row in rows], width - FIRST - GAP)
        if rest is None:
            return [], [line for row in rows for line in stack_cells(columns, row, width)]
        longest = max(len(row[0]) for row in rows)
        widths = [min(longest, width - sum(rest) - GAP * len(rest)), *rest]
    head, *body = arranged = [arrange_row(row, widths, width) for row in (columns, *rows)]
    rule = max((len(line) for lines in arranged for line in lines), default=0) * "─"
    for lines, note in zip(body, notes, strict=False):
        lines += wrap(note, width, GAP)
    return ([*head, rule] if any(columns) else []), [line for lines in body for line in lines]


def fit_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the widths of columns that fit without breaking words of usual length; None if there are none."""
    cells = [[row[k] for row in (columns, *rows)] for k in range(len(columns))]
    natural = [max(map(len, column)) for column in cells]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    least = [*words[:1], *(min(longest, width // 2) for longest in words[1:])]  # a longer word, a path, is broken
    room = width - GAP * (len(columns) - 1)
    if natural and natural[0] <= width // 3 and natural[0] + sum(least[1:]) <= room:
        least[0] = natural[0]  # names stay in one line
    if sum(least) > room:
        return None
    widths = [*least]
    while sum(widths) < room and widths != natural:  # the narrowest column that is broken gets the next place
        _, k = min((wide, k) for k, wide in enumerate(widths) if wide < natural[k])
        widths[k] += 1
    return widths


def arrange_row(row: Sequence[str], widths: Sequence[int], width: int) -> list[str]:
    """Return the lines of a row. If a word of its first cell does not fit its column, the cell is above the others."""
    lines: list[str] = []
    if max(map(len, row[0].split()), default=0) > widths[0]:
        lines, row = wrap(row[0], width), ["", *row[1:]]
    cells = [textwrap.wrap(cell, size, break_on_hyphens=False) for cell, size in zip(row, widths, strict=True)]
    for k in range(max(map(len, cells), default=0)):
        parts = [(cell[k] if k < len(cell) else "").ljust(size) for cell, size in zip(cells, widths, strict=True)]
        lines.append((GAP * " ").join(parts).rstrip())
    return lines or [""]


def stack_cells(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """Return a line per cell, with the name of its column."""
    lines = wrap(row[0], width)
    for name, cell in zip(columns[1:], row[1:], strict=True):
        lines += wrap(f"{name}: {cell}" if name else cell, width, GAP)
    return lines


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the lines of a text."""
    space = indent * " "
    return textwrap.wrap(text, width, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)
