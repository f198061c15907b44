"""The page about demonstrations: what was found, and pictures of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from diffclone.reports.figures import STYLE, Points, to_svg
from diffclone.reports.page import Picture, Source, Table, Text, page

INK, ODD = "#0f766e", "#dc2626"
COLUMNS = 6
"""Histograms in a row."""
MOST = 96
"""Histograms in a figure; more are not drawn."""
LINES = 10
"""Dimensions of an example that are drawn, those that vary most."""
FINDINGS = ("severity", "what", "where", "what to do")
RANGES = ("dimension", "lowest", "mean", "highest", "standard deviation", "bounds")


@final
@dataclass(frozen=True)
class Shown:
    """What the page is made of, in plain arrays and rows."""

    title: str
    about: Mapping[str, str]
    """What was understood."""
    findings: Sequence[Sequence[str]]
    ranges: Sequence[Sequence[str]]
    ranking: Sequence[Sequence[str]]
    ranking_columns: Sequence[str]
    samples: Mapping[str, Points]
    """Some rows of each part, by its name: a column a histogram."""
    lengths: npt.NDArray[np.int64]
    scores: Points
    """How unlike each episode is."""
    examples: Mapping[str, tuple[Points, Points]]
    """Observations and actions of episodes to look at, by their captions."""
    source: str
    """Where the demonstrations say that they come from."""


def inspection_page(shown: Shown) -> str:
    """The whole document."""
    parts: list[Table | Picture | Text | Source] = [
        Table("What was understood", ("", ""), list(shown.about.items())),
        Table("Findings", FINDINGS, shown.findings)
        if shown.findings
        else Text("No check found anything. That is no promise: checks see arrays, and not what they mean."),
        Table("Episodes most unlike the others", shown.ranking_columns, shown.ranking),
        Picture(lengths_and_scores(shown.lengths, shown.scores), "Lengths of episodes, and how unlike each is."),
    ]
    for caption, (obs, act) in shown.examples.items():
        parts.append(Picture(trajectory(obs, act), caption))
    for name, values in shown.samples.items():
        left = f"; the first {MOST} of {values.shape[1]}" if values.shape[1] > MOST else ""
        parts.append(Picture(histograms(name, values[:, :MOST]), f"Histogram of each dimension of {name}{left}."))
    parts.append(Table("Ranges", RANGES, shown.ranges))
    parts.append(Source("Where they come from", shown.source))
    return page(shown.title, parts)


def histograms(name: str, values: Points) -> str:
    """A small panel a dimension."""
    rows = -(-values.shape[1] // COLUMNS)
    with mpl.rc_context({**STYLE, "font.size": 7}):
        figure = Figure(figsize=(10, 1.15 * rows + 0.3))
        for k, column in enumerate(values.T):
            axes = figure.add_subplot(rows, COLUMNS, k + 1)
            counts, edges = np.histogram(column.astype(np.float64), bins=40)
            axes.stairs(counts, edges, fill=True, color=INK)
            axes.set_title(f"{name} {k}", fontsize=7, pad=2)
            axes.set_yticks([])
            axes.set_xticks([edges[0], edges[-1]], [f"{edges[0]:.3g}", f"{edges[-1]:.3g}"])
        figure.tight_layout()
        return to_svg(figure)


def lengths_and_scores(lengths: npt.NDArray[np.int64], scores: Points) -> str:
    """Two panels: how long episodes are, and how unlike, in the order of the data."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.6))
        left, right = figure.subplots(1, 2)
        counts, edges = np.histogram(lengths, bins=min(40, max(1, len(np.unique(lengths)))))
        left.stairs(counts, edges, fill=True, color=INK)
        left.set_title("steps of an episode")
        left.set_ylabel("episodes")
        odd = np.argsort(-scores, kind="stable")[:2]
        right.scatter(np.arange(len(scores)), scores, s=6, color=INK, linewidths=0, rasterized=len(scores) > 5000)
        right.scatter(odd, scores[odd], s=16, color=ODD, linewidths=0)
        for episode in odd:
            right.annotate(str(episode), (episode, scores[episode]), xytext=(4, -3), textcoords="offset points")
        right.set_title("how unlike the others")
        right.set_xlabel("episode")
        figure.tight_layout()
        return to_svg(figure)


def trajectory(obs: Points, act: Points) -> str:
    """Observations above, actions below, over the steps of one episode."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.4))
        for axes, (name, values) in zip(figure.subplots(2, 1, sharex=True), (("obs", obs), ("act", act)), strict=True):
            chosen = np.sort(np.argsort(-values.std(0), kind="stable")[:LINES])
            for k in chosen:
                axes.plot(values[:, k], linewidth=0.9, label=str(k))
            axes.set_ylabel(name)
            axes.legend(frameon=False, ncols=2, fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.axes[-1].set_xlabel("step")
        figure.tight_layout()
        return to_svg(figure)
