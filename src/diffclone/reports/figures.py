"""Matplotlib figures for a page (with the colours of the page), as SVG files and as PDF files."""

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

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
SMALLEST_SCALE, LARGEST_SCALE = 0.75, 1.4
"""A figure shrinks and grows with the page between these shares of its width; on a narrower screen it scrolls."""
LOG_LABELS: dict[float, tuple[int, ...]] = {10.0: (1, 2, 3, 5, 7), 200.0: (1, 2, 5)}
"""Multiples of powers of ten that are labelled on a logarithmic axis, by the ratio of its ends."""
NARROW = 3.6
"""Width in inches of a figure for a phone."""


@runtime_checkable
class Draw(Protocol):
    """Draws a figure for a wide or a narrow screen."""

    def __call__(self, *, narrow: bool) -> Figure:
        """Return the figure."""
        ...


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
    narrow: Draw | None = None
    """Draws the same for a phone."""

    @cached_property
    def svg(self) -> str:
        """The SVG element without an XML header. The same numbers give the same text."""
        return to_svg(self.figure)

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
        """The SVG for a page."""
        return make_inline(self.svg, self, "wide")

    @property
    def narrow_svg(self) -> Markup:
        """The SVG for a phone."""
        assert self.narrow is not None, "the template asks only for what there is"
        return make_inline(to_svg(self.narrow(narrow=True)), self, "narrow")


def draw_twice(name: str, draw: Draw, caption: str, description: str) -> PageFigure:
    """Return a figure for wide and for narrow screens."""
    return PageFigure(name, draw(narrow=False), caption, description, draw)


def to_svg(figure: Figure) -> str:
    """Return the SVG element of a figure."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def make_inline(svg: str, shown: PageFigure, kind: str) -> Markup:
    """Return an SVG for a page: colours are CSS variables, ids are unique, the width follows the page."""
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{VARIABLES[m[0]]})" if m[0] in VARIABLES else m[0], svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{shown.name}-{kind}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    assert box is not None, "matplotlib writes a viewBox into every SVG"
    natural = float(box[1]) * 4 / 3
    least = 0 if kind == "narrow" else round(natural * SMALLEST_SCALE)
    size = f"width: 100%; min-width: {least}px; max-width: {round(natural * LARGEST_SCALE)}px"
    words = f' aria-describedby="words-{shown.name}"' if shown.description else ""
    attributes = f'class="{kind}" role="img" aria-labelledby="caption-{shown.name}"{words} style="{size}"'
    # Matplotlib has escaped all text of the figure.
    return Markup(f"<svg {attributes}{svg.removeprefix('<svg')}")


@contextmanager
def new_figure(width: float, height: float) -> Generator[Figure, None, None]:
    """Yield an empty figure of this size in inches, with the style of the pages active."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width, height))


def number_ticks(axis: Axis, *, log: bool = False) -> None:
    """Write the numbers of an axis in full, with commas and without powers of ten."""
    if log:
        low, high = sorted(axis.get_view_interval())
        ratio = high / low if low > 0 else float("inf")
        labelled = next((subs for most, subs in LOG_LABELS.items() if ratio < most), (1,))
        axis.set_major_locator(LogLocator(subs=labelled))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(_format_tick))


def _format_tick(x: float, _: int | None = None) -> str:
    return f"{x:,.6g}".replace("-", "−")


def put_legend(figure: Figure, *, narrow: bool, columns: int = 3) -> None:
    """Put one legend for all panels above them."""
    figure.tight_layout()
    found = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = (1 if max(map(len, found), default=0) > 24 else 2) if narrow else columns
    figure.legend(found.values(), found.keys(), loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)


def draw_dots(axes: Axes, points: NDArray[np.floating], *, colour: str, size: float, alpha: float, label: str) -> None:
    """Draw many points as one path of very short lines, a tenth of the size of as many markers."""
    short = 1e-4 * (np.ptp(points[:, 0]) or 1.0)
    vertices = np.stack([points, points + np.array([short, 0.0])], 1).reshape(-1, 2)
    path = Path(vertices, np.tile([Path.MOVETO, Path.LINETO], len(points)))
    path.should_simplify = False
    style: dict[str, Any] = {"fill": False, "capstyle": "round", "linewidth": size, "edgecolor": LIGHT[colour]}
    axes.add_patch(PathPatch(path, alpha=alpha, **style))
    axes.update_datalim(points)
    axes.autoscale_view()
    axes.plot([], [], "o", color=LIGHT[colour], markersize=size, label=label)


def draw_walls(axes: Axes, walls: list[list[int]] | list[tuple[int, int]]) -> None:
    """Draw a maze from above, in the ball's coordinates: the centre of cell (i, j) is at (i − 0.2, j − 0.2)."""
    for i, j in walls:
        axes.add_patch(Rectangle((i - 0.7, j - 0.7), 1, 1, color=LIGHT["wall"], linewidth=0.5))
    axes.set_aspect("equal")
    last = max((max(cell) for cell in walls), default=7)
    axes.set_xlim(-0.7, last + 0.3)
    axes.set_ylim(-0.7, last + 0.3)
    axes.set_axis_off()
