"""Figures as SVG text, so that a page holds everything it shows."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

Points = npt.NDArray[np.floating]

COLOURS = {"BC": "#6b7280", "DBC": "#0f766e"}
SUCCESS, FAILURE, WALL = "#0f766e", "#dc2626", "#d1d5db"
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "diffclone",
}


def to_svg(figure: Figure) -> str:
    """The figure alone, without an XML head; the same input gives the same text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def maze_axes(axes: Axes, walls: Sequence[tuple[int, int]]) -> None:
    """A maze from above, in the ball's coordinates (the middle of cell (i, j) is at (i − 0.2, j − 0.2))."""
    for i, j in walls:
        axes.add_patch(Rectangle((i - 0.7, j - 0.7), 1, 1, color=WALL, linewidth=0))
    axes.set_aspect("equal")
    axes.set_xlim(-0.7, 7.3)
    axes.set_ylim(-0.7, 7.3)
    axes.set_axis_off()


def trajectories(
    paths: Mapping[str, Sequence[tuple[Points, bool]]], walls: Sequence[tuple[int, int]], guide: Points | None
) -> str:
    """Where each method's ball went, and where the guide expects it to be."""
    with mpl.rc_context(STYLE):
        panels = len(paths) + (guide is not None)
        figure = Figure(figsize=(3.4 * panels, 3.6))
        for axes, (name, episodes) in zip(np.atleast_1d(figure.subplots(1, panels)), paths.items(), strict=False):
            maze_axes(axes, walls)
            for points, success in episodes:
                axes.plot(points[:, 0], points[:, 1], color=SUCCESS if success else FAILURE, alpha=0.45, linewidth=0.8)
            solved = sum(success for _, success in episodes)
            axes.set_title(f"{name}: {solved} of {len(episodes)} reach the goal")
        if guide is not None:
            axes = figure.axes[-1]
            maze_axes(axes, walls)
            axes.scatter(guide[:, 0], guide[:, 1], s=3, color="#7c3aed", alpha=0.5, linewidths=0)
            axes.set_title("Positions sampled from the guide")
        return to_svg(figure)


def loss_curves(curves: Mapping[str, Mapping[str, tuple[Sequence[int], Points]]]) -> str:
    """A panel a loss; a line a method with the range over its members. `curves[loss][method] = (updates, values)`."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(curves), 2.6))
        for axes, (loss, methods) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items(), strict=True):
            for name, (updates, values) in methods.items():
                colour = COLOURS.get(name, "#7c3aed")
                axes.plot(updates, values.mean(1), color=colour, linewidth=1.2, label=name)
                axes.fill_between(updates, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)
            axes.set_title(loss)
            axes.set_xlabel("updates")
            axes.legend(frameon=False)
        figure.tight_layout()
        return to_svg(figure)
