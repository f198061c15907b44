"""The two experiments on Spiral: what the diffusion model samples, and where its policies go.

manifold          (a) sampled actions    (b) trajectories
noise-injection   (a) the expert's actions    (b) with noise    (c) generated actions    (d) trajectories
                  and the error of reconstruction over the noise
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from diffclone.experiments.sheet import Sheet
from diffclone.records import Record
from diffclone.reports.curves import place_of
from diffclone.reports.drawing import Drawing, drawn
from diffclone.reports.theme import LIGHT

COLOURS = {"EXPERT": "green", "BC": "orange", "DM": "blue", "DBC": "red"}
STYLES = {"EXPERT": "-", "BC": "-", "DM": "-.", "DBC": "--"}
MOST = 1500
"""Points in a panel; of more, every so many-th is drawn."""

Points = npt.NDArray[np.float64]


def points(values: Any) -> Points:
    """Rows of (x, y), thinned where there are too many to see."""
    found = np.asarray(values, dtype=np.float64).reshape(-1, 2)
    return found[:: -(-len(found) // MOST) or 1]


def label_of(record: Record) -> str:
    """Which one of its kind."""
    return str(record.results["label"])


def kind_of(label: str) -> str:
    """EXPERT, DBC, DM or BC: "DM-0.01" is a DM."""
    return next((kind for kind in ("EXPERT", "DBC", "DM", "BC") if kind in label.upper()), "DM")


def draw_manifold(sheet: Sheet) -> list[Drawing]:
    """Two panels."""
    samples, paths = sheet.measured.get("samples", ()), sheet.measured.get("trajectories", ())
    if not samples and not paths:
        return []
    with drawn(9.4, 4.2) as figure:
        left, right = figure.subplots(1, 2)
        draw_actions(left, samples[:1], ("expert", "sampled"))
        left.set_title("(a) Sampled actions", loc="left")
        draw_paths(right, paths)
        right.set_title("(b) Trajectories", loc="left")
        figure.tight_layout()
    caption = (
        f"{sheet.title}: (a) actions of the expert (crosses) and of the diffusion model (dots), in the plane of "
        "actions; (b) where the expert and each policy go."
    )
    return [Drawing(sheet.name, figure, caption, f"{distance_in_words(samples[:1])} {ends_in_words(paths)}".strip())]


def draw_noise(sheet: Sheet) -> list[Drawing]:
    """Four panels, and the curve."""
    samples = sorted(sheet.measured.get("samples", ()), key=lambda record: noise_of(record))
    paths = sheet.measured.get("trajectories", ())
    drawings: list[Drawing] = []
    if samples or paths:
        clean = [record for record in samples if noise_of(record) == 0]
        noisy = [record for record in samples if noise_of(record) > 0]
        with drawn(13.2, 3.7) as figure:
            panels = figure.subplots(1, 4)
            draw_actions(panels[0], clean[:1], ("expert",))
            draw_actions(panels[1], noisy[:1], ("expert",))
            draw_actions(panels[2], noisy[:1], ("sampled",))
            draw_paths(panels[3], paths)
            titles = ("(a) Expert's actions", "(b) With noise", "(c) Generated actions", "(d) Trajectories")
            for axes, title in zip(panels, titles, strict=True):
                axes.set_title(title, loc="left")
            figure.tight_layout()
        caption = (
            f"{sheet.title}: actions before and after noise, actions generated after learning from noisy ones, paths."
        )
        drawings.append(
            Drawing(sheet.name, figure, caption, f"{distance_in_words(noisy[:1])} {ends_in_words(paths)}".strip())
        )
    return drawings + draw_reconstruction(sheet)


def noise_of(record: Record) -> float:
    """What was added to the actions: said in its results, else in its label."""
    found = record.results.get("action_noise")
    return float(found) if found is not None else (place_of(label_of(record)) or 0.0)


def draw_reconstruction(sheet: Sheet) -> list[Drawing]:
    """The error over the noise, a dot a seed, and the paper's."""
    records = sorted(sheet.measured.get("reconstruction", ()), key=noise_of)
    if not records:
        return []
    levels = [noise_of(record) for record in records]
    errors = [np.asarray(record.results["mse"], dtype=np.float64) for record in records]
    means = [float(error.mean()) for error in errors]
    paper = {
        place: cell.printed.mean
        for cell in sheet.cells
        if cell.unit == "mse" and cell.printed is not None
        for place in (place_of(cell.column), place_of(cell.row))
        if place is not None
    }
    with drawn(6.4, 3.4) as figure:
        axes = figure.add_subplot()
        axes.plot(range(len(levels)), means, color=LIGHT["blue"], marker="o", markersize=4.5, label="ours, mean")
        for x, error in enumerate(errors):
            axes.plot([x] * len(error), error, ".", color=LIGHT["blue"], alpha=0.6, markersize=4)
        if paper and not sheet.quick:
            known = [(x, paper[level]) for x, level in enumerate(levels) if level in paper]
            axes.plot(
                *zip(*known, strict=True),
                color=LIGHT["soft"],
                linestyle="--",
                marker="D",
                markerfacecolor="none",
                label="the paper",
            )
        axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        axes.set_xlabel("noise added to the expert's actions")
        axes.set_ylabel("mean squared error")
        axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
        axes.legend()
    least = int(np.argmin(means))
    says = (
        f"The error is {means[0]:.4f} at noise {levels[0]:g} and {means[-1]:.4f} at {levels[-1]:g}; "
        f"the least, {means[least]:.4f}, is at {levels[least]:g}."
    )
    caption = "Error of the diffusion model's reconstruction of the expert's actions: a dot a seed, and their mean."
    return [Drawing(f"{sheet.name}-reconstruction", figure, caption, says)]


