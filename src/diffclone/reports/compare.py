"""The page of `diffclone compare`: scores, differences, losses and settings of several runs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.experiments.run_comparison import ComparedRun, RunDifference, metric_of
from diffclone.reports.comparison_tables import LETTERS, describe_runs, format_mean, score_rows
from diffclone.reports.curves import SERIES
from diffclone.reports.figures import PageFigure, new_figure
from diffclone.reports.numbers import MISSING, unit_label
from diffclone.reports.page import Details, Paragraph, Table, simple_page
from diffclone.reports.theme import LIGHT

METHOD = (
    "Every run plays from the same starts. The intervals are 95 %, with seeds and starts as random effects; runs with "
    "the same seeds are paired by seed. p is two-sided, and corrected for the number of runs (Holm)."
)


def comparison_page(
    runs: Sequence[ComparedRun], differences: Sequence[RunDifference], settings: Mapping[str, Sequence[str]], about: Any
) -> str:
    """Render the page; `about` is the content of --json."""
    first = runs[0].record.results
    title = f"diffclone: {len(runs)} runs on {first['task']}"
    content: list[Table | PageFigure | Paragraph | Details] = [
        Paragraph(METHOD),
        Table("Runs", ("", "run", "method", "seeds", "starts"), describe_runs(runs)),
        Table(
            f"Scores: {unit_label(metric_of(runs[0].record))}",
            ("run", "mean (95 %)", "minus A (95 %)", "p", "p, corrected"),
            score_rows(runs, differences),
        ),
        draw_differences(runs, differences),
    ]
    if any(run.losses for run in runs):
        content.append(draw_losses(runs))
    if not any("held-out" in name for run in runs for name in run.losses):
        content.append(Paragraph("No run recorded a held-out loss; train with --held-out 0.1 to have one."))
    if settings:
        columns = ("setting", *LETTERS[: len(runs)])
        rows = [[name, *(value or MISSING for value in values)] for name, values in settings.items()]
        content.append(Table("Settings that differ", columns, rows))
    content.append(Details("All numbers", json.dumps(about, indent=1)))
    return simple_page(title, content)


def draw_differences(runs: Sequence[ComparedRun], differences: Sequence[RunDifference]) -> PageFigure:
    """Draw the difference of each run to the first, with its interval."""
    names = [f"{letter} − A" for letter in LETTERS[1 : len(runs)]]
    unit = unit_label(metric_of(runs[0].record))
    with new_figure(6.4, 0.9 + 0.4 * len(names)) as figure:
        axes = figure.add_subplot()
        axes.axvline(0, color=LIGHT["line"], linewidth=1)
        for k, difference in enumerate(differences):
            low, high = difference.interval
            axes.plot([low, high], [k, k], color=LIGHT["blue"], linewidth=1.6)
            axes.plot([difference.estimate.mean], [k], "o", color=LIGHT["blue"], markersize=5)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel(f"difference in {unit}")
    words = [
        f"{name}: {format_mean(d.estimate.mean, d.interval, sign='+')}"
        for name, d in zip(names, differences, strict=True)
    ]
    return PageFigure("differences", figure, "Differences to run A with 95 % intervals.", f"{'; '.join(words)}.")


def draw_losses(runs: Sequence[ComparedRun]) -> PageFigure:
    """Draw one panel per loss and one line per run: the mean over members, and their range."""
    names = dict.fromkeys(name for run in runs for name in run.losses)
    ends: list[str] = []
    with new_figure(4.8 * len(names) + 1.0, 3.4) as figure:
        panels = figure.subplots(1, len(names), squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            lowest = 1.0
            for k, run in enumerate(runs):
                if name not in run.losses:
                    continue
                updates, values = run.losses[name]
                colour = LIGHT[SERIES[k % len(SERIES)][0]]
                axes.plot(updates, values.mean(1), color=colour, linewidth=1.3, label=LETTERS[k])
                axes.fill_between(updates, values.min(1), values.max(1), color=colour, alpha=0.15, linewidth=0)
                lowest = min(lowest, float(values.min()))
                ends.append(f"{name} of {LETTERS[k]} ends at {values[-1].mean():.4g}")
            axes.set_yscale("log" if lowest > 0 else "linear")
            axes.set_xlabel("updates")
            axes.set_title(name, loc="left")
        handles = {
            label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        panels[-1].legend(handles.values(), handles.keys(), loc="center left", bbox_to_anchor=(1, 0.5))
        figure.tight_layout()
    caption = "Losses of the policies during training: mean over members, and their range."
    return PageFigure("losses", figure, caption, f"{'; '.join(ends)}.")
