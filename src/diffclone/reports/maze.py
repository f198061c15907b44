"""Figure of the gradient field that the diffusion model learned over the maze."""

import numpy as np

from diffclone.experiments.results import ResultTable
from diffclone.reports.figures import PageFigure, draw_walls, new_figure
from diffclone.reports.spiral import Points, to_points
from diffclone.reports.theme import LIGHT


def draw_field(sheet: ResultTable) -> list[PageFigure]:
    """Draw the layout of the maze, and the field as arrows over the expert's positions."""
    records = sheet.measured.get("field", ())
    if not records:
        return []
    results = records[0].results
    positions = np.asarray(results["positions"], dtype=np.float64).reshape(-1, 2)
    directions = np.asarray(results["directions"], dtype=np.float64).reshape(-1, 2)
    expert = to_points(results["expert"])
    with new_figure(9.6, 4.8) as figure:
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
        f"{sheet.title}: (a) walls; (b) the expert's positions (dots) and the direction in which the model moves a "
        "pair (arrows)."
    )
    return [PageFigure(sheet.name, figure, caption, _describe(positions, directions, expert))]


def _describe(positions: Points, directions: Points, expert: Points) -> str:
    gaps = expert[None] - positions[:, None]
    nearest = gaps[np.arange(len(positions)), np.linalg.norm(gaps, axis=-1).argmin(1)]
    towards = int((np.sum(nearest * directions, axis=1) > 0).sum())
    return f"{towards} of {len(positions)} arrows point towards the expert's nearest position."
