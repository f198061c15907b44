"""A drawing, and how it is written: within a page (its colours follow the scheme), as an SVG file, as a PDF file."""

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import matplotlib as mpl
from matplotlib.figure import Figure

from diffclone.reports.theme import LIGHT
from diffclone.reports.words import text

STYLE: dict[Any, Any] = {
    "axes.edgecolor": LIGHT["ink"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": LIGHT["ink"],
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 9,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.bbox": "tight",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "diffclone",
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["ink"],
    "ytick.color": LIGHT["ink"],
}
NAMES = {value: name for name, value in LIGHT.items()}
SHRINKS = 0.75
"""To what of its size a figure shrinks on a narrow screen, before it scrolls."""


@final
@dataclass(frozen=True)
class Drawing:
    """A figure with what it says."""

    name: str
    """Of its files."""
    figure: Figure
    caption: str
    says: str
    """What it shows, in words and numbers, for those who do not see it."""

    @cached_property
    def svg(self) -> str:
        """Without an XML head; the same numbers give the same text."""
        buffer = io.StringIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        written = buffer.getvalue()
        return written[written.index("<svg") :]

    def svg_file(self) -> bytes:
        """For papers and slides: on white."""
        first, rest = self.svg.split(">", 1)
        white = f'<rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>'
        return f'<?xml version="1.0" encoding="utf-8"?>\n{first}>{white}{rest}'.encode()

    def pdf_file(self) -> bytes:
        """For LaTeX."""
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Creator": None})
        return buffer.getvalue()

    def to_html(self) -> str:
        """Within a page: colours by name, ids of its own, no size but the page's."""
        svg = re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{NAMES[m[0]]})" if m[0] in NAMES else m[0], self.svg)
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", svg)
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        box = re.search(r'viewBox="0 0 ([\d.]+)', svg)
        assert box is not None, "matplotlib gives every SVG a box"
        least = round(float(box[1]) * 4 / 3 * SHRINKS)
        named = f'role="img" aria-labelledby="caption-{self.name}" style="min-width: {least}px"'
        return (
            f'<figure><div class="scroll" role="region" tabindex="0" aria-label="Figure, scrolls sideways">'
            f'<svg {named}{svg.removeprefix("<svg")}</div><figcaption id="caption-{self.name}">{text(self.caption)} '
            f"{text(self.says)}</figcaption></figure>"
        )


@contextmanager
def drawn(width: float, height: float) -> Generator[Figure, None, None]:
    """A figure to draw on, in inches and in the report's style."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        yield figure
