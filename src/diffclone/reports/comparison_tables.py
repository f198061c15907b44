"""The tables of `diffclone compare`, as rows of text for the terminal and for the page. Imports no matplotlib."""

from collections.abc import Sequence

from diffclone.experiments.run_comparison import ComparedRun, RunDifference
from diffclone.reports.numbers import MISSING, format_p

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Names of the runs in tables and figures."""


def describe_runs(runs: Sequence[ComparedRun]) -> list[list[str]]:
    """Return letter, name, method, number of seeds and number of starts of each run."""
    return [
        [letter, run.name, str(run.record.settings.get("type")), str(len(run.seeds)), str(run.outcomes.shape[1])]
        for letter, run in zip(LETTERS, runs, strict=False)
    ]


def score_rows(runs: Sequence[ComparedRun], differences: Sequence[RunDifference]) -> list[list[str]]:
    """Return letter, mean, difference to the first run, p and corrected p of each run, with intervals."""
    rows = [[LETTERS[0], format_mean(runs[0].mean, runs[0].interval), MISSING, MISSING, MISSING]]
    for k, (run, difference) in enumerate(zip(runs[1:], differences, strict=True), 1):
        gap = format_mean(difference.estimate.mean, difference.interval, sign="+")
        numbers = [format_mean(run.mean, run.interval), gap, format_p(difference.p), format_p(difference.adjusted)]
        rows.append([LETTERS[k], *numbers])
    return rows


def format_mean(mean: float, interval: tuple[float, float], sign: str = "-") -> str:
    """Format a mean with its interval: at most one decimal, and four digits if that is less."""
    decimals = 1 if max(map(abs, (mean, *interval))) < 1000 else 0
    low, middle, high = (f"{value:{sign}.{decimals}f}" for value in (interval[0], mean, interval[1]))
    return f"{middle} ({low} … {high})"
