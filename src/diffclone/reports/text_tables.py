"""An experiment's table as Markdown (one line per cell) and as LaTeX (arranged as in the paper; needs booktabs)."""

import re

from diffclone.experiments.results import ComparedCell, ResultTable
from diffclone.reports.numbers import (
    MISSING,
    cell_at,
    column_cells,
    common_unit,
    format_count,
    format_estimate,
    format_printed,
    format_status,
    unit_label,
)

QUICK = "Quick runs: they show that everything works and are not compared with the paper."
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "…": r"\ldots{}",
    "−": "$-$",
    "–": "--",
    "✓": r"$\checkmark$",
    "✗": r"$\times$",
    "ε": r"$\varepsilon$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "π": r"$\pi$",
    "ρ": r"$\rho$",
}


def to_markdown(sheet: ResultTable) -> str:
    """Return a Markdown table with one line per cell."""
    heads = ["", "", "unit", "ours (95 %)", "seeds × episodes"] + ["the paper", "levels"] * (not sheet.quick)
    lines = [*([QUICK, ""] if sheet.quick else []), markdown_row(heads), "|" + "---|" * len(heads)]
    for cell in sheet.cells:
        absent = sheet.quick and cell.ours is None
        mean = _status_with_reason(cell) if absent else format_estimate(cell.ours, cell.unit)
        rest = [] if sheet.quick else [format_printed(cell.printed, cell.unit), _status_with_reason(cell)]
        seeds = MISSING if cell.ours is None else format_count(cell.ours)
        lines.append(markdown_row([cell.row, cell.column, unit_label(cell.unit), mean, seeds, *rest]))
    return "\n".join(lines) + "\n"


def markdown_row(parts: list[str]) -> str:
    """Return one row of a Markdown table, escaped so that no text can end a cell or start a tag."""
    return "| " + " | ".join(escape_markdown(part) for part in parts) + " |"


def escape_markdown(text: str) -> str:
    """Escape the characters that have a meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def to_latex(sheet: ResultTable) -> str:
    """Return a LaTeX table: per row ours, seeds × episodes, the paper's number and whether they can be compared."""
    heads = [escape_latex(column + _unit_in_brackets(sheet, column)) for column in sheet.columns]
    lines = [r"\begin{tabular}{ll" + "l" * len(heads) + "}", r"\toprule", f" & & {' & '.join(heads)} \\\\", r"\midrule"]
    if sheet.quick:
        lines.insert(0, f"% {QUICK}")
    for k, row in enumerate(sheet.rows):
        cells = [cell_at(sheet, row, column) for column in sheet.columns]
        lines += [r"\addlinespace"] if k else []
        means = (MISSING if cell is None else format_estimate(cell.ours, cell.unit) for cell in cells)
        lines.append(f"{escape_latex(row)} & ours & {' & '.join(map(escape_latex, means))} \\\\")
        counts = ("" if cell is None or cell.ours is None else format_count(cell.ours) for cell in cells)
        lines.append(f" & & {' & '.join(map(escape_latex, counts))} \\\\")
        if not sheet.quick:
            paper = (MISSING if cell is None else format_printed(cell.printed, cell.unit) for cell in cells)
            lines.append(f" & paper & {' & '.join(map(escape_latex, paper))} \\\\")
            statuses = (MISSING if cell is None else format_status(cell) for cell in cells)
            lines.append(f" & & {' & '.join(map(escape_latex, statuses))} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_latex(text: str) -> str:
    """Escape the characters that have a meaning in LaTeX."""
    return "".join(LATEX.get(mark, mark) for mark in " ".join(text.split()))


def _status_with_reason(cell: ComparedCell) -> str:
    return format_status(cell) + ("" if cell.reason is None else f": {cell.reason}")


def _unit_in_brackets(sheet: ResultTable, column: str) -> str:
    unit = common_unit(column_cells(sheet, column))
    return "" if unit is None else f" ({unit_label(unit)})"
