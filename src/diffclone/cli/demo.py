"""The `demo` command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.errors import InvalidFile
from diffclone.evaluation import Scores, evaluate
from diffclone.experiments import preset
from diffclone.experiments.presets import shorten_training
from diffclone.files import read_lines, write_atomically
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide
from diffclone.model import Dims
from diffclone.nn.diffusion import Diffusion
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.reports.numbers import MISSING, percent, percent_interval
from diffclone.rng import Rng
from diffclone.statistics import difference_interval
from diffclone.tasks import TASKS
from diffclone.training import Progress
from diffclone.training.runs import Run, record_evaluation, train_run

TASK = "maze"
SHOWN_EPISODES = 60
"""Number of paths in the figure."""
SHOWN_SAMPLES = 600
"""Number of positions that are sampled from the guide."""
COLUMNS = ("method", "success", "95 %", "sd over seeds", "steps", "seeds × episodes")

Points = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class MethodResult:
    """One method of the demo, trained and evaluated."""

    run: Run
    scores: Scores
    paths: list[tuple[Points, bool]]
    """Positions in the first episodes of the first member, and whether they succeeded."""
    record: Record

    @property
    def row(self) -> list[str]:
        """The row of the table, without the name."""
        scores, sd = self.scores, self.scores.summary()["success_sd_over_members"]
        return [
            percent(scores.success_rate),
            percent_interval(scores.success_interval),
            MISSING if sd is None else f"{100 * sd:.1f}",
            f"{scores.length.mean():.0f}",
            f"{scores.success.shape[0]} × {scores.success.shape[1]}",
        ]


@dataclass(frozen=True)
class Demo:
    """Train BC and DBC on Maze with several seeds, compare them on the same starts, and write a page."""

    out: Path = Path("demo")
    """Folder of the page and the runs."""
    seeds: int = 3
    """Members of each method."""
    episodes: int = 100
    """Episodes per member."""
    quick: bool = False
    """Train for a few seconds only, to check that everything works. The scores then say nothing about the methods."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Train, evaluate, write the page and print the table."""
        if self.out.exists() and any(self.out.iterdir()) and not (self.out / "bc" / "run.json").exists():
            raise InvalidFile(f"{self.out} is not empty and holds no demo. Nothing was changed; choose another --out.")
        results = {name: self.run_method(name) for name in ("bc", "dbc")}
        rows = [[name.upper(), *result.row] for name, result in results.items()]
        bc, dbc = (result.scores for result in results.values())
        difference, interval = dbc.success_rate - bc.success_rate, difference_interval(dbc.success, bc.success)
        rows.append(["DBC − BC", f"{100 * difference:+.1f}", percent_interval(interval), "", "", "same starts"])
        caption = "Success on Maze" + " (quick: says nothing about the methods)" * self.quick
        write_page(self.out / "index.html", caption, rows, results)
        if self.json:
            summaries = {name: result.scores.summary() for name, result in results.items()}
            about = {"difference": difference, "difference_interval": list(interval), "quick": self.quick}
            print_json({**summaries, **about})
        else:
            print_table(caption, COLUMNS, rows)
            print_message(f"The page is {self.out / 'index.html'}")

    def run_method(self, name: str) -> MethodResult:
        """Train and evaluate one method."""
        seeds, episodes = (min(self.seeds, 2), min(self.episodes, 4)) if self.quick else (self.seeds, self.episodes)
        method = preset(TASK, name, "demo")
        method = shorten_training(method) if self.quick else method
        paths: list[list[Points]] = [[] for _ in range(min(SHOWN_EPISODES, episodes))]

        def store_positions(rows: npt.NDArray[np.int64], obs: Points, act: npt.NDArray[Any]) -> None:
            for row, position in zip(rows, obs[:, :2].copy(), strict=True):
                if row < len(paths):
                    paths[row].append(position)

        with bars() as show, between_updates() as stop:

            def progress(now: Progress) -> None:
                show.training(name.upper(), now)
                stop()

            run = train_run(
                self.out / name,
                method,
                TASKS[TASK].demonstrations(),
                FitOptions(seeds=range(seeds), device="cpu"),
                task=TASK,
                quick=self.quick,
                progress=progress,
            )
            scores = evaluate(
                run.policy(),
                TASK,
                episodes=episodes,
                progress=lambda done, total: show.update(f"{name.upper()}: episodes", done, total),
                on_step=store_positions,
            )
        outcomes = [(np.array(path), bool(success)) for path, success in zip(paths, scores.success[0], strict=False)]
        return MethodResult(run, scores, outcomes, record_evaluation(run, run.policy(), scores))


def write_page(path: Path, caption: str, rows: Sequence[Sequence[str]], results: Mapping[str, MethodResult]) -> None:
    """Write the page with the table, the paths, the losses and the Records."""
    from diffclone.reports.demo import DemoPage, demo_page
    from diffclone.tasks.maze import WALLS

    bc, dbc = (read_lines(results[name].run.metrics) for name in ("bc", "dbc"))
    page = DemoPage(
        caption=caption,
        columns=COLUMNS,
        rows=rows,
        paths={name.upper(): result.paths for name, result in results.items()},
        walls=WALLS,
        guide_positions=sample_positions(results["dbc"].run.policy()[0]),
        curves={
            "L_BC": {"BC": loss_curve(bc, "policy", "L_BC"), "DBC": loss_curve(dbc, "policy", "L_BC")},
            "L_DM": {"DBC": loss_curve(dbc, "policy", "L_DM")},
            "L_diff, the guide's own loss": {"guide": loss_curve(dbc, "guide", "L_diff")},
        },
        records=[result.record for result in results.values()],
    )
    write_atomically(path, demo_page(page).encode())


def loss_curve(metrics: Sequence[Mapping[str, Any]], stage: str, loss: str) -> tuple[list[int], Points]:
    """Return the updates, and the values (updates, members), of one loss in a run's metrics."""
    lines = [line for line in metrics if line["stage"] == stage]
    return [line["update"] for line in lines], np.array([line[loss] for line in lines])


def sample_positions(policy: Policy) -> Points:
    """Sample positions of the ball from the guide of a policy with one member."""
    assert policy.guide is not None
    guide, weights = policy.guide.guide, policy.guide.weights
    assert isinstance(guide, DiffusionGuide)
    assert isinstance(weights, Diffusion)
    obs, _ = guide.sample(weights, SHOWN_SAMPLES, Dims(policy.dims.obs, policy.dims.act), Rng([0]))
    return (obs[0] * policy.normaliser.obs_std + policy.normaliser.obs_mean)[:, :2].double().numpy()
