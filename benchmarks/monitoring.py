"""Compare the scores and thresholds of a monitor on failures of short-trained policies.

python -m benchmarks.monitoring                            print one table per task
python -m benchmarks.monitoring fetch-pick --out FILE      one task; also append a Record to FILE

Failures are compared with successes of the same task, seed and level of disturbance. For each of these, half of the
successes calibrate the threshold, the other half and all failures are the test; this is repeated with other halves.

E        = the longest calibration episode: later, a failure is evident without a monitor. Steps after E are not used
AUROC    = P(M of a failure > M of a success) + ½ P(they are equal),      M as in deploy/monitors/thresholds.py
balanced = ½ (share of failures with an alarm + share of successes without one)
time     = step of the first alarm / the smaller of E and the episode's length, over failures with an alarm

Numbers are means over levels, then over seeds and calibrations, with 2.5 % and 97.5 % quantiles over the latter: what
one training and one calibration may give.
"""

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tyro

from benchmarks.monitoring_tasks import CASES, SEEDS, Case
from diffclone.cli.console import print_json, print_table
from diffclone.data import Demonstrations
from diffclone.deploy.calibration import Rollouts, make_monitor
from diffclone.deploy.monitor import Monitor, split_episodes
from diffclone.deploy.monitors import SCORES as REGISTERED
from diffclone.deploy.monitors import (
    DisagreementScore,
    GuideScore,
    LogpZOScore,
    NearestScore,
    PairScore,
    RNDScore,
)
from diffclone.deploy.monitors.thresholds import (
    SHAPE_EPISODES,
    SHAPE_SHARE,
    Kind,
    agree,
    calibrate_threshold,
    find_unit,
    moving_average,
)
from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.training.session import describe_data

Numbers = npt.NDArray[np.float64]

SCORES: dict[str, PairScore[Any]] = {
    "nearest": NearestScore(),
    "nearest states": NearestScore(action_weight=0.0),
    "guide": GuideScore(),
    "guide, t < T/4": GuideScore(high=0.25),
    "guide, t ≥ T/2": GuideScore(low=0.5),
    "rnd": RNDScore(),
    "logpzo": LogpZOScore(),
    "logpzo, 5 steps": LogpZOScore(calls=5),
    "disagreement": DisagreementScore(),
}
PAIRS = (("nearest", "guide"), ("nearest", "logpzo"), ("nearest", "disagreement"), ("rnd", "logpzo"))
"""Scores that must agree."""
THRESHOLDS: dict[str, tuple[Kind, int]] = {
    "constant": ("constant", 1),
    "constant, window 5": ("constant", 5),
    "band": ("band", 1),
    "band, window 5": ("band", 5),
}
METRICS = ("auroc", "balanced", "false_alarms", "detected", "time")
ALPHA = 0.1
LEAST_SUCCESSES, LEAST_FAILURES = 30, 8
"""A level with fewer of them is left out."""
TIMED_ROWS = 2048


def episodes_of(monitor: Monitor, rollouts: Rollouts) -> list[Numbers]:
    """Return the score of each step, by episode."""
    return list(split_episodes(monitor.values(rollouts.steps.obs, rollouts.steps.act)["both"], rollouts.steps))


def auroc(failures: Numbers, successes: Numbers) -> float:
    """Return the AUROC of two sets of maxima."""
    gap = failures[:, None] - successes[None, :]
    return float((gap > 0).mean() + 0.5 * (gap == 0).mean())


def combine(scores: Sequence[list[Numbers]], shape: Sequence[int]) -> list[Numbers]:
    """Return the smallest of several scores in units of the shape episodes."""
    units = [find_unit([episodes[k] for k in shape]) for episodes in scores]
    return [agree(columns, units) for columns in zip(*scores, strict=True)]


def detect(
    episodes: list[Numbers], failed: npt.NDArray[np.bool_], split: "Split", kind: Kind, window: int
) -> dict[str, float]:
    """Calibrate on the split's successes and return the metrics of the rest."""
    y = [moving_average(scores, window) for scores in episodes]
    calibration = split.shape + split.quantile
    quantile = split.quantile if kind == "band" or split.always_shape else calibration
    threshold = calibrate_threshold([y[k] for k in quantile], ALPHA, kind, [y[k] for k in split.shape])
    evident = max(len(y[k]) for k in calibration)
    peak, first = np.zeros(len(y)), np.full(len(y), np.inf)
    for k, scores in enumerate(y):
        excess = threshold.excess(scores[:evident], np.arange(min(len(scores), evident)))
        peak[k] = excess.max()
        if (over := np.flatnonzero(~(excess <= threshold.q))).size:
            first[k] = (over[0] + 1) / len(excess)
    tested: npt.NDArray[np.bool_] = ~failed
    tested[calibration] = False
    alarmed = np.isfinite(first)
    detected = first[failed & alarmed]
    rates = float(alarmed[failed].mean()), float(alarmed[tested].mean())
    return {
        "auroc": auroc(peak[failed], peak[tested]),
        "balanced": (rates[0] + 1 - rates[1]) / 2,
        "false_alarms": rates[1],
        "detected": rates[0],
        "time": float(detected.mean()) if len(detected) else float("nan"),
    }


