"""The `expert` command."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from diffclone.cli.arguments import expert_options
from diffclone.cli.console import bars, print_json, print_table
from diffclone.errors import InvalidSettings
from diffclone.evaluation import evaluate_expert
from diffclone.experiments.task_settings import find_setting
from diffclone.reports.numbers import format_score, format_score_interval
from diffclone.tasks import TASKS
from diffclone.tasks.batch import Starts


@dataclass(frozen=True)
class Expert:
    """Evaluate a task's expert, in the task's own environment or in that of a setting (see `diffclone tasks`)."""

    action: Annotated[tyro.conf.Positional[Literal["evaluate", "train"]], tyro.conf.arg(metavar="evaluate")]
    """evaluate. (Experts are trained by a script of the repository: python -m scripts.train_expert.)"""
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK", help="Name of a task or a setting.")]
    out: Path | None = None
    """File of Records to which the result is appended."""
    episodes: int = 100
    """Number of episodes."""
    starts: Starts = "evaluation"
    """Which list of starts."""
    options: tuple[str, ...] = ()
    """Options of the expert, e.g. noise=0; by default those of the setting."""
    weights: Path | None = None
    """Weights of another expert (.safetensors), if the task's expert is a network."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Evaluate the expert and print its score."""
        setting = find_setting(self.task)
        task = TASKS[setting.task]
        if self.action == "train":
            raise InvalidSettings(
                "experts are trained by a script of the repository: "
                f"python -m scripts.train_expert {task.name} --out FILE.safetensors."
            )
        chosen = expert_options(self.options, self.weights)
        expert = task.expert(**chosen) if chosen else setting.make_expert()
        with bars() as show:
            record = evaluate_expert(
                task,
                expert,
                self.episodes,
                lambda done, total: show.update(f"expert of {setting.name}", done, total),
                starts=self.starts,
                **setting.make_task_options(),
            )
        # Another expert must not pass for that of the task. A path is text in a file of Records.
        given = {name: str(value) if isinstance(value, Path) else value for name, value in chosen.items()}
        settings, results = {**record.settings, "options": given}, {**record.results, "setting": setting.name}
        record = replace(record, settings=settings, results=results)
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
        row = [setting.name, *scores, f"{results['mean_length']:.0f}"]
        print_table(f"Expert, {self.episodes} episodes", ["setting", metric, "95 %", "steps"], [row])
