"""The page of `diffclone demo`."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from diffclone.records import Record
from diffclone.reports.figures import PageFigure, new_figure
from diffclone.reports.page import Details, Paragraph, Table, simple_page
from diffclone.reports.theme import LIGHT
from diffclone.reports.videos import Video

STYLES = {"BC": ("orange", "o"), "DBC": ("purple", "s")}


@final
@dataclass(frozen=True)
class DemoPage:
    """Everything that the page shows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    points: Sequence[Mapping[str, Any]]
    """Method, updates, success with its interval, and whether the search chose it."""
    final: float
    """Success of the choice, trained on all demonstrations."""
    videos: Sequence[Video]
    records: Sequence[Record]


def demo_page(shown: DemoPage) -> str:
    """Render the page."""
    records = "\n\n".join(json.dumps(dataclasses.asdict(record), indent=1) for record in shown.records)
    return simple_page(
        "diffclone: FetchPick from 27 demonstrations",
        [
            Paragraph(
                "An arm learns to pick up a block and to carry it to a goal. BC (behavioural cloning alone) and DBC "
                "(guided by a diffusion model of the expert's state-action pairs) were trained on part of the "
                "demonstrations. The search chose method, settings and training length on the other part, without the "
                "environment; the success rates below were measured afterwards."
            ),
            draw_success(shown.points, shown.final),
            Table(shown.caption, shown.columns, shown.rows),
            Paragraph("Intervals are 95 %, resampled over seeds and starts. All run from the same starts."),
            *shown.videos,
            Details("Record of the final policy", records),
        ],
    )


def draw_success(points: Sequence[Mapping[str, Any]], final: float) -> PageFigure:
    """Draw success over updates, one line per method with its interval, and the choice."""
    described: list[str] = []
    with new_figure(6.4, 3.6) as figure:
        axes = figure.add_subplot()
        for method, (colour, marker) in STYLES.items():
            own = [point for point in points if point["method"] == method]
            updates, success = [p["updates"] for p in own], [100 * p["success"] for p in own]
            axes.plot(updates, success, color=LIGHT[colour], marker=marker, markersize=4.5, label=method)
            low, high = [100 * p["low"] for p in own], [100 * p["high"] for p in own]
            axes.fill_between(updates, low, high, color=LIGHT[colour], alpha=0.15, linewidth=0)
            values = ", ".join(f"{value:.0f} at {update:,}" for update, value in zip(updates, success, strict=True))
            described.append(f"{method}: {values}.")
        for point in points:
            if point["chosen"]:
                options: dict[str, Any] = {"facecolors": "none", "edgecolors": LIGHT["ink"], "linewidths": 1.5}
                label = "chosen without the environment"
                axes.scatter([point["updates"]], [100 * point["success"]], s=140, zorder=5, label=label, **options)
        label = "the choice, trained on all demonstrations"
        axes.axhline(100 * final, color=LIGHT["green"], linestyle="--", linewidth=1, label=label)
        ticks = sorted({point["updates"] for point in points})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(0, 102)
        axes.set_xlabel("updates")
        axes.set_ylabel("success, %")
        axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    caption = "Success along training, with 95 % intervals."
    return PageFigure("success", figure, caption, f"{' '.join(described)} The final policy: {100 * final:.0f}.")
