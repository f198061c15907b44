"""The main job on one task: train BC and DBC, compare them on the same starts, write a page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from diffclone.cli.console import Bars, bars, percent, percent_interval, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.errors import InvalidFile
from diffclone.evaluation import Scores, evaluate
from diffclone.experiments import preset
from diffclone.experiments.presets import shorten_training
from diffclone.files import read_lines, write_atomically
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide
from diffclone.methods import DBC
from diffclone.model import Dims
from diffclone.nn.diffusion import Diffusion
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.statistics import difference_interval
from diffclone.tasks import TASKS
from diffclone.training import Progress
from diffclone.training.runs import Run, record_evaluation, train_run

TASK = "maze"
SHOWN_EPISODES = 60
"""Trajectories in the picture."""
COLUMNS = ("method", "success", "95 %", "sd over seeds", "steps", "seeds × episodes")


@dataclass(frozen=True)
class Demo:
    """Train BC and DBC on Maze, several seeds at once, compare them on the same starts, and write a page."""

    out: Path = Path("demo")
    """Folder of the page and the runs."""
    seeds: int = 3
    """Members of each method."""
    episodes: int = 100
    """Episodes a member."""
    quick: bool = False
    """A few seconds of training: shows that everything works, and nothing about the methods."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Do it."""
        seeds, episodes = (min(self.seeds, 2), min(self.episodes, 4)) if self.quick else (self.seeds, self.episodes)
        with bars() as show, between_updates() as stop:
            result = run_demo(self.out, seeds, episodes, quick=self.quick, show=show, stop=stop)
        if self.json:
            print_json(result.summary)
        else:
            print_table(result.caption, COLUMNS, result.rows)
            print_message(f"The page is {self.out / 'index.html'}")


@final
@dataclass(frozen=True)
class DemoResult:
    """What the demo found."""

    rows: list[list[str]]
    caption: str
    summary: dict[str, Any]


@final
class Watcher:
    """Keeps the positions of member 0's first episodes while they are played."""

    def __init__(self, episodes: int):
        self.episodes = episodes
        self.paths: list[list[npt.NDArray[np.float64]]] = [[] for _ in range(episodes)]

    def __call__(self, rows: npt.NDArray[np.int64], obs: npt.NDArray[np.float64], act: npt.NDArray[Any]) -> None:
        """Called at every step."""
        for row, seen in zip(rows, obs, strict=True):
            if row < self.episodes:
                self.paths[row].append(seen[:2])


def run_demo(
    out: Path, seeds: int, episodes: int, *, quick: bool, show: Bars, stop: Callable[[], None] = lambda: None
) -> DemoResult:
    """Train, evaluate, write the page."""
    if out.exists() and any(out.iterdir()) and not (out / "bc" / "run.json").exists():
        raise InvalidFile(f"{out} is not empty and holds no demo. Nothing was changed; choose another --out.")
    demos = TASKS[TASK].demonstrations()
    runs: dict[str, Run] = {}
    scores: dict[str, Scores] = {}
    watched: dict[str, Watcher] = {}
    records: list[Record] = []
    for name in ("bc", "dbc"):
        method = preset(TASK, name, "demo")

        def progress(now: Progress, name: str = name) -> None:
            show.training(name.upper(), now)
            stop()

        runs[name] = train_run(
            out / name,
            shorten_training(method) if quick else method,
            demos,
            FitOptions(seeds=range(seeds), device="cpu"),
            task=TASK,
            quick=quick,
            progress=progress,
        )
        policy = runs[name].policy()
        watched[name] = Watcher(min(SHOWN_EPISODES, episodes))
        scores[name] = evaluate(
            policy,
            TASK,
            episodes=episodes,
            progress=lambda done, total, name=name: show.update(f"{name.upper()}: playing", done, total),
            on_step=watched[name],
        )
        records.append(record_evaluation(runs[name], policy, scores[name]))
    result = summarise(scores, quick=quick)
    write_page(out / "index.html", result, runs, scores, watched, records)
    return result


def summarise(scores: dict[str, Scores], *, quick: bool) -> DemoResult:
    """The table, with the difference on the same starts."""
    rows: list[list[str]] = []
    for name, score in scores.items():
        found = score.summary()
        spread = found["success_sd_over_members"]
        rows.append(
            [
                name.upper(),
                percent(score.success_rate),
                percent_interval(score.success_interval),
                "–" if spread is None else f"{100 * spread:.1f}",
                f"{score.length.mean():.0f}",
                f"{score.success.shape[0]} × {score.success.shape[1]}",
            ]
        )
    difference = scores["dbc"].success_rate - scores["bc"].success_rate
    interval = difference_interval(scores["dbc"].success, scores["bc"].success)
    rows.append(["DBC − BC", f"{100 * difference:+.1f}", percent_interval(interval), "", "", "same starts"])
    caption = "Success on Maze" + (" (quick: says nothing about the methods)" if quick else "")
    summary = {name: score.summary() for name, score in scores.items()}
    return DemoResult(
        rows, caption, {**summary, "difference": difference, "difference_interval": list(interval), "quick": quick}
    )


def write_page(
    path: Path,
    result: DemoResult,
    runs: dict[str, Run],
    scores: dict[str, Scores],
    watched: dict[str, Watcher],
    records: list[Record],
) -> None:
    """The table, the trajectories, the loss curves and where they come from."""
    from diffclone.reports.demo import DemoPage, demo_page
    from diffclone.tasks.maze import WALLS

    paths = {
        name.upper(): [
            (np.array(points), bool(success))
            for points, success in zip(watched[name].paths, scores[name].success[0], strict=False)
        ]
        for name in runs
    }
    metrics = {name.upper(): read_metrics(run) for name, run in runs.items()}
    curves = {
        "L_BC": {name: curve for name, losses in metrics.items() if (curve := losses.get("policy/L_BC"))},
        "L_DM": {"DBC": metrics["DBC"]["policy/L_DM"]},
        "L_diff, the guide's own loss": {"guide": metrics["DBC"]["guide/L_diff"]},
    }
    guide = sampled_positions(runs["dbc"])
    shown = DemoPage(result.caption, COLUMNS, result.rows, paths, WALLS, guide, curves, records)
    write_atomically(path, demo_page(shown).encode())


def read_metrics(run: Run) -> dict[str, tuple[list[int], npt.NDArray[np.float64]]]:
    """Curves by stage and loss: updates, and values (reports, members)."""
    lines = read_lines(run.metrics)
    names = dict.fromkeys(f"{line['stage']}/{key}" for line in lines for key, v in line.items() if isinstance(v, list))
    curves: dict[str, tuple[list[int], npt.NDArray[np.float64]]] = {}
    for name in names:
        stage, key = name.split("/", 1)
        chosen = [line for line in lines if line["stage"] == stage and key in line]
        curves[name] = [line["update"] for line in chosen], np.array([line[key] for line in chosen])
    return curves


def sampled_positions(run: Run) -> npt.NDArray[np.float64]:
    """Where the first member's guide expects the ball to be."""
    policy: Policy = run.policy()[0]
    method = policy.method
    assert isinstance(method, DBC)
    assert isinstance(method.guide, DiffusionGuide)
    assert policy.guide is not None
    weights = cast(Diffusion, policy.guide.weights)
    obs, _ = method.guide.sample(weights, 600, Dims(policy.dims.obs, policy.dims.act), Rng([0]))
    return (obs[0] * policy.normaliser.obs_std + policy.normaliser.obs_mean)[:, :2].double().numpy()