@dataclass(frozen=True)
class Split:
    """Indices of the successes that calibrate."""

    shape: list[int]
    quantile: list[int]
    always_shape: bool = False

    @classmethod
    def draw(cls, success: npt.NDArray[np.bool_], seed: int) -> "Split":
        """Draw half of the successes."""
        order = np.random.default_rng(seed).permutation(np.flatnonzero(success)).tolist()
        half = order[: len(order) // 2]
        cut = max(SHAPE_EPISODES, round(SHAPE_SHARE * len(half)))
        return cls(half[:cut], half[cut:])


def summarise(by_seed_and_split: Mapping[tuple[int, int], list[float]]) -> list[float | None]:
    """Return the mean and the quantiles of the means over levels."""
    means = [np.mean(v) for values in by_seed_and_split.values() if (v := [x for x in values if np.isfinite(x)])]
    if not means:
        return [None, None, None]
    return [round(float(x), 4) for x in (np.mean(means), *np.quantile(means, (0.025, 0.975)))]


def time_score(monitor: Monitor, demos: Demonstrations) -> dict[str, float]:
    """Return µs per row in a batch and µs of a single row: the best of some repetitions."""
    rows = np.arange(TIMED_ROWS) % demos.num_steps
    found = {"batch": (demos.obs[rows], demos.act[rows], 3), "single": (demos.obs[0], demos.act[0], 50)}
    result: dict[str, float] = {}
    for name, (obs, act, repeats) in found.items():
        times: list[float] = []
        for _ in range(repeats):
            begun = time.perf_counter()
            monitor.values(obs, act)
            times.append(time.perf_counter() - begun)
        result[name] = round(1e6 * min(times) / (len(rows) if name == "batch" else 1), 1)
    return result


def measure(name: str, case: Case, policy: Policy, demos: Demonstrations, episodes: int, splits: int) -> dict[str, Any]:
    """Return success rates, speeds and the metrics of every score and threshold."""
    scores = {n: s for n, s in SCORES.items() if not case.main_scores or n in REGISTERED}
    shared = {n: make_monitor(policy, 0, s, demos) for n, s in scores.items() if not isinstance(s, GuideScore)}
    found: dict[tuple[str, str, str], dict[tuple[int, int], list[float]]] = {}
    rates: dict[str, list[float]] = {}
    speed: dict[str, dict[str, float]] = {}
    for m in range(len(policy)):
        own = {n: make_monitor(policy, m, s, demos) for n, s in scores.items() if isinstance(s, GuideScore)}
        monitors = {n: (own | shared)[n] for n in scores}
        if m == 0:
            speed = {n: time_score(monitor, demos) for n, monitor in monitors.items()}
        for level in case.levels:
            rollouts = case.play(policy[m], level, episodes)
            success = rollouts.success
            rates.setdefault(f"{level:g}", []).append(round(float(success.mean()), 4))
            print(f"{name}, seed {m}, level {level:g}: success {success.mean():.2f}", flush=True)
            if success.sum() < LEAST_SUCCESSES or (~success).sum() < LEAST_FAILURES:
                continue
            values = {n: episodes_of(monitor, rollouts) for n, monitor in monitors.items()}
            for k in range(splits):
                split = Split.draw(success, k)
                joined = {" and ".join(p): combine([values[n] for n in p], split.shape) for p in PAIRS}
                for score, y in (values | joined).items():
                    chosen = Split(split.shape, split.quantile, always_shape=score in joined)
                    for threshold, (kind, window) in THRESHOLDS.items():
                        for metric, value in detect(y, ~success, chosen, kind, window).items():
                            cells = found.setdefault((score, threshold, metric), {})
                            cells.setdefault((m, k), []).append(value)
    table: dict[str, Any] = {}
    for (score, threshold, metric), values in found.items():
        table.setdefault(score, {}).setdefault(threshold, {})[metric] = summarise(values)
    return {"success": rates, "microseconds": speed, "table": table}


@dataclass(frozen=True)
class Monitoring:
    """Compare scores and thresholds of a monitor."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = tuple(CASES)
    """Tasks."""
    episodes: int | None = None
    """Episodes per seed and level; by default those of the task."""
    splits: int = 20
    """Calibrations per seed and level."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Path | None = None
    """File to which Records are appended."""

    def run(self) -> None:
        """Run the benchmark."""
        torch.set_num_threads(1)
        for name in self.tasks:
            if name not in CASES:
                raise InvalidSettings(f"unknown task {name!r}; known: {', '.join(CASES)}.")
            case, begun = CASES[name], time.monotonic()
            demos = case.load_demonstrations()
            policy, episodes = case.train(demos), self.episodes or case.episodes
            results = measure(name, case, policy, demos, episodes, self.splits)
            record = Record(
                kind="benchmark",
                settings={
                    "benchmark": "monitors",
                    "task": name,
                    "alpha": ALPHA,
                    "episodes": episodes,
                    "splits": self.splits,
                    "noise": list(case.noise) or ["action_noise"],
                    "levels": list(case.levels),
                    "horizon": case.task.horizon,
                    "method": to_dict(case.method),
                    "scores": {score: to_dict(settings) for score, settings in SCORES.items()},
                },
                members=[{"seed": seed} for seed in SEEDS],
                data=describe_data(demos),
                results=results,
                device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
                seconds=time.monotonic() - begun,
            )
            if self.out is not None:
                record.append_to(self.out)
            if self.json:
                print_json({"settings": record.settings, "results": record.results})
                continue
            rows = [
                [score, threshold, *(show(cells[metric]) for metric in METRICS)]
                for score, by_threshold in results["table"].items()
                for threshold, cells in by_threshold.items()
            ]
            print_table(name, ["score", "threshold", *METRICS], rows)


def show(cell: Sequence[float | None]) -> str:
    """Return the mean."""
    return "–" if cell[0] is None else f"{cell[0]:.2f}"


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Monitoring, prog="python -m benchmarks.monitoring").run()
