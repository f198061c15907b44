"""The report: one page that holds everything it shows, and its tables and figures as files."""

from collections.abc import Callable, Mapping, Sequence

from diffclone.experiments.sheet import Sheet
from diffclone.reports.curves import draw_curves
from diffclone.reports.dots import draw_dots
from diffclone.reports.drawing import Drawing
from diffclone.reports.films import Film, films_html
from diffclone.reports.findings import absent, contradictions, rule_of, tally_in_words
from diffclone.reports.html_table import html_table
from diffclone.reports.losses import draw_losses
from diffclone.reports.maze import draw_field
from diffclone.reports.provenance import Provenance
from diffclone.reports.spiral import draw_manifold, draw_noise
from diffclone.reports.text_tables import latex, markdown
from diffclone.reports.theme import css
from diffclone.reports.words import text

FIRST = "main-table"
TITLE = "diffclone: the paper's experiments, run again"
ABOUT = (
    "Every table and figure of Diffusion Model-Augmented Behavioral Cloning (ICML 2024), run with diffclone beside the "
    "printed numbers. Success is in percent; intervals are 95 %."
)
SOURCES = {
    "ours": "our presets, best where a task has it, else brief",
    "paper": "what the paper prints",
    "release": "the released code's",
}

FIGURES: Mapping[str, Callable[[Sheet], list[Drawing]]] = {
    "generalization": lambda sheet: draw_curves(sheet, along="noise"),
    "coefficient": lambda sheet: draw_curves(sheet, along="λ", spread=True),
    "dataset-size": lambda sheet: draw_curves(sheet, along="percent of the demonstrations"),
    "manifold": draw_manifold,
    "noise-injection": draw_noise,
    "loss-curves": draw_losses,
    "gradient-field": draw_field,
}
"""Experiments whose figure is not their table's."""


def figures(sheet: Sheet) -> list[Drawing]:
    """In the paper's arrangement; none where nothing was run."""
    return FIGURES.get(sheet.name, draw_dots)(sheet)


def report(sheets: Sequence[Sheet], *, films: Sequence[Film] = ()) -> dict[str, bytes]:
    """Files by their paths. The same sheets give the same bytes."""
    drawings = {sheet.name: figures(sheet) for sheet in sheets}
    files = {"index.html": page(sheets, drawings, films).encode()}
    for sheet in sheets:
        if sheet.cells:
            files[f"tables/{sheet.name}.md"] = markdown(sheet).encode()
            files[f"tables/{sheet.name}.tex"] = latex(sheet).encode()
        for drawing in drawings[sheet.name]:
            files[f"figures/{drawing.name}.svg"] = drawing.svg_file()
            files[f"figures/{drawing.name}.pdf"] = drawing.pdf_file()
    return files


def page(sheets: Sequence[Sheet], drawings: Mapping[str, Sequence[Drawing]], films: Sequence[Film]) -> str:
    """The whole document: the main table, then the others in their order."""
    sheets = sorted(sheets, key=lambda sheet: sheet.name != FIRST)
    provenance = Provenance(sheets)
    rollouts = films_html(films) if films else "<p>No rollouts were given to this report.</p>"
    parts = {sheet.name: (sheet.title, sheet_html(sheet, drawings[sheet.name], provenance)) for sheet in sheets}
    parts["rollouts"] = ("Rollouts", rollouts)
    parts["not-run"] = ("What was not run", absent_html(sheets))
    parts["contradictions"] = ("What the paper says against itself", contradictions_html(sheets))
    parts["records"] = ("Where each number comes from", records_html(provenance))
    links = "".join(f'<li><a href="#{name}">{text(title)}</a></li>' for name, (title, _) in parts.items())
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{text(title)}</h2>\n{inner}\n</section>'
        for name, (title, inner) in parts.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{text(TITLE)}</title>\n<style>{css()}</style></head>\n"
        f'<body>\n<a class="skip" href="#main">Skip to the results</a>\n'
        f"<header><h1>{text(TITLE)}</h1>\n<p>{text(ABOUT)}</p>\n{banner(sheets)}"
        f"<p>{text(tally_in_words(sheets))} {text(rule_of(sheets))}</p></header>\n"
        f'<nav aria-label="Experiments"><ul>{links}</ul></nav>\n'
        f'<main id="main" tabindex="-1">\n{body}\n</main>\n'
        "<footer><p>Made by <code>diffclone report</code> from Records; it asks nothing of the network.</p></footer>\n"
        "</body>\n</html>\n"
    )


def banner(sheets: Sequence[Sheet]) -> str:
    """Of shortened runs, before anything else is read."""
    quick = [sheet.title for sheet in sheets if sheet.quick]
    if not quick:
        return ""
    which = "all experiments" if len(quick) == len(sheets) else ", ".join(quick)
    return (
        f'<p class="banner" role="note"><strong>Quick runs:</strong> {text(which)}. Shortened, they show that '
        "everything works; they say nothing about the methods, and are not compared with the paper.</p>\n"
    )


def sheet_html(sheet: Sheet, drawings: Sequence[Drawing], provenance: Provenance) -> str:
    """What was asked, the table, the figures, what was chosen."""
    source = SOURCES.get(sheet.source, sheet.source)
    parts = [f"<p>{text(sheet.about)}</p>", f'<p class="soft">Settings: {text(source)}.</p>']
    if sheet.quick:
        parts.append('<p class="banner" role="note"><strong>Quick runs</strong>, not compared with the paper.</p>')
    if sheet.cells:
        parts.append(html_table(sheet, provenance))
    parts += [drawing.to_html() for drawing in drawings] or ["<p>No figure: nothing that it shows was run yet.</p>"]
    measured = [record for records in sheet.measured.values() for record in records]
    if measured:
        named = (provenance.link(r, f"{r.kind} {r.results.get('label', '')}, {sheet.title}") for r in measured)
        parts.append(f"<p>Measured beside the table: {', '.join(dict.fromkeys(named))}.</p>")
    chosen = {name: value for name, value in sheet.settings.items() if name != "rule"}
    if chosen:
        told = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in chosen.items())
        parts.append(
            f"<details><summary>What the paper leaves open, and what was chosen</summary><dl>{told}</dl></details>"
        )
    return "\n".join(parts)


def absent_html(sheets: Sequence[Sheet]) -> str:
    """By experiment, with why."""
    items = [
        f'<li><a href="#{sheet.name}">{text(sheet.title)}</a>: {text("; ".join(places))} ({text(why)})</li>'
        for sheet in sheets
        for why, places in absent(sheet).items()
    ]
    return f"<ul>{''.join(items)}</ul>" if items else "<p>Everything was run.</p>"


def contradictions_html(sheets: Sequence[Sheet]) -> str:
    """Where two of its numbers differ."""
    items = [f"<li>{text(note)} ({text('; '.join(where))})</li>" for note, where in contradictions(sheets).items()]
    return f"<ul>{''.join(items)}</ul>" if items else "<p>Nothing that bears on these numbers is noted.</p>"


def records_html(provenance: Provenance) -> str:
    """The list, or that there is none."""
    if not provenance.records:
        return "<p>There are no Records yet.</p>"
    about = "Each Record has its settings, seeds, demonstrations' fingerprint, versions, device and time."
    return f"<p>{about}</p>{provenance.to_html()}"
