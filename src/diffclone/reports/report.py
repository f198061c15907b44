"""The report on the paper's experiments: one page, and its tables and figures as files."""

from collections.abc import Callable, Mapping, Sequence

from diffclone.experiments.claims import ClaimsTable
from diffclone.experiments.results import ResultTable
from diffclone.records import Record
from diffclone.reports import claims as claims_text
from diffclone.reports.claim_cards import count_shares, make_cards
from diffclone.reports.curves import draw_curves
from diffclone.reports.dot_plots import draw_dot_plots
from diffclone.reports.figures import PageFigure
from diffclone.reports.losses import draw_losses
from diffclone.reports.maze import draw_field
from diffclone.reports.number_table import list_numbers, make_plots
from diffclone.reports.page import Link, render
from diffclone.reports.provenance import Provenance
from diffclone.reports.spiral import draw_manifold, draw_noise_injection
from diffclone.reports.summary import describe_levels, list_absent, list_contradictions
from diffclone.reports.text_tables import to_latex, to_markdown
from diffclone.reports.videos import Video

FIRST = "main-table"
TITLE = "Reproduction of the paper's experiments"
ABOUT = (
    "The claims of Diffusion Model-Augmented Behavioral Cloning (ICML 2024), tested with diffclone, and every table "
    "and figure of the paper run again, with the printed numbers beside. Success is in percent; intervals are 95 %."
)
NUMBERS = "All numbers"
SOURCES = {
    "ours": "our presets: best where a task has it, else brief",
    "paper": "what the paper prints",
    "release": "those of the released code",
}
CLOSING_SECTIONS = {
    "training-length": "Success along training",
    "rollouts": "Rollouts",
    "not-run": "What was not run",
    "contradictions": "Contradictions within the paper",
    "records": "Where each number comes from",
}
FIGURES: Mapping[str, Callable[[ResultTable], list[PageFigure]]] = {
    "generalization": lambda sheet: draw_curves(sheet, x_label="noise"),
    "coefficient": lambda sheet: draw_curves(sheet, x_label="λ", log_scale=True),
    "dataset-size": lambda sheet: draw_curves(sheet, x_label="percent of the demonstrations"),
    "manifold": draw_manifold,
    "noise-injection": draw_noise_injection,
    "loss-curves": draw_losses,
    "gradient-field": draw_field,
}
"""Experiments with a figure of their own. The others get a dot plot of their table."""
CURVES = tuple(FIGURES[name] for name in ("generalization", "coefficient", "dataset-size"))
"""Figures that show all numbers of their table."""


def draw_figures(sheet: ResultTable) -> list[PageFigure]:
    """Draw the figures of an experiment; none where nothing was run."""
    return FIGURES.get(sheet.name, draw_dot_plots)(sheet)


def build_report(
    sheets: Sequence[ResultTable],
    claims: ClaimsTable | None = None,
    *,
    videos: Sequence[Video] = (),
    lengths: Sequence[PageFigure] = (),
) -> dict[str, bytes]:
    """Return the report's files by path; `lengths` are figures over the length of training.

    The same results give the same bytes.
    """
    figures = {sheet.name: draw_figures(sheet) for sheet in sheets}
    files = {"index.html": report_page(sheets, figures, videos, claims, lengths).encode()}
    if claims is not None:
        files["tables/claims.md"] = claims_text.claims_markdown(claims).encode()
        files["tables/claims.tex"] = claims_text.claims_latex(claims).encode()
    for sheet in sheets:
        if sheet.cells:
            files[f"tables/{sheet.name}.md"] = to_markdown(sheet).encode()
            files[f"tables/{sheet.name}.tex"] = to_latex(sheet).encode()
    for figure in (*(figure for sheet in sheets for figure in figures[sheet.name]), *lengths):
        files[f"figures/{figure.name}.svg"] = figure.svg_file()
        files[f"figures/{figure.name}.pdf"] = figure.pdf_file()
    return files


def report_page(
    sheets: Sequence[ResultTable],
    figures: Mapping[str, Sequence[PageFigure]],
    videos: Sequence[Video] = (),
    claims: ClaimsTable | None = None,
    lengths: Sequence[PageFigure] = (),
) -> str:
    """Render the page: the claims first, then the main table, then the other experiments in their order."""
    sheets = sorted(sheets, key=lambda sheet: sheet.name != FIRST)
    quick = [sheet.title for sheet in sheets if sheet.quick]
    contents = [Link("claims", "Claims")] if claims is not None else []
    contents += [Link("numbers", NUMBERS), *(Link(sheet.name, sheet.title) for sheet in sheets)]
    contents += [Link(name, title) for name, title in CLOSING_SECTIONS.items() if videos or name != "rollouts"]
    return render(
        "report.html",
        title=TITLE,
        kicker="report",
        contents=contents,
        about=ABOUT,
        quick="all experiments" if quick and len(quick) == len(sheets) else ", ".join(quick),
        levels=describe_levels(sheets),
        claims=claims,
        cards=[] if claims is None else make_cards(claims),
        shares=() if claims is None else count_shares(claims.rows),
        counted="" if claims is None else claims_text.count_claims(claims),
        list_notes=claims_text.list_notes,
        sheets=sheets,
        figures=figures,
        plots={sheet.name: make_plots(sheet) for sheet in sheets if FIGURES.get(sheet.name) not in CURVES},
        drawn=set(FIGURES),
        numbers=list_numbers(sheets),
        numbers_title=NUMBERS,
        videos=videos,
        lengths=lengths,
        sources=SOURCES,
        closing=CLOSING_SECTIONS,
        not_run=[(sheet, reason, places) for sheet in sheets for reason, places in list_absent(sheet).items()],
        contradictions=list_contradictions(sheets),
        provenance=Provenance(sheets, () if claims is None else claims.rows),
        unique_measured=unique_measured,
    )


def unique_measured(sheet: ResultTable) -> list[tuple[Record, str]]:
    """Return the Records measured beside the table, each with a label; equal entries once."""
    found: list[tuple[Record, str]] = []
    for records in sheet.measured.values():
        for record in records:
            entry = (record, f"{record.kind} {record.results.get('label', '')}, {sheet.title}")
            if entry not in found:
                found.append(entry)
    return found
