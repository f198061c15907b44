"""The page of `diffclone demo`."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from matplotlib.figure import Figure

from diffclone.records import Record
from diffclone.reports.curves import METHODS
from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, put_legend
from diffclone.reports.page import Details, Page, Paragraph, Section, Table, Videos, render_page
from diffclone.reports.theme import LIGHT
from diffclone.reports.videos import Video

QUICK = "A quick run: these numbers say nothing about the methods."
STYLES = {"BC": METHODS["BC"], "DBC": METHODS["DBC"], "flow matching": METHODS["Flow matching"]}


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
    marked = next((k for k, point in enumerate(shown.points) if point["chosen"]), None)
    found = [Section("rollouts", "Rollouts", [Videos(shown.videos)])] if shown.videos else []
    return render_page(
        Page(
            title="FetchPick from 27 demonstrations",
            kicker="demo",
            lead=[
                *([QUICK] if any(record.quick for record in shown.records) else []),
                f"Chosen without the environment, the policy succeeds in {100 * shown.final:.0f} % of the episodes.",
                "An arm learns to pick up a block and to carry it to a goal. BC (behavioural cloning alone), DBC "
                "(guided by a diffusion model of the expert's state-action pairs) and flow matching (which draws an "
                "action in eight calls of its network) were trained on part of the demonstrations. The search chose "
                "method and training length on the other part, without the environment; DBC is shown and not chosen. "
                "The success rates below were measured afterwards.",
            ],
            facts=list_facts(shown),
            sections=[
                Section("success", "Success along training", [draw_success(shown.points, shown.final)]),
                *found,
                Section(
                    "numbers",
                    "All numbers",
                    [
                        Table(shown.caption, shown.columns, shown.rows, marked=marked, filters=(0,)),
                        Paragraph("Intervals are 95 %, resampled over seeds and starts. All run from the same starts."),
                    ],
                ),
                Section("final-record", "Record", [Details("Record of the final policy", records)]),
            ],
            command="diffclone demo",
        )
    )


def list_facts(shown: DemoPage) -> list[tuple[str, str]]:
    """Return the success of the choice, and the best of each method on the way."""
    facts = [(f"{100 * shown.final:.0f} %", "success of the choice, trained on all demonstrations")]
    for method in STYLES:
        own = [point for point in shown.points if point["method"] == method]
        if own:
            last = max(own, key=lambda point: int(point["updates"]))
            facts.append((f"{100 * last['success']:.0f} %", f"{method} after {last['updates']:,} updates"))
    return facts


def draw_success(points: Sequence[Mapping[str, Any]], final: float) -> PageFigure:
    """Draw success over updates, one line per method with its interval, and the choice."""
    ticks = sorted({int(point["updates"]) for point in points})
    described: list[str] = []
    shown = {name: style for name, style in STYLES.items() if any(point["method"] == name for point in points)}
    for method in shown:
        own = [point for point in points if point["method"] == method]
        values = ", ".join(f"{100 * p['success']:.0f} at {p['updates']:,}" for p in own)
        described.append(f"{method}: {values}.")

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 3.4) if narrow else (8.0, 4.2))) as figure:
            axes = figure.add_subplot()
            for method, (colour, marker) in shown.items():
                own = [point for point in points if point["method"] == method]
                updates, success = [p["updates"] for p in own], [100 * p["success"] for p in own]
                axes.plot(updates, success, color=LIGHT[colour], marker=marker, markersize=4.5, label=method)
                low, high = [100 * p["low"] for p in own], [100 * p["high"] for p in own]
                axes.fill_between(updates, low, high, color=LIGHT[colour], alpha=0.15, linewidth=0)
            for point in points:
                if point["chosen"]:
                    options: dict[str, Any] = {"facecolors": "none", "edgecolors": LIGHT["ink"], "linewidths": 1.5}
                    label = "chosen without the environment"
                    axes.scatter([point["updates"]], [100 * point["success"]], s=140, zorder=5, label=label, **options)
            label = "the choice, trained on all demonstrations"
            axes.axhline(100 * final, color=LIGHT["green"], linestyle="--", linewidth=1, label=label)
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.minorticks_off()
            axes.set_ylim(-4, 104)
            axes.set_xlabel("updates")
            axes.set_ylabel("success, %")
            axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
            put_legend(figure, narrow=narrow, columns=2)
        return figure

    caption = "Success along training, with 95 % intervals."
    return draw_twice("success", draw, caption, f"{' '.join(described)} The final policy: {100 * final:.0f}.")
