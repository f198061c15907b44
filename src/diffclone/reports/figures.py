"""Matplotlib figures for a page (with the colours of the page), as SVG files and as PDF files."""

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from diffclone.reports.theme import LIGHT

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
VARIABLES = {value: name for name, value in LIGHT.items()}
SMALLEST_SCALE = 0.75
"""A figure shrinks to this share of its width on a narrow screen; below that it scrolls."""


@final
@dataclass(frozen=True)
class PageFigure:
    """A figure with its caption and a description in words."""

    kind: ClassVar[str] = "figure"
    name: str
    """Unique on a page; also the name of the figure's files."""
    figure: Figure
    caption: str
    description: str = ""
    """What the figure shows, in words and numbers, for readers who cannot see it."""

    @cached_property
    def svg(self) -> str:
        """The SVG element without an XML header. The same numbers give the same text."""
        buffer = io.StringIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        text = buffer.getvalue()
        return text[text.index("<svg") :]

    def svg_file(self) -> bytes:
        """Return an SVG file on a white background, for papers and slides."""
        first, rest = self.svg.split(">", 1)
        white = f'<rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>'
        return f'<?xml version="1.0" encoding="utf-8"?>\n{first}>{white}{rest}'.encode()

    def pdf_file(self) -> bytes:
        """Return a PDF file, for LaTeX."""
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Creator": None})
        return buffer.getvalue()

    @property
    def inline_svg(self) -> Markup:
        """The SVG for a page: colours are CSS variables, ids are unique, the width follows the page."""
        svg = re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{VARIABLES[m[0]]})" if m[0] in VARIABLES else m[0], self.svg)
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", svg)
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        box = re.search(r'viewBox="0 0 ([\d.]+)', svg)
        assert box is not None, "matplotlib writes a viewBox into every SVG"
        min_width = round(float(box[1]) * 4 / 3 * SMALLEST_SCALE)
        attributes = f'role="img" aria-labelledby="caption-{self.name}" style="min-width: {min_width}px"'
        # Matplotlib has escaped all text of the figure.
        return Markup(f"<svg {attributes}{svg.removeprefix('<svg')}")


@contextmanager
def new_figure(width: float, height: float) -> Generator[Figure, None, None]:
    """Yield an empty figure of this size in inches, with the style of the pages active."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width, height))


def draw_walls(axes: Axes, walls: list[list[int]] | list[tuple[int, int]]) -> None:
    """Draw a maze from above, in the ball's coordinates: the centre of cell (i, j) is at (i − 0.2, j − 0.2)."""
    for i, j in walls:
        axes.add_patch(Rectangle((i - 0.7, j - 0.7), 1, 1, color=LIGHT["wall"], linewidth=0.5))
    axes.set_aspect("equal")
    last = max((max(cell) for cell in walls), default=7)
    axes.set_xlim(-0.7, last + 0.3)
    axes.set_ylim(-0.7, last + 0.3)
    axes.set_axis_off()
