"""The `expert` command."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from diffclone.cli.arguments import TaskName, expert_options
from diffclone.cli.console import bars, print_json, print_table
from diffclone.errors import InvalidSettings
from diffclone.evaluation import evaluate_expert
from diffclone.reports.numbers import format_score, format_score_interval
from diffclone.tasks import TASKS


@dataclass(frozen=True)
class Expert:
    """Evaluate a task's expert on the evaluation starts."""

    action: Annotated[tyro.conf.Positional[Literal["evaluate", "train"]], tyro.conf.arg(metavar="evaluate")]
    """evaluate. (Experts are trained by a script of the repository: python -m scripts.train_expert.)"""
    task: TaskName
    out: Path | None = None
    """File of Records to which the result is appended."""
    episodes: int = 100
    """Number of episodes."""
    options: tuple[str, ...] = ()
    """Options of the expert, e.g. noise=0."""
    weights: Path | None = None
    """Weights of another expert (.safetensors), if the task's expert is a network."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Evaluate the expert and print its score."""
        task = TASKS[self.task]
        if self.action == "train":
            raise InvalidSettings(
                "experts are trained by a script of the repository: "
                f"python -m scripts.train_expert {task.name} --out FILE.safetensors."
            )
        expert = task.expert(**expert_options(self.options, self.weights))
        with bars() as show:
            record = evaluate_expert(
                task,
                expert,
                self.episodes,
                lambda done, total: show.update(f"expert of {task.name}", done, total),
            )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json(asdict(record))
            return
        results, metric = record.results, task.metric
        mean, interval = (
            ("success_rate", "success_interval") if metric == "success" else ("mean_return", "return_interval")
        )
        scores = [format_score(results[mean], metric), format_score_interval(results[interval], metric)]
        row = [task.name, *scores, f"{results['mean_length']:.0f}"]
        print_table(f"Expert, {self.episodes} episodes", ["task", metric, "95 %", "steps"], [row])
