"""An experiment's table as Markdown (a line a cell) and as LaTeX (as printed; needs the package booktabs)."""

import re

from diffclone.experiments.sheet import Compared, Sheet
from diffclone.reports.words import (
    NONE,
    cell_at,
    column_cells,
    count,
    ours,
    printed,
    unit_name,
    unit_of,
    verdict,
)

QUICK = "Quick runs: they show that everything works, and are not compared with the paper."
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
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "✗": r"$\times$",
    "ε": r"$\varepsilon$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "π": r"$\pi$",
    "ρ": r"$\rho$",
}


def markdown(sheet: Sheet) -> str:
    """A line a cell, and what the paper says against itself."""
    heads = ["", "", "unit", "ours (95 %)", "seeds × episodes"] + ["the paper", "verdict"] * (not sheet.quick)
    lines = [*([QUICK, ""] if sheet.quick else []), row_of(heads), "|" + "---|" * len(heads)]
    for cell in sheet.cells:
        mean = judged(cell) if sheet.quick and cell.ours is None else ours(cell.ours, cell.unit)
        rest = [] if sheet.quick else [printed(cell.printed, cell.unit), judged(cell)]
        seeds = NONE if cell.ours is None else count(cell.ours)
        lines.append(row_of([cell.row, cell.column, unit_name(cell.unit), mean, seeds, *rest]))
    return "\n".join(lines) + "\n"


def judged(cell: Compared) -> str:
    """With the reason, where there is one."""
    return verdict(cell) + ("" if cell.reason is None else f": {cell.reason}")


def row_of(parts: list[str]) -> str:
    """A line of a table in Markdown. What it is given cannot end a cell or begin a tag."""
    return "| " + " | ".join(markdown_text(part) for part in parts) + " |"


def markdown_text(text: str) -> str:
    """With what Markdown would read as its own marks escaped."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def latex(sheet: Sheet) -> str:
    """Three lines a row: ours, the paper's, the verdict."""
    heads = [latex_text(column + unit_in_brackets(sheet, column)) for column in sheet.columns]
    lines = [r"\begin{tabular}{ll" + "l" * len(heads) + "}", r"\toprule", f" & & {' & '.join(heads)} \\\\", r"\midrule"]
    if sheet.quick:
        lines.insert(0, f"% {QUICK}")
    for place, row in enumerate(sheet.rows):
        cells = [cell_at(sheet, row, column) for column in sheet.columns]
        lines += [r"\addlinespace"] if place else []
        means = (NONE if cell is None else ours(cell.ours, cell.unit) for cell in cells)
        lines.append(f"{latex_text(row)} & ours & {' & '.join(map(latex_text, means))} \\\\")
        lines.append(f" & & {' & '.join(latex_text(counted(cell)) for cell in cells)} \\\\")
        if not sheet.quick:
            paper = (NONE if cell is None else printed(cell.printed, cell.unit) for cell in cells)
            lines.append(f" & paper & {' & '.join(map(latex_text, paper))} \\\\")
            words = (NONE if cell is None else verdict(cell) for cell in cells)
            lines.append(f" & & {' & '.join(map(latex_text, words))} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def unit_in_brackets(sheet: Sheet, column: str) -> str:
    """Where a whole column has one."""
    unit = unit_of(column_cells(sheet, column))
    return "" if unit is None else f" ({unit_name(unit)})"


def counted(cell: Compared | None) -> str:
    """What the mean rests on."""
    return "" if cell is None or cell.ours is None else count(cell.ours)


def latex_text(text: str) -> str:
    """With every mark of LaTeX's own escaped."""
    return "".join(LATEX.get(mark, mark) for mark in " ".join(text.split()))
