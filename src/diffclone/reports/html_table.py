"""An experiment's table on the page: in the printed arrangement, ours above the paper's in every cell."""

from diffclone.experiments.sheet import Compared, Sheet
from diffclone.reports.provenance import Provenance
from diffclone.reports.words import (
    NONE,
    cell_at,
    column_cells,
    count,
    interval,
    number,
    place,
    printed,
    text,
    unit_name,
    unit_of,
    verdict,
)


def html_table(sheet: Sheet, provenance: Provenance) -> str:
    """Within a region of its own that scrolls, so that the page does not."""
    heads = "".join(f'<th scope="col">{text(column)}{unit_line(sheet, column)}</th>' for column in sheet.columns)
    rows = "".join(
        f'<tr><th scope="row">{text(row)}</th>'
        + "".join(f"<td>{cell_html(sheet, cell_at(sheet, row, column), provenance)}</td>" for column in sheet.columns)
        + "</tr>"
        for row in sheet.rows
    )
    caption = f"{sheet.title}: mean, 95 % interval, seeds × episodes. "
    caption += "Shortened runs, which say nothing about the methods." if sheet.quick else paper_line(sheet)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Table: {text(sheet.title)}"><table>'
        f"<caption><span>{text(caption)}</span></caption><thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def paper_line(sheet: Sheet) -> str:
    """What the paper's numbers are."""
    seeds = {cell.printed.seeds for cell in sheet.cells if cell.printed is not None} - {None}
    over = f" over {seeds.pop()} seeds" if len(seeds) == 1 else ""
    return f"The paper's: mean ± standard deviation{over}, where it is printed."


def unit_line(sheet: Sheet, column: str) -> str:
    """The unit, where a whole column has one."""
    unit = unit_of(column_cells(sheet, column))
    return "" if unit is None or unit_name(unit) == column else f"<br><small>{text(unit_name(unit))}</small>"


def cell_html(sheet: Sheet, cell: Compared | None, provenance: Provenance) -> str:
    """Ours, what it rests on, the paper's, the verdict, and the way to the Record."""
    if cell is None:
        return NONE
    mixed = unit_of(column_cells(sheet, cell.column)) is None
    unit = f" <small>{text(unit_name(cell.unit))}</small>" if mixed else ""
    lines: list[str] = []
    if cell.ours is None:
        lines.append(f'<span class="mean">{NONE}</span>')
    else:
        lines.append(f'<span class="mean">{number(cell.ours.mean, cell.unit)}{unit}</span>')
        below = (interval(cell.ours, cell.unit), count(cell.ours))
        lines += [f'<span class="soft">{line}</span>' for line in below if line]
    if sheet.quick and cell.ours is not None:
        lines.append('<span class="verdict">quick, not compared</span>')
    else:
        if cell.printed is not None and not sheet.quick:
            lines.append(f'<span class="soft">paper {printed(cell.printed, cell.unit)}</span>')
        style = cell.verdict.replace(" ", "-")
        lines.append(f'<span class="verdict {style}">{text(verdict(cell))}</span>')
    if cell.reason is not None and not (sheet.quick and cell.ours is not None):
        lines.append(f'<span class="soft">{text(cell.reason)}</span>')
    if cell.printed is not None and cell.printed.note is not None and not sheet.quick:
        lines.append(f'<span class="soft">The paper: {text(cell.printed.note)}</span>')
    if cell.ours is not None:
        lines.append(f"<span>{provenance.link(cell.ours.record, place(cell))}</span>")
    return "".join(lines)
