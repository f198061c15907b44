"""The page of `diffclone compare`: scores, differences, losses and settings of several runs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from diffclone.experiments.run_comparison import ComparedRun, RunDifference, metric_of
from diffclone.experiments.verdicts import ALPHA
from diffclone.reports.comparison_tables import LETTERS, describe_runs, format_mean, score_rows
from diffclone.reports.curves import SERIES
from diffclone.reports.figures import NARROW, PageFigure, draw_twice, new_figure, number_ticks, put_legend
from diffclone.reports.intervals import Interval, IntervalPlot
from diffclone.reports.numbers import MISSING, unit_label
from diffclone.reports.page import Details, Page, Paragraph, Part, Section, Table, render_page
from diffclone.reports.theme import LIGHT

METHOD = (
    "Every run plays from the same starts. The intervals are 95 %, with seeds and starts as random effects; runs with "
    "the same seeds are paired by seed. p is two-sided, and corrected for the number of runs (Holm)."
)
LINE_STYLES = ("-", "--", "-.", ":")


def comparison_page(
    runs: Sequence[ComparedRun], differences: Sequence[RunDifference], settings: Mapping[str, Sequence[str]], about: Any
) -> str:
    """Render the page; `about` is the content of --json."""
    task, unit = str(runs[0].record.results["task"]), unit_label(metric_of(runs[0].record))
    losses: list[Part] = [draw_losses(runs)] if any(run.losses for run in runs) else []
    if not any("held-out" in name for run in runs for name in run.losses):
        losses.append(Paragraph("No run recorded a held-out loss; train with --held-out 0.1 to have one."))
    differing: list[Part] = [Paragraph("No setting differs.")]
    if settings:
        columns = ("setting", *LETTERS[: len(runs)])
        rows = [[name, *(value or MISSING for value in values)] for name, values in settings.items()]
        differing = [Table("Settings that differ", columns, rows)]
    heads = ("run", "mean (95 %)", "minus A (95 %)", "p", "p, corrected")
    return render_page(
        Page(
            title=f"{len(runs)} runs on {task}",
            kicker="compare",
            lead=[*describe_differences(runs, differences), METHOD],
            facts=[
                (format_mean(run.mean, run.interval).split(" ")[0], f"{letter}: {run.name}")
                for letter, run in zip(LETTERS, runs, strict=False)
            ],
            sections=[
                Section(
                    "differences",
                    "Differences",
                    [
                        plot_differences(runs, differences),
                        Table(f"Scores: {unit}", heads, score_rows(runs, differences)),
                        Table("Runs", ("run", "folder", "method", "seeds", "starts"), describe_runs(runs)),
                    ],
                ),
                Section("losses", "Losses", losses),
                Section("settings", "Settings that differ", differing),
                Section("numbers", "All numbers", [Details("All numbers", json.dumps(about, indent=1))]),
            ],
            command="diffclone compare",
        )
    )


def describe_differences(runs: Sequence[ComparedRun], differences: Sequence[RunDifference]) -> list[str]:
    """Return what was found, in one sentence: the runs whose interval leaves out 0, where p agrees."""
    words: list[str] = []
    for letter, difference in zip(LETTERS[1:], differences, strict=False):
        low, high = difference.interval
        shown = difference.p <= ALPHA
        better, worse = shown and low > 0, shown and high < 0
        verdict = "better than" if better else "worse than" if worse else "not distinguishable from"
        words.append(f"{letter} is {verdict} A")
    return [f"{'; '.join(words)} ({unit_label(metric_of(runs[0].record))}, 95 % intervals)."]


def plot_differences(runs: Sequence[ComparedRun], differences: Sequence[RunDifference]) -> IntervalPlot:
    """Return the difference of each run to the first, with its interval."""
    rows = [
        Interval(
            label=f"{letter} − A",
            about=run.name,
            text=format_mean(d.estimate.mean, d.interval, sign="+").split(" ")[0],
            value=d.estimate.mean,
            interval=d.interval,
            other_text=format_mean(d.estimate.mean, d.interval, sign="+").partition(" ")[2].strip("()"),
        )
        for letter, run, d in zip(LETTERS[1:], runs[1:], differences, strict=False)
    ]
    unit = f"difference in {unit_label(metric_of(runs[0].record))}"
    return IntervalPlot("", unit, rows, reference=0.0, caption="Differences to run A with 95 % intervals.")


def draw_losses(runs: Sequence[ComparedRun]) -> PageFigure:
    """Draw one panel per loss and one line per run: the mean over members, and their range."""
    names = dict.fromkeys(name for run in runs for name in run.losses)
    ends = [
        f"{name} of {LETTERS[k]} ends at {run.losses[name][1][-1].mean():.4g}"
        for name in names
        for k, run in enumerate(runs)
        if name in run.losses
    ]

    def draw(*, narrow: bool) -> Figure:
        size = (NARROW, 2.9 * len(names)) if narrow else (4.8 * len(names) + 0.4, 3.4)
        with new_figure(*size) as figure:
            shape = (len(names), 1) if narrow else (1, len(names))
            panels = figure.subplots(*shape, squeeze=False).ravel()
            for axes, name in zip(panels, names, strict=True):
                lowest = 1.0
                for k, run in enumerate(runs):
                    if name not in run.losses:
                        continue
                    updates, values = run.losses[name]
                    colour = LIGHT[SERIES[k % len(SERIES)][0]]
                    style = LINE_STYLES[k % len(LINE_STYLES)]
                    axes.plot(updates, values.mean(1), style, color=colour, linewidth=1.5, label=LETTERS[k])
                    axes.fill_between(updates, values.min(1), values.max(1), color=colour, alpha=0.15, linewidth=0)
                    lowest = min(lowest, float(values.min()))
                axes.set_yscale("log" if lowest > 0 else "linear")
                number_ticks(axes.yaxis, log=lowest > 0)
                axes.xaxis.set_major_locator(MaxNLocator(5))
                number_ticks(axes.xaxis)
                axes.set_xlabel("updates")
                axes.set_title(name, loc="left")
            put_legend(figure, narrow=narrow, columns=8)
        return figure

    caption = "Losses of the policies during training: mean over members, and their range."
    return draw_twice("losses", draw, caption, f"{'; '.join(ends)}.")
