"""The page of `diffclone demo`."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from diffclone.records import Record
from diffclone.reports.figures import PageFigure, draw_walls, new_figure
from diffclone.reports.page import Details, Paragraph, Table, simple_page
from diffclone.reports.theme import LIGHT

Points = npt.NDArray[np.floating]
Curve = tuple[Sequence[int], Points]
"""Updates, and values (updates, members)."""

COLOURS = {"BC": "soft", "DBC": "green"}


@final
@dataclass(frozen=True)
class DemoPage:
    """Everything that the page shows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    paths: Mapping[str, Sequence[tuple[Points, bool]]]
    """Positions and success of the first episodes, by method."""
    walls: Sequence[tuple[int, int]]
    """Cells of the maze that are walls."""
    guide_positions: Points | None
    """Positions sampled from the diffusion model."""
    curves: Mapping[str, Mapping[str, Curve]]
    """Losses while training, by loss and method."""
    records: Sequence[Record]


def demo_page(shown: DemoPage) -> str:
    """Render the page."""
    episodes = len(next(iter(shown.paths.values())))
    records = "\n\n".join(json.dumps(dataclasses.asdict(record), indent=1) for record in shown.records)
    return simple_page(
        "diffclone: BC and DBC on Maze",
        [
            Paragraph("Behavioural cloning alone, and guided by a diffusion model of the expert's state-action pairs."),
            Table(shown.caption, shown.columns, shown.rows),
            Paragraph("Intervals are 95 %, resampled over seeds and starts. Both methods run from the same starts."),
            draw_paths(
                shown.paths,
                shown.walls,
                shown.guide_positions,
                f"The first {episodes} episodes of seed 0, and positions sampled from the diffusion model.",
            ),
            draw_loss_curves(shown.curves, "Losses while training: mean over seeds, and their range."),
            Details("Records", records),
        ],
    )


def draw_paths(
    paths: Mapping[str, Sequence[tuple[Points, bool]]],
    walls: Sequence[tuple[int, int]],
    guide_positions: Points | None,
    caption: str,
) -> PageFigure:
    """Draw one panel per method with the path of each episode, and one with the guide's samples."""
    panels = len(paths) + (guide_positions is not None)
    titles: list[str] = []
    with new_figure(3.4 * panels, 3.6) as figure:
        for axes, (name, episodes) in zip(np.atleast_1d(figure.subplots(1, panels)), paths.items(), strict=False):
            draw_walls(axes, list(walls))
            for points, success in episodes:
                colour = LIGHT["green" if success else "red"]
                axes.plot(points[:, 0], points[:, 1], color=colour, alpha=0.45, linewidth=0.8)
            solved = sum(success for _, success in episodes)
            titles.append(f"{name}: {solved} of {len(episodes)} reach the goal")
            axes.set_title(titles[-1])
        if guide_positions is not None:
            axes = figure.axes[-1]
            draw_walls(axes, list(walls))
            axes.scatter(*guide_positions.T, s=3, color=LIGHT["purple"], alpha=0.5, linewidths=0)
            axes.set_title("Positions sampled from the guide")
    return PageFigure("paths", figure, caption, "; ".join(titles) + ".")


def draw_loss_curves(curves: Mapping[str, Mapping[str, Curve]], caption: str) -> PageFigure:
    """Draw one panel per loss, and one line per method with the range over its members."""
    with new_figure(3.4 * len(curves), 2.6) as figure:
        for axes, (loss, methods) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items(), strict=True):
            for name, (updates, values) in methods.items():
                colour = LIGHT[COLOURS.get(name, "purple")]
                axes.plot(updates, values.mean(1), color=colour, linewidth=1.2, label=name)
                axes.fill_between(updates, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)
            axes.set_title(loss)
            axes.set_xlabel("updates")
            axes.legend()
        figure.tight_layout()
    return PageFigure("losses", figure, caption)
