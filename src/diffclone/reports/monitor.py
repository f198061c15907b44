"""The page of `diffclone calibrate`: scores of the calibration episodes, and the thresholds that were found."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, put_legend
from diffclone.reports.page import Details, Page, Paragraph, Section, Table, render_page
from diffclone.reports.theme import LIGHT

Numbers = npt.NDArray[np.float64]

MOST_EPISODES, MOST_POINTS = 60, 200
"""Lines in a figure, and points per line."""
PARTS = {"both": "states and actions", "state": "states", "action": "actions"}
MEANING = (
    "An alarm is raised at a step where the score is above its threshold. The bound holds for new episodes of the "
    "distribution that the calibration episodes come from; it says nothing about how many failures are found."
)


@final
@dataclass(frozen=True)
class PartScores:
    """One calibrated number of the monitor."""

    name: str
    """The part: state, action or both."""
    episodes: Sequence[Numbers]
    """The score at each step of each calibration episode, averaged over the window."""
    limits: Numbers
    """The threshold at each step; one number if it is constant."""
    single: float
    """The threshold of single steps."""
    alarms: int
    """Calibration episodes that raise an alarm."""

    def limit(self, steps: int) -> Numbers:
        """Return the threshold at the first steps. Steps after the last one known have its threshold."""
        return self.limits[np.minimum(np.arange(steps), len(self.limits) - 1)]


@final
@dataclass(frozen=True)
class MonitorPage:
    """Everything that the page shows."""

    run: str
    score: str
    threshold: str
    """The kind of threshold."""
    window: int
    alpha: float
    false_alarms: tuple[float, float]
    """The 95 % interval of the rate of this calibration."""
    description: str
    parts: Sequence[PartScores]
    calibration: Mapping[str, Any]
    """The content of calibration.json."""


def monitor_page(shown: MonitorPage) -> str:
    """Render the page."""
    low, high = (100 * end for end in shown.false_alarms)
    count = len(shown.parts[0].episodes)
    rows = [
        [p.name, describe_limits(p.limits), f"{p.single:.4g}", f"{p.alarms} of {len(p.episodes)}"] for p in shown.parts
    ]
    columns = ("part", "threshold along an episode", "threshold of single steps", "calibration episodes with an alarm")
    return render_page(
        Page(
            title=f"The monitor of {shown.run}",
            kicker="calibrate",
            lead=[
                f"At most {100 * shown.alpha:g} % of good episodes raise a false alarm, on average over calibrations. "
                f"This calibration has between {low:.1f} and {high:.1f} % with probability 95 %.",
                MEANING,
            ],
            facts=[
                (shown.score, "score"),
                (f"{100 * shown.alpha:g} %", "false alarms at most"),
                (str(count), "calibration episodes"),
                (str(shown.window), "steps that a score is averaged over"),
            ],
            sections=[
                *(
                    Section(f"part-{p.name}", f"Scores of {PARTS.get(p.name, p.name)}", [draw_scores(p)])
                    for p in shown.parts
                ),
                Section(
                    "thresholds",
                    "Thresholds",
                    [Table(f"Thresholds ({shown.threshold})", columns, rows), Paragraph(shown.description)],
                ),
                Section("file", "File", [Details("calibration.json", json.dumps(shown.calibration, indent=1))]),
            ],
            command="diffclone calibrate --page",
        )
    )


def describe_limits(limits: Numbers) -> str:
    """Return a constant threshold, or the range of one that varies."""
    low, high = f"{limits.min():.4g}", f"{limits.max():.4g}"
    return low if low == high else f"{low} … {high}"


def draw_scores(part: PartScores) -> PageFigure:
    """Draw the scores of some calibration episodes with the threshold, and how far each episode is below it."""
    longest = max(len(y) for y in part.episodes)
    room = np.array([float((part.limit(len(y)) - y).min()) for y in part.episodes])

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 5.6) if narrow else (10.4, 3.8))) as figure:
            shape: Any = {"nrows": 2, "height_ratios": (3, 2)} if narrow else {"ncols": 2, "width_ratios": (3, 2)}
            left, right = figure.subplots(**shape)
            for k, y in enumerate(part.episodes[:MOST_EPISODES]):
                at = np.unique(np.linspace(0, len(y) - 1, min(MOST_POINTS, len(y))).round().astype(int))
                label = "calibration episodes" if k == 0 else None
                left.plot(at, y[at], color=LIGHT["blue"], linewidth=0.8, alpha=0.5, label=label)
            left.plot(part.limit(longest), color=LIGHT["red"], linewidth=1.8, linestyle="--", label="threshold")
            left.set_xlabel("step")
            left.set_ylabel("score")
            counts, edges = np.histogram(room, bins=min(30, max(5, len(room) // 3)))
            right.stairs(counts, edges, fill=True, color=LIGHT["blue"])
            right.axvline(0, color=LIGHT["red"], linewidth=1.8, linestyle="--")
            right.set_xlabel("least distance below the threshold")
            right.set_ylabel("episodes")
            right.xaxis.set_major_locator(MaxNLocator(4))
            right.yaxis.set_major_locator(MaxNLocator(6, integer=True))
            put_legend(figure, narrow=narrow)
        return figure

    caption = "Scores over the steps with their threshold, and how near each episode comes to it; below 0 is an alarm."
    description = f"{part.alarms} of {len(part.episodes)} calibration episodes raise an alarm."
    return draw_twice(f"scores-{part.name}", draw, caption, description)
