"""Figures of the two experiments on Spiral: what the diffusion model samples, and where its policies go.

manifold          (a) sampled actions    (b) trajectories
noise-injection   (a) the expert's actions    (b) with noise    (c) generated actions    (d) trajectories
                  and the reconstruction error over the noise, and over the step t from which it begins
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diffclone.experiments.results import ResultTable
from diffclone.records import Record
from diffclone.reports.curves import number_in
from diffclone.reports.figures import NARROW, PageFigure, draw_dots, draw_twice, new_figure
from diffclone.reports.theme import LIGHT

COLOURS = {"EXPERT": "wall", "BC": "orange", "DM": "blue", "DBC": "purple"}
LINE_STYLES = {"EXPERT": "-", "BC": "-", "DM": "-.", "DBC": "--"}
MAX_POINTS = 1500
"""Points drawn per panel; longer arrays are subsampled."""

Points = npt.NDArray[np.float64]


def to_points(values: Any) -> Points:
    """Return rows of (x, y), subsampled to MAX_POINTS."""
    found = np.asarray(values, dtype=np.float64).reshape(-1, 2)
    return found[:: -(-len(found) // MAX_POINTS) or 1]


def label_of(record: Record) -> str:
    """Return the label of a Record."""
    return str(record.results["label"])


def kind_of(label: str) -> str:
    """Return EXPERT, DBC, DM or BC: "DM-0.01" is a DM."""
    return next((kind for kind in ("EXPERT", "DBC", "DM", "BC") if kind in label.upper()), "DM")


def draw_manifold(sheet: ResultTable) -> list[PageFigure]:
    """Draw sampled actions and trajectories."""
    samples, paths = sheet.measured.get("samples", ()), sheet.measured.get("trajectories", ())
    if not samples and not paths:
        return []

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 7.6) if narrow else (9.4, 4.4))) as figure:
            left, right = figure.subplots(*((2, 1) if narrow else (1, 2)))
            _draw_actions(left, samples[:1], ("expert", "sampled"))
            left.set_title("(a) Sampled actions", loc="left")
            _draw_paths(right, paths)
            right.set_title("(b) Trajectories", loc="left")
            figure.tight_layout()
        return figure

    caption = (
        f"{sheet.title}: (a) actions of the expert (crosses) and of the diffusion model (dots), in the action plane; "
        "(b) paths of the expert and of each policy."
    )
    description = f"{_describe_distance(samples[:1])} {_describe_ends(paths)}".strip()
    return [draw_twice(sheet.name, draw, caption, description)]


def draw_noise_injection(sheet: ResultTable) -> list[PageFigure]:
    """Draw actions before and after noise, generated actions and trajectories; and the reconstruction error."""
    samples = sorted(sheet.measured.get("samples", ()), key=noise_of)
    paths = sheet.measured.get("trajectories", ())
    figures: list[PageFigure] = []
    if samples or paths:
        clean = [record for record in samples if noise_of(record) == 0]
        noisy = [record for record in samples if noise_of(record) > 0]
        titles = ("(a) Expert's actions", "(b) With noise", "(c) Generated actions", "(d) Trajectories")

        def draw(*, narrow: bool) -> Figure:
            with new_figure(*((NARROW, 14.0) if narrow else (9.4, 8.2))) as figure:
                panels = figure.subplots(*((4, 1) if narrow else (2, 2))).ravel()
                _draw_actions(panels[0], clean[:1], ("expert",))
                _draw_actions(panels[1], noisy[:1], ("expert",))
                _draw_actions(panels[2], noisy[:1], ("sampled",))
                _draw_paths(panels[3], paths)
                for axes, title in zip(panels, titles, strict=True):
                    axes.set_title(title, loc="left")
                figure.tight_layout()
            return figure

        caption = f"{sheet.title}: actions before and after noise, actions generated from noisy data, and paths."
        description = f"{_describe_distance(noisy[:1])} {_describe_ends(paths)}".strip()
        figures.append(draw_twice(sheet.name, draw, caption, description))
    return figures + _draw_reconstruction(sheet) + _draw_reconstruction_curve(sheet)


def noise_of(record: Record) -> float:
    """Return the noise added to the actions, from the results or else from the label."""
    found = record.results.get("action_noise")
    return float(found) if found is not None else (number_in(label_of(record)) or 0.0)


def _draw_reconstruction(sheet: ResultTable) -> list[PageFigure]:
    records = sorted(sheet.measured.get("reconstruction", ()), key=noise_of)
    if not records:
        return []
    levels = [noise_of(record) for record in records]
    errors = [np.asarray(record.results["mse"], dtype=np.float64) for record in records]
    means = [float(error.mean()) for error in errors]
    with new_figure(6.4, 3.4) as figure:
        axes = figure.add_subplot()
        axes.plot(range(len(levels)), means, color=LIGHT["blue"], marker="o", markersize=4.5, label="mean")
        for x, error in enumerate(errors):
            axes.plot([x] * len(error), error, ".", color=LIGHT["blue"], alpha=0.6, markersize=4)
        axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        axes.set_xlabel("noise added to the expert's actions")
        axes.set_ylabel("mean squared error")
        axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
        axes.legend()
    least = int(np.argmin(means))
    description = (
        f"The error is {means[0]:.4f} at noise {levels[0]:g} and {means[-1]:.4f} at {levels[-1]:g}; "
        f"the smallest, {means[least]:.4f}, is at {levels[least]:g}."
    )
    caption = (
        "Error of actions that the diffusion model samples at the expert's states: one dot per seed, and their mean. "
        "Not comparable with the paper's, which depends on how actions are reconstructed."
    )
    return [PageFigure(f"{sheet.name}-reconstruction", figure, caption, description)]


def _draw_reconstruction_curve(sheet: ResultTable) -> list[PageFigure]:
    records = sheet.measured.get("reconstruction-curve", ())
    if not records:
        return []
    steps = [int(step) for step in records[0].results["steps"]]
    errors = np.asarray(records[0].results["curve"], dtype=np.float64)
    means = errors.mean(1)
    with new_figure(6.4, 3.4) as figure:
        axes = figure.add_subplot()
        axes.plot(steps, means, color=LIGHT["blue"], marker="o", markersize=4.5, label="mean")
        axes.plot(steps, errors, ".", color=LIGHT["blue"], alpha=0.6, markersize=4)
        axes.set_yscale("log")
        axes.set_xlabel("step t up to which a pair is noised")
        axes.set_ylabel("mean squared error")
        axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
    description = f"The error grows from {means[0]:.2g} at t = {steps[0]} to {means[-1]:.2g} at t = {steps[-1]}."
    caption = (
        "Error of actions that are noised up to step t and reconstructed: one dot per seed, and their mean. Any value "
        "between the ends can be had by a choice of t."
    )
    return [PageFigure(f"{sheet.name}-curve", figure, caption, description)]


def _draw_actions(axes: Axes, records: Sequence[Record], which: Sequence[str]) -> None:
    if not _set_plane(axes, records, "action along x", "action along y"):
        return
    results = records[0].results
    if "sampled" in which:
        sampled = to_points(results["sampled"])
        draw_dots(axes, sampled, colour="blue", size=3.0, alpha=0.6, label="diffusion model")
    if "expert" in which:
        expert = np.unique(to_points(results["expert"]), axis=0)
        axes.scatter(*expert.T, s=34, marker="x", color=LIGHT["red"], linewidths=1.2, label="expert")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)


def _draw_paths(axes: Axes, records: Sequence[Record]) -> None:
    if not _set_plane(axes, records, "x", "y"):
        return
    for record in records:
        label = label_of(record)
        kind = kind_of(label)
        for k, path in enumerate(record.results["paths"]):
            line = np.asarray(path, dtype=np.float64).reshape(-1, 2)
            style = ":" if "-" in label else LINE_STYLES[kind]
            # The expert's path is wide and below the others, which often lie on it.
            width, order = (7.0, 1) if kind == "EXPERT" else (1.0, 2)
            shown = label if k == 0 else None
            axes.plot(*line.T, style, color=LIGHT[COLOURS[kind]], linewidth=width, zorder=order, label=shown)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)


def _set_plane(axes: Axes, records: Sequence[Record], x_label: str, y_label: str) -> bool:
    """Set equal scales and labels. Return whether there are Records to draw; a panel without any says so."""
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if not records:
        axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
    return bool(records)


def _describe_distance(records: Sequence[Record]) -> str:
    if not records:
        return ""
    expert, sampled = (to_points(records[0].results[key]) for key in ("expert", "sampled"))
    nearest = np.linalg.norm(sampled[:, None] - np.unique(expert, axis=0)[None], axis=-1).min(1)
    return (
        f"The mean distance of generated actions to the nearest action of the expert is {nearest.mean():.3f}, "
        f"the largest {nearest.max():.3f}."
    )


def _describe_ends(records: Sequence[Record]) -> str:
    parts = [
        f"{label_of(record)} {sum(record.results['success'])} of {len(record.results['success'])}"
        for record in records
        if kind_of(label_of(record)) != "EXPERT"
    ]
    return f"Paths that end at the expert's end: {', '.join(parts)}." if parts else ""
