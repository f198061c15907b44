"""The `expert` command."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from diffclone.cli.arguments import TaskName, expert_options
from diffclone.cli.console import bars, percent, print_json, print_message, print_table
from diffclone.cli.tasks import shown
from diffclone.errors import InvalidSettings
from diffclone.files import refuse_existing
from diffclone.records import versions
from diffclone.tasks import TASKS, Task
from diffclone.tasks.expert_scores import score_expert


@dataclass(frozen=True)
class Expert:
    """Train a task's expert again by reinforcement, or score the bundled one on the evaluation starts."""

    action: Annotated[tyro.conf.Positional[Literal["train", "evaluate"]], tyro.conf.arg(metavar="train|evaluate")]
    """What to do."""
    task: TaskName
    """The task's name."""
    out: Path | None = None
    """train: the file of weights to write (.safetensors). evaluate: a file of Records to append to, if any."""
    steps: int | None = None
    """train: environment steps; by default the recipe's."""
    seed: int = 0
    """train: of the training."""
    device: Literal["cpu", "cuda"] = "cpu"
    """train: where the networks are; the environments use all cores."""
    episodes: int = 100
    """evaluate: episodes."""
    options: tuple[str, ...] = ()
    """evaluate: of the expert, e.g. noise=0."""
    weights: Path | None = None
    """Another expert's file, where the expert is a network: train goes on from it, evaluate plays it."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it."""
        task = TASKS[self.task]
        if self.action == "train":
            self.train(task)
        else:
            self.evaluate(task)

    def train(self, task: Task) -> None:
        """Until the steps are done; Ctrl-C keeps what there is."""
        from scripts.expert_training import recipe_for, save_expert, train_expert

        if self.out is None:
            raise InvalidSettings("say where the weights go: --out FILE.safetensors.")
        refuse_existing(self.out)
        recipe = recipe_for(task.name, self.steps)
        training = train_expert(task, recipe, seed=self.seed, device=self.device, begin=self.weights)
        report, learner = next(training)
        with bars() as show:
            try:
                for now in training:
                    report, learner = now
                    note = f"return {report.returns:.1f}  success {percent(report.success)}"
                    show.update(f"expert of {task.name}", report.steps, recipe.steps, note)
            except KeyboardInterrupt:
                print_message("interrupted; what was learned is kept.")
        about = {"task": task.name, "seed": str(self.seed), "steps": str(report.steps), "versions": str(versions())}
        save_expert(self.out, learner, about)
        if self.json:
            print_json({"out": str(self.out), **asdict(report)})
        else:
            print_message(f"wrote {self.out}. Next: diffclone expert evaluate {task.name} --weights {self.out}")

    def evaluate(self, task: Task) -> None:
        """On the starts that policies are evaluated on."""
        expert = task.expert(**expert_options(self.options, self.weights))
        with bars() as show:
            record = score_expert(
                task,
                expert,
                self.episodes,
                lambda done, total: show.update(f"expert of {task.name}", done, total),
            )
        if self.out is not None:
            record.append_to(self.out)
        if self.json:
            print_json(asdict(record))
        else:
            low, high = record.results["success_interval" if task.metric == "success" else "return_interval"]
            scale = 100 if task.metric == "success" else 1
            interval = f"{scale * low:.1f} … {scale * high:.1f}"
            row = [task.name, shown(task, record.results), interval, f"{record.results['mean_length']:.0f}"]
            print_table(f"Expert, {self.episodes} episodes", ["task", task.metric, "95 %", "steps"], [row])
