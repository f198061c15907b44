"""The field that the diffusion model has learned over the maze."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from diffclone.experiments.sheet import Sheet
from diffclone.reports.drawing import Drawing, drawn
from diffclone.reports.spiral import points
from diffclone.reports.theme import LIGHT


def draw_field(sheet: Sheet) -> list[Drawing]:
    """Two panels: the layout; and arrows over it, with the expert's positions."""
    records = sheet.measured.get("field", ())
    if not records:
        return []
    results = records[0].results
    positions = np.asarray(results["positions"], dtype=np.float64).reshape(-1, 2)
    directions = np.asarray(results["directions"], dtype=np.float64).reshape(-1, 2)
    expert = points(results["expert"])
    with drawn(9.6, 4.8) as figure:
        left, right = figure.subplots(1, 2)
        for axes in (left, right):
            draw_walls(axes, results["walls"])
        left.set_title("(a) Maze layout", loc="left")
        right.set_title("(b) Learned gradient field", loc="left")
        right.scatter(*expert.T, s=4, color=LIGHT["soft"], alpha=0.5, linewidths=0, label="expert")
        right.quiver(*positions.T, *directions.T, color=LIGHT["blue"], angles="xy", width=0.0035, label="field")
        right.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2)
        figure.tight_layout()
    caption = (
        f"{sheet.title}: (a) walls; (b) the expert's positions (dots) and where the model would move a pair (arrows)."
    )
    return [Drawing(sheet.name, figure, caption, in_words(positions, directions, expert))]


def draw_walls(axes: Axes, walls: list[list[int]]) -> None:
    """In the ball's coordinates: the middle of cell (i, j) is at (i − 0.2, j − 0.2)."""
    for i, j in walls:
        axes.add_patch(Rectangle((i - 0.7, j - 0.7), 1, 1, color=LIGHT["wall"], linewidth=0.5))
    axes.set_aspect("equal")
    last = max((max(cell) for cell in walls), default=7)
    axes.set_xlim(-0.7, last + 0.3)
    axes.set_ylim(-0.7, last + 0.3)
    axes.set_axis_off()


def in_words(
    positions: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    directions: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    expert: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> str:
    """How many arrows point towards the expert."""
    gaps = expert[None] - positions[:, None]
    nearest = gaps[np.arange(len(positions)), np.linalg.norm(gaps, axis=-1).argmin(1)]
    towards = int((np.sum(nearest * directions, axis=1) > 0).sum())
    return f"{towards} of {len(positions)} arrows point towards the expert's nearest position."
