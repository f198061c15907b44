"""The page of a search: what `diffclone train` tried without an environment, and what it chose."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from diffclone.reports.curves import SERIES
from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, put_legend
from diffclone.reports.numbers import MISSING
from diffclone.reports.page import Details, Page, Paragraph, Section, Table, render_page
from diffclone.reports.theme import LIGHT
from diffclone.settings import describe_method, describe_values

STYLES = {"bc": "-", "dbc": "--", "flow-matching": "-."}
EXPLANATIONS = {
    "error_absolute": "the mean absolute error of the action on held-out states, in standard deviations of the actions",
    "error_squared": "the mean squared error of the action on held-out states, in standard deviations of the actions",
    "near_absolute": "the error of the action beside held-out states, against the action of the nearest demonstration",
    "sensitivity": "how much the action changes with the state",
    "disagreement": "the difference between seeds with the same settings",
    "track": "the distance from a held-out demonstration after some steps in learned dynamics",
    "stray": "the distance from the nearest demonstration state after some steps in learned dynamics",
    "follow": "the error of the action after some steps in learned dynamics",
    "recover": "the distance from a held-out demonstration after some steps from beside it, in learned dynamics",
    "return": "the distance from the nearest demonstration after some steps from beside it, in learned dynamics",
}
Candidate = Mapping[str, Any]


def search_page(state: Mapping[str, Any]) -> str:
    """Render the page from the content of search.json."""
    candidates: Sequence[Candidate] = state["candidates"]
    chosen, metrics = candidates[state["chosen"]], [str(name) for name in state["metrics"]]
    shown = [name for name in metrics if any(c["metrics"].get(name) is not None for c in candidates)]
    order = sorted(candidates, key=lambda c: (c["score"] is None, c["score"] or 0.0))
    rows = [
        [
            describe_method(c["method"]),
            describe_values(c["fields"]),
            f"{c['updates']:,}",
            *(number(c, name) for name in shown),
            score(c),
        ]
        for c in order
    ]
    held_out = state["held_out"]
    return render_page(
        Page(
            title="What was tried and chosen",
            kicker="train",
            lead=[
                f"Chosen: {name_of(chosen)}, {chosen['updates']:,} updates, then trained on all demonstrations. The "
                f"choice used {held_out['episodes']} held-out episodes ({held_out['steps']} steps) that no candidate "
                "was trained on, and no environment.",
                *state.get("notes", []),
            ],
            facts=[
                (describe_method(chosen["method"]), "method"),
                (f"{chosen['updates']:,}", "updates"),
                (f"{len(candidates)}", "candidates"),
                (f"{held_out['episodes']}", "held-out episodes"),
            ],
            sections=[
                Section(
                    "metrics",
                    "Metrics on held-out episodes",
                    [
                        draw_metrics(candidates, chosen, shown),
                        *(Paragraph(f"{name}: {explain(name)}.") for name in shown),
                    ],
                ),
                Section(
                    "candidates",
                    "All candidates",
                    [
                        *([Paragraph(state["rule"])] if "rule" in state else []),
                        Table(
                            "All candidates, the best first",
                            ["method", "settings", "updates", *shown, "score"],
                            rows,
                            marked=order.index(chosen),
                            filters=(0, 2),
                        ),
                    ],
                ),
                Section("file", "File", [Details("search.json", json.dumps(state, indent=1))]),
            ],
            command="diffclone train",
        )
    )


def draw_metrics(candidates: Sequence[Candidate], chosen: Candidate, metrics: Sequence[str]) -> PageFigure:
    """Draw one panel per metric and one line per configuration over the updates, with the choice marked."""
    lines: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        lines.setdefault(name_of(candidate), []).append(candidate)

    def draw(*, narrow: bool) -> Figure:
        with new_figure(*((NARROW, 2.9 * len(metrics)) if narrow else (4.6 * len(metrics) + 0.4, 3.6))) as figure:
            shape = (len(metrics), 1) if narrow else (1, len(metrics))
            panels = figure.subplots(*shape, squeeze=False).ravel()
            for axes, metric in zip(panels, metrics, strict=True):
                for (name, points), (colour, marker) in zip(lines.items(), SERIES * len(lines), strict=False):
                    known = [
                        (c["updates"], c["metrics"][metric]) for c in points if c["metrics"].get(metric) is not None
                    ]
                    style = STYLES.get(points[0]["method"], ":")
                    options: dict[str, Any] = {
                        "linestyle": style,
                        "marker": marker,
                        "markersize": 3.5,
                        "linewidth": 1.1,
                    }
                    axes.plot(*zip(*known, strict=True), color=LIGHT[colour], label=name, **options)
                ring: dict[str, Any] = {
                    "facecolors": "none",
                    "edgecolors": LIGHT["ink"],
                    "linewidths": 1.5,
                    "zorder": 5,
                }
                axes.scatter([chosen["updates"]], [chosen["metrics"][metric]], s=130, **ring)
                axes.set_xscale("log")
                ticks = sorted({c["updates"] for c in candidates})
                axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
                axes.minorticks_off()
                axes.set_xlabel("updates")
                axes.set_title(metric, loc="left")
            put_legend(figure, narrow=narrow, columns=2)
        return figure

    caption = "Metrics on held-out episodes, mean over seeds; the circle is the choice. Lower is better."
    values = ", ".join(f"{name} {number(chosen, name)}" for name in metrics)
    return draw_twice("search", draw, caption, f"{name_of(chosen)}, {chosen['updates']:,} updates: {values}.")


def name_of(candidate: Candidate) -> str:
    """Return method and settings."""
    return f"{describe_method(candidate['method'])}, {describe_values(candidate['fields'])}"


def number(candidate: Candidate, metric: str) -> str:
    """Return a metric as text."""
    value = candidate["metrics"].get(metric)
    return MISSING if value is None else f"{value:.3f}"


def score(candidate: Candidate) -> str:
    """Return the score as text."""
    return MISSING if candidate["score"] is None else f"{candidate['score']:.3f}"


def explain(metric: str) -> str:
    """Return what a metric measures."""
    return EXPLANATIONS.get(metric) or EXPLANATIONS.get(metric.rpartition("_")[0], "a metric of training.selection")
