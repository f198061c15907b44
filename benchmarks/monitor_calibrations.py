"""Simulate many calibrations of a monitor: how often do new episodes of the same distribution raise an alarm?

python -m benchmarks.monitor_calibrations                 print a table
python -m benchmarks.monitor_calibrations --out FILE      also append a Record to FILE

Each calibration draws calibration episodes and new episodes, computes the threshold and counts the new episodes that
exceed it. Scores are synthetic processes, or the scores of a small policy on the bundled demonstrations of Maze, which
are split again for each calibration; the training episodes are in none of the splits.
"""

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro

from diffclone.cli.console import print_table
from diffclone.deploy.monitors.thresholds import agree, calibrate_threshold, find_unit, moving_average, split_shape
from diffclone.records import Record

Numbers = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], list[Numbers]]
"""Draws the scores of some episodes of one distribution."""

WINDOW = 5
RULES = ("constant", "window", "band", "band and window", "both", "both, band")
"""Kinds of thresholds: "both" has two scores that must agree."""


def draw_lengths(rng: np.random.Generator, count: int) -> list[int]:
    """Draw lengths of episodes."""
    return rng.integers(15, 40, count).tolist()


def heavy_walks(rng: np.random.Generator, count: int) -> list[Numbers]:
    """Draw random walks with heavy tails: the steps of an episode depend on each other."""
    return [np.abs(rng.standard_t(2, n).cumsum()) for n in draw_lengths(rng, count)]


def peaks(rng: np.random.Generator, count: int) -> list[Numbers]:
    """Draw scores with a peak at one moment and a level of their own for each episode."""
    return [
        rng.lognormal(0, 0.5) * (0.2 + np.exp(-0.5 * ((np.arange(n) - 8) / 3) ** 2) + 0.1 * rng.random(n))
        for n in draw_lengths(rng, count)
    ]


def drifts(rng: np.random.Generator, count: int) -> list[Numbers]:
    """Draw scores that grow with time."""
    return [0.1 * np.arange(n) * rng.random() + rng.normal(size=n) for n in draw_lengths(rng, count)]


PROCESSES: dict[str, Draw] = {"heavy walks": heavy_walks, "peaks": peaks, "drifts": drifts}


def false_alarm_rate(y: list[Numbers], second: list[Numbers], rule: str, alpha: float, count: int) -> float:
    """Calibrate on the first `count` episodes; return the share of the others with an alarm."""
    shape, rest = list[int](), list(range(count))
    if "both" in rule or "band" in rule:
        shape, rest = split_shape(count, alpha)
    if "both" in rule:
        units = [find_unit([episodes[k] for k in shape]) for episodes in (y, second)]
        y = [agree(pair, units) for pair in zip(y, second, strict=True)]
    y = [moving_average(scores, WINDOW if "window" in rule else 1) for scores in y]
    kind = "band" if "band" in rule else "constant"
    threshold = calibrate_threshold([y[k] for k in rest], alpha, kind, [y[k] for k in shape])
    return float(np.mean([threshold.exceeded(new, np.arange(len(new))).any() for new in y[count:]]))


def simulate(draw: Draw, rule: str, alpha: float, *, calibrations: int, episodes: int, tests: int) -> Numbers:
    """Return the rate of false alarms of each of many calibrations."""
    rates: list[float] = []
    for k in range(calibrations):
        rng = np.random.default_rng([k, len(rule)])
        y = draw(rng, episodes + tests)
        second = [np.abs(scores + rng.normal(size=len(scores))) for scores in y]
        rates.append(false_alarm_rate(y, second, rule, alpha, episodes))
    return np.array(rates)


def maze_scores() -> dict[str, list[Numbers]]:
    """Return the scores of the demonstrations of Maze that a small policy was not trained on, by episode."""
    from diffclone import DBC, DiffusionGuide, Network, Training, fit
    from diffclone.deploy.calibration import make_monitor
    from diffclone.deploy.monitor import split_episodes
    from diffclone.deploy.monitors import SCORES
    from diffclone.tasks import TASKS

    demos = TASKS["maze"].demonstrations()
    training, rest = demos.take(range(20)), demos.take(range(20, demos.num_episodes))
    guide = DiffusionGuide(training=Training(updates=1000, lr=1e-3), width=64)
    method = DBC(training=Training(updates=500, lr=1e-3), network=Network(width=64, depth=2), guide=guide)
    policy = fit(method, training, seeds=(0, 1, 2), device="cpu", suggest=False)
    return {
        name: list(split_episodes(make_monitor(policy, 0, name, training).values(rest.obs, rest.act)["both"], rest))
        for name in SCORES
    }


def resplit(scores: dict[str, list[Numbers]], name: str, rule: str, alpha: float, calibrations: int) -> Numbers:
    """Return the rate of false alarms of each of many splits of the same episodes."""
    rates: list[float] = []
    partner = "rnd" if name != "rnd" else "nearest"
    for k in range(calibrations):
        order = np.random.default_rng(k).permutation(len(scores[name])).tolist()
        y, second = ([scores[n][e] for e in order] for n in (name, partner))
        rates.append(false_alarm_rate(y, second, rule, alpha, len(order) // 2))
    return np.array(rates)


@dataclass(frozen=True)
class Calibrations:
    """Simulate calibrations."""

    calibrations: int = 200
    alpha: float = 0.1
    out: Path | None = None
    """File to which a Record is appended."""

    def run(self) -> None:
        """Run the simulation."""
        begun, results = time.monotonic(), dict[str, dict[str, list[float]]]()
        scores = maze_scores()
        for rule in RULES:
            for name, draw in PROCESSES.items():
                rates = simulate(draw, rule, self.alpha, calibrations=self.calibrations, episodes=40, tests=40)
                results.setdefault(name, {})[rule] = summarise(rates)
            for name in scores:
                rates = resplit(scores, name, rule, self.alpha, self.calibrations)
                results.setdefault(f"maze, {name}", {})[rule] = summarise(rates)
        settings: dict[str, Any] = {"benchmark": "monitor-calibrations", "alpha": self.alpha}
        settings |= {"calibrations": self.calibrations, "episodes": 40, "window": WINDOW}
        device = f"cpu, {os.cpu_count()} cores, {platform.machine()}"
        if self.out is not None:
            seconds = time.monotonic() - begun
            Record("benchmark", settings, [], {}, {"rates": results}, device, seconds).append_to(self.out)
        rows = [[name, *(f"{by_rule[rule][0]:.3f}" for rule in RULES)] for name, by_rule in results.items()]
        print_table(f"rate of false alarms, alpha {self.alpha:g}", ["scores", *RULES], rows)


def summarise(rates: Numbers) -> list[float]:
    """Return the mean, and the 2.5 % and 97.5 % quantiles."""
    return [round(float(x), 4) for x in (rates.mean(), *np.quantile(rates, (0.025, 0.975)))]


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Calibrations, prog="python -m benchmarks.monitor_calibrations").run()
