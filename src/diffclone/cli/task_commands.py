"""The commands about tasks and their experts; like the others, each a dataclass whose fields are its flags."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from diffclone.cli.console import answer, bars, percent, say, show_table
from diffclone.errors import InvalidSettings
from diffclone.experiments import printed_expert
from diffclone.records import Record, versions
from diffclone.tasks import TASKS, Task
from diffclone.tasks.expert_scores import BUNDLED, score_expert
from diffclone.tasks.options import parse_options

TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]


@dataclass(frozen=True)
class Tasks:
    """List the tasks: sizes, horizon, metric, bundled demonstrations, the expert's score and the paper's expert's."""

    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Do it."""
        scores = {record.results["task"]: record.results for record in Record.read_all(BUNDLED)}
        rows: list[dict[str, Any]] = []
        for task in TASKS.values():
            demos = task.demonstrations()
            rows.append(
                {
                    "task": task.name,
                    "observation": task.obs_size,
                    "action": task.act_size,
                    "steps": task.horizon,
                    "metric": task.metric,
                    "demonstrations": f"{demos.num_episodes} episodes, {demos.num_steps} steps",
                    "expert": shown(task, scores[task.name]),
                    "paper's expert": printed_expert(task.name),
                    "id": task.gymnasium_id,
                    "about": task.summary,
                }
            )
        if self.json:
            answer(rows)
        else:
            columns = [name for name in rows[0] if name not in ("id", "about")]
            show_table("Tasks", columns, [[str(row[name]) for name in columns] for row in rows])
            for row in rows:
                say(f"{row['task']} ({row['id']}): {row['about']}")


def shown(task: Task, results: Mapping[str, Any]) -> str:
    """A score as the task reports it."""
    return percent(results["success_rate"]) if task.metric == "success" else f"{results['mean_return']:.0f}"


@dataclass(frozen=True)
class Collect:
    """Make demonstrations with a task's bundled expert."""

    task: TaskName
    """The task's name."""
    out: Path
    """The file to write (.npz). An existing file is not overwritten."""
    episodes: int | None = None
    """Episodes to keep; by default as many as are bundled."""
    seed: int = 0
    """Of starts and of the expert's noise."""
    options: tuple[str, ...] = ()
    """Of the expert, e.g. noise=0.1."""
    weights: Path | None = None
    """Another expert's file, where the expert is a network."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it."""
        from diffclone.tasks.expert import collect

        task = TASKS[self.task]
        refuse_existing(self.out)
        expert = task.expert(**expert_options(self.options, self.weights))
        episodes = task.episodes if self.episodes is None else self.episodes
        command = f"diffclone collect {self.task} --episodes {episodes} --seed {self.seed}"
        command += f" --options {' '.join(self.options)}" if self.options else ""
        command += f" --weights {self.weights}" if self.weights else ""
        meta = {"task": task.name, "expert": type(expert).__name__, "versions": versions(), "command": command}
        env = task.make(1, **expert.env_options)
        with bars() as show:
            demos = collect(
                env,
                expert,
                episodes,
                seed=self.seed,
                meta=meta,
                progress=lambda done, total: show.update(f"collecting {task.name}", done, total),
            )
        env.close()
        demos.save(self.out)
        if self.json:
            answer(
                {"out": str(self.out), "episodes": demos.num_episodes, "steps": demos.num_steps}
                | {"fingerprint": demos.fingerprint}
            )
        else:
            say(f"wrote {self.out}: {demos!r}")


@dataclass(frozen=True)
class Render:
    """Show an episode of a policy or of the expert: a film (.mp4, .gif), or a strip of pictures (.png)."""

    task: TaskName
    """The task's name."""
    out: Path
    """The file to write. An existing file is not overwritten."""
    policy: str = "expert"
    """A run's folder, pretrained for the one that comes with the package, or expert."""
    member: int = 0
    """Which member of the run."""
    start: int = 0
    """Which of the evaluation starts."""
    steps: int | None = None
    """Show the first so many only; the episode is played to its end."""
    options: tuple[str, ...] = ()
    """Of the task's environment, e.g. start_noise=2."""

    def run(self) -> None:
        """Do it."""
        from diffclone.deploy.pretrained import pretrained
        from diffclone.tasks.rendering import check_suffix, film, write_pictures
        from diffclone.training.runs import Run

        task = TASKS[self.task]
        check_suffix(self.out)
        refuse_existing(self.out)
        if self.policy == "pretrained":
            policy = pretrained(self.task)
        else:
            policy = None if self.policy == "expert" else Run(Path(self.policy)).policy()
        if policy is not None and not 0 <= self.member < len(policy):
            raise InvalidSettings(f"{self.policy} has members 0 … {len(policy) - 1}; {self.member} was asked for.")
        options = task.check(parse_options(self.options))
        shot = film(
            task,
            None if policy is None else policy[self.member],
            start=self.start,
            **options,
        )
        if self.steps is not None and self.steps < 1:
            raise InvalidSettings(f"at least one step must be shown; {self.steps} were asked for.")
        write_pictures(self.out, shot.pictures[: None if self.steps is None else self.steps + 1])
        solved = f", {'solved' if shot.success else 'not solved'}" if task.metric == "success" else ""
        say(f"wrote {self.out}: {len(shot.pictures) - 1} steps, return {shot.returns:.1f}{solved}")


@dataclass(frozen=True)
class ExpertCommand:
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
                say("interrupted; what was learned is kept.")
        about = {"task": task.name, "seed": str(self.seed), "steps": str(report.steps), "versions": str(versions())}
        save_expert(self.out, learner, about)
        if self.json:
            answer({"out": str(self.out), **asdict(report)})
        else:
            say(f"wrote {self.out}. Next: diffclone expert evaluate {task.name} --weights {self.out}")

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
            answer(asdict(record))
        else:
            low, high = record.results["success_interval" if task.metric == "success" else "return_interval"]
            scale = 100 if task.metric == "success" else 1
            interval = f"{scale * low:.1f} … {scale * high:.1f}"
            row = [task.name, shown(task, record.results), interval, f"{record.results['mean_length']:.0f}"]
            show_table(f"Expert, {self.episodes} episodes", ["task", task.metric, "95 %", "steps"], [row])


def expert_options(options: tuple[str, ...], weights: Path | None) -> dict[str, Any]:
    """As `Task.expert` takes them."""
    return parse_options(options) | ({} if weights is None else {"weights": weights})


def refuse_existing(path: Path) -> None:
    """Nothing is overwritten."""
    if path.exists():
        raise InvalidSettings(f"{path} exists already and is not overwritten. Choose another name or remove it.")
