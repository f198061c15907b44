"""Figures of the inspection's page. Each has a second version for narrow screens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from diffclone.reports.episode_player import PlayedEpisode
from diffclone.reports.figures import NARROW, PageFigure, draw_dots, draw_twice, new_figure, put_legend
from diffclone.reports.theme import LIGHT

Points = npt.NDArray[np.floating]

MAX_HISTOGRAMS = 96
"""Histograms per figure; further dimensions are left out."""
BINS = 40
LABEL_ROOM = 0.3
"""Share of a histogram that the label of an end takes."""
UNUSUAL = (("red", "-"), ("orange", "--"))
"""Colour and line of the most unusual episodes."""


@final
@dataclass(frozen=True)
class Dimension:
    """A dimension of unusual episodes beside the 5 % to 95 % range and the median of the others."""

    name: str
    low: Points
    median: Points
    high: Points
    lines: Mapping[int, Points]
    """By the number of the episode."""


def draw_coverage(places: Points, episodes: Sequence[PlayedEpisode], method: str) -> PageFigure:
    """Draw the map of states, with the most unusual episodes on it."""

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 4.2) if narrow else (8.6, 5.2))) as figure:
            axes = figure.add_subplot()
            draw_dots(axes, places, colour="soft", size=2.6, alpha=0.45, label="states of all episodes")
            shown = [episode for episode in episodes if episode.unusual]
            for episode, (colour, style) in zip(shown, UNUSUAL, strict=False):
                label = f"episode {episode.number}"
                axes.plot(*episode.places.T, style, color=LIGHT[colour], linewidth=1.4, label=label)
                axes.plot(*episode.places[0], "o", color=LIGHT[colour], markersize=6)
            axes.set_xlabel("first direction")
            axes.set_ylabel("second direction")
            put_legend(figure, narrow=narrow)
        return figure

    caption = f"Where the states are ({method}): all episodes, and the most unusual ones from their start (dot)."
    return draw_twice("coverage", draw, caption, f"{len(places):,} states are shown.")


def draw_profiles(profiles: Sequence[Dimension]) -> PageFigure:
    """Draw unusual episodes beside the range of the others."""

    def draw(*, narrow: bool) -> Figure:
        across = 1 if narrow else min(3, len(profiles))
        down = -(-len(profiles) // across)
        with new_figure(NARROW if narrow else 10.4, (1.9 if narrow else 2.3) * down + 0.4) as figure:
            for k, profile in enumerate(profiles):
                axes = figure.add_subplot(down, across, k + 1)
                x = np.linspace(0, 100, len(profile.median))
                axes.fill_between(
                    x, profile.low, profile.high, color=LIGHT["wall"], linewidth=0, label="5 % … 95 % of the others"
                )
                axes.plot(x, profile.median, color=LIGHT["soft"], linewidth=1.2, label="median of the others")
                for (number, line), (colour, style) in zip(profile.lines.items(), UNUSUAL, strict=False):
                    axes.plot(x, line, style, color=LIGHT[colour], linewidth=1.5, label=f"episode {number}")
                axes.set_title(profile.name, loc="left")
                if k >= len(profiles) - across:
                    axes.set_xlabel("percent of the episode")
            put_legend(figure, narrow=narrow)
        return figure

    caption = "The dimensions in which the most unusual episode differs most from the others."
    names = ", ".join(profile.name for profile in profiles)
    return draw_twice("profiles", draw, caption, f"In this order: {names}.")


def draw_histograms(name: str, values: Points, bounds: tuple[Points, Points] | None = None) -> PageFigure:
    """Draw one small histogram per dimension, with the bounds as dashed lines."""
    dropped = f"; the first {MAX_HISTOGRAMS} of {values.shape[1]}" if values.shape[1] > MAX_HISTOGRAMS else ""
    values = values[:, :MAX_HISTOGRAMS]

    def draw(*, narrow: bool) -> Figure:
        across = min(values.shape[1], 2 if narrow else 5)
        rows = -(-values.shape[1] // across)
        height = 1.15 if values.shape[1] > across else 2.0
        with new_figure(NARROW if narrow else 2.1 * across + 0.4, height * rows + 0.3) as figure:
            for k, column in enumerate(values.T):
                axes = figure.add_subplot(rows, across, k + 1)
                known = [] if bounds is None else [float(side[k]) for side in bounds if np.isfinite(side[k])]
                ends = [min([float(column.min()), *known]), max([float(column.max()), *known])]
                counts, edges = np.histogram(column.astype(np.float64), bins=BINS, range=(ends[0], ends[1]))
                axes.stairs(counts, edges, fill=True, color=LIGHT["blue"])
                for bound in known:
                    axes.axvline(bound, color=LIGHT["red"], linestyle="--", linewidth=1.2)
                axes.set_title(f"{name} {k}", fontsize=8, pad=2, loc="left")
                axes.set_yticks([])
                label_ends(axes, ends, known)
            figure.tight_layout()
        return figure

    marked = "; dashed lines are the bounds" if bounds is not None else ""
    caption = f"Histogram of each dimension of {name}{marked}{dropped}."
    return draw_twice(f"histograms-{name}", draw, caption, "")


def label_ends(axes: Axes, ends: Sequence[float], bounds: Sequence[float]) -> None:
    """Label the ends of a histogram, and the bounds between them where there is room."""
    width = ends[1] - ends[0]
    if not width:
        axes.set_xticks(ends[:1], [f"{ends[0]:.3g} (constant)"], fontsize=8)
        return
    inner = [x for x in bounds if ends[0] + LABEL_ROOM * width < x < ends[1] - LABEL_ROOM * width]
    places = [ends[0], *inner, ends[1]]
    texts = axes.set_xticks(places, [f"{x:.3g}".replace("-", "−") for x in places], fontsize=8)
    # Labels at the ends are drawn inwards, so that they do not reach into the next histogram.
    texts[0].label1.set_horizontalalignment("left")
    texts[-1].label1.set_horizontalalignment("right")


def draw_lengths_and_scores(lengths: npt.NDArray[np.int64], scores: Points) -> PageFigure:
    """Draw the distribution of episode lengths, and how unusual each episode is, in the order of the data."""

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 4.6) if narrow else (10.0, 2.8))) as figure:
            first, second = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
            # Every bin has the same number of whole steps, else the bars would show the bins.
            each = -(-(int(np.ptp(lengths)) + 1) // BINS)
            edges = np.arange(lengths.min(), lengths.max() + each + 1, each) - 0.5
            first.stairs(np.histogram(lengths, edges)[0], edges, fill=True, color=LIGHT["blue"])
            first.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            first.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            first.set_title("steps per episode", loc="left")
            first.set_ylabel("episodes")
            second.plot(np.arange(len(scores)), scores, ".", color=LIGHT["blue"], markersize=4)
            for episode, (colour, _) in zip(np.argsort(-scores, kind="stable")[:2], UNUSUAL, strict=False):
                second.plot([episode], [scores[episode]], "o", color=LIGHT[colour], markersize=6)
                offset: Any = {"xytext": (6, -3), "textcoords": "offset points"}
                second.annotate(str(episode), (float(episode), float(scores[episode])), **offset)
            second.set_title("how unusual each episode is", loc="left")
            second.set_xlabel("episode")
            figure.tight_layout()
        return figure

    description = f"Episodes have {lengths.min()} to {lengths.max()} steps."
    return draw_twice("lengths", draw, "Lengths of episodes, and how unusual each one is.", description)
