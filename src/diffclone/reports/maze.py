"""Figure of the gradient field that the diffusion model learned over the maze."""

import numpy as np
from matplotlib.figure import Figure

from diffclone.experiments.results import ResultTable
from diffclone.reports.figures import NARROW, PageFigure, draw_dots, draw_twice, draw_walls, new_figure
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

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 7.6) if narrow else (9.6, 4.8))) as figure:
            left, right = figure.subplots(*((2, 1) if narrow else (1, 2)))
            for axes in (left, right):
                draw_walls(axes, results["walls"])
            left.set_title("(a) Maze layout", loc="left")
            right.set_title("(b) Learned gradient field", loc="left")
            draw_dots(right, expert, colour="soft", size=2.0, alpha=0.5, label="expert")
            right.quiver(*positions.T, *directions.T, color=LIGHT["blue"], angles="xy", width=0.0035, label="field")
            right.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2)
            figure.tight_layout()
        return figure

    caption = (
        f"{sheet.title}: (a) walls; (b) the expert's positions (dots) and the direction in which the model moves a "
        "pair (arrows)."
    )
    return [draw_twice(sheet.name, draw, caption, _describe(positions, directions, expert))]


def _describe(positions: Points, directions: Points, expert: Points) -> str:
    gaps = expert[None] - positions[:, None]
    nearest = gaps[np.arange(len(positions)), np.linalg.norm(gaps, axis=-1).argmin(1)]
    towards = int((np.sum(nearest * directions, axis=1) > 0).sum())
    return f"{towards} of {len(positions)} arrows point towards the expert's nearest position."