def draw_actions(axes: Axes, records: Sequence[Record], which: Sequence[str]) -> None:
    """The plane of actions."""
    plane(axes, "action along x", "action along y")
    if not records:
        absent(axes)
        return
    results = records[0].results
    if "sampled" in which:
        sampled = points(results["sampled"])
        axes.scatter(*sampled.T, s=7, color=LIGHT["blue"], linewidths=0, alpha=0.6, label="diffusion model")
    if "expert" in which:
        expert = np.unique(points(results["expert"]), axis=0)
        axes.scatter(*expert.T, s=34, marker="x", color=LIGHT["red"], linewidths=1.2, label="expert")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)


def draw_paths(axes: Axes, records: Sequence[Record]) -> None:
    """The plane of positions."""
    plane(axes, "x", "y")
    if not records:
        absent(axes)
        return
    for record in records:
        label = label_of(record)
        kind = kind_of(label)
        for k, path in enumerate(record.results["paths"]):
            line = np.asarray(path, dtype=np.float64).reshape(-1, 2)
            style = ":" if "-" in label else STYLES[kind]
            shown = label if k == 0 else None
            axes.plot(*line.T, color=LIGHT[COLOURS[kind]], linestyle=style, linewidth=0.9, alpha=0.8, label=shown)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)


def plane(axes: Axes, x: str, y: str) -> None:
    """Both directions alike."""
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def absent(axes: Axes) -> None:
    """A panel without its Records says so."""
    axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)


def distance_in_words(records: Sequence[Record]) -> str:
    """How far generated actions lie from the expert's."""
    if not records:
        return ""
    expert, sampled = (points(records[0].results[key]) for key in ("expert", "sampled"))
    nearest = np.linalg.norm(sampled[:, None] - np.unique(expert, axis=0)[None], axis=-1).min(1)
    return (
        f"Generated actions lie {nearest.mean():.3f} from the nearest of the expert's on average, "
        f"and {nearest.max():.3f} at most."
    )


def ends_in_words(records: Sequence[Record]) -> str:
    """How many paths end where they should."""
    parts = [
        f"{label_of(record)} {sum(record.results['success'])} of {len(record.results['success'])}"
        for record in records
        if kind_of(label_of(record)) != "EXPERT"
    ]
    return f"Paths that end where the expert's does: {', '.join(parts)}." if parts else ""
