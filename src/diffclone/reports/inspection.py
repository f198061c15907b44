"""The page of `diffclone inspect`: what was found in demonstrations, with figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from diffclone.reports.figures import PageFigure, new_figure
from diffclone.reports.page import Details, Paragraph, Table, simple_page
from diffclone.reports.theme import LIGHT

Points = npt.NDArray[np.floating]

HISTOGRAM_COLUMNS = 6
MAX_HISTOGRAMS = 96
"""Histograms per figure; further dimensions are left out."""
MAX_LINES = 10
"""Dimensions drawn per example: those that vary most."""
FINDING_COLUMNS = ("severity", "what", "where", "what to do")
RANGE_COLUMNS = ("dimension", "lowest", "mean", "highest", "standard deviation", "bounds")


@final
@dataclass(frozen=True)
class InspectionPage:
    """Everything that the page shows, as plain arrays and rows of text."""

    title: str
    about: Mapping[str, str]
    """What the reader understood of the file."""
    findings: Sequence[Sequence[str]]
    ranges: Sequence[Sequence[str]]
    ranking: Sequence[Sequence[str]]
    ranking_columns: Sequence[str]
    samples: Mapping[str, Points]
    """Some rows of the observations and of the actions; each column becomes a histogram."""
    lengths: npt.NDArray[np.int64]
    scores: Points
    """How unusual each episode is."""
    examples: Mapping[str, tuple[Points, Points]]
    """Observations and actions of selected episodes, by caption."""
    source: str
    """The metadata of the demonstrations."""


def inspection_page(shown: InspectionPage) -> str:
    """Render the page."""
    content: list[Table | PageFigure | Paragraph | Details] = [
        Table("Contents", ("", ""), list(shown.about.items())),
        Table("Findings", FINDING_COLUMNS, shown.findings)
        if shown.findings
        else Paragraph("No check found a problem. Checks see only arrays, not their meaning."),
        Table("Most unusual episodes", shown.ranking_columns, shown.ranking),
        draw_lengths_and_scores(shown.lengths, shown.scores),
    ]
    for k, (caption, (obs, act)) in enumerate(shown.examples.items()):
        content.append(draw_episode(f"example-{k}", obs, act, caption))
    content += [draw_histograms(name, values) for name, values in shown.samples.items()]
    content.append(Table("Ranges", RANGE_COLUMNS, shown.ranges))
    content.append(Details("Metadata", shown.source))
    return simple_page(shown.title, content)


def draw_histograms(name: str, values: Points) -> PageFigure:
    """Draw one small histogram per dimension."""
    dropped = f"; the first {MAX_HISTOGRAMS} of {values.shape[1]}" if values.shape[1] > MAX_HISTOGRAMS else ""
    values = values[:, :MAX_HISTOGRAMS]
    rows = -(-values.shape[1] // HISTOGRAM_COLUMNS)
    with new_figure(10.0, 1.15 * rows + 0.3) as figure:
        for k, column in enumerate(values.T):
            axes = figure.add_subplot(rows, HISTOGRAM_COLUMNS, k + 1)
            counts, edges = np.histogram(column.astype(np.float64), bins=40)
            axes.stairs(counts, edges, fill=True, color=LIGHT["green"])
            axes.set_title(f"{name} {k}", fontsize=7, pad=2)
            axes.set_yticks([])
            axes.set_xticks([edges[0], edges[-1]], [f"{edges[0]:.3g}", f"{edges[-1]:.3g}"], fontsize=7)
        figure.tight_layout()
    return PageFigure(f"histograms-{name}", figure, f"Histogram of each dimension of {name}{dropped}.")


def draw_lengths_and_scores(lengths: npt.NDArray[np.int64], scores: Points) -> PageFigure:
    """Draw the distribution of episode lengths, and how unusual each episode is, in the order of the data."""
    with new_figure(10.0, 2.6) as figure:
        left, right = figure.subplots(1, 2)
        counts, edges = np.histogram(lengths, bins=min(40, max(1, len(np.unique(lengths)))))
        left.stairs(counts, edges, fill=True, color=LIGHT["green"])
        left.set_title("steps per episode")
        left.set_ylabel("episodes")
        top = np.argsort(-scores, kind="stable")[:2]
        right.scatter(
            np.arange(len(scores)), scores, s=6, color=LIGHT["green"], linewidths=0, rasterized=len(scores) > 5000
        )
        right.scatter(top, scores[top], s=16, color=LIGHT["red"], linewidths=0)
        for episode in top:
            right.annotate(str(episode), (episode, scores[episode]), xytext=(4, -3), textcoords="offset points")
        right.set_title("how unusual")
        right.set_xlabel("episode")
        figure.tight_layout()
    description = f"Episodes have {lengths.min()} to {lengths.max()} steps."
    return PageFigure("lengths", figure, "Lengths of episodes, and how unusual each one is.", description)


def draw_episode(name: str, obs: Points, act: Points, caption: str) -> PageFigure:
    """Draw observations and actions over the steps of one episode."""
    with new_figure(10.0, 3.4) as figure:
        panels = zip(figure.subplots(2, 1, sharex=True), (("obs", obs), ("act", act)), strict=True)
        for axes, (label, values) in panels:
            for k in np.sort(np.argsort(-values.std(0), kind="stable")[:MAX_LINES]):
                axes.plot(values[:, k], linewidth=0.9, label=str(k))
            axes.set_ylabel(label)
            axes.legend(ncols=2, fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.axes[-1].set_xlabel("step")
        figure.tight_layout()
    return PageFigure(name, figure, caption)
