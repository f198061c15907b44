"""The `evaluate` command."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from diffclone.cli.arguments import choose_members, parse_values
from diffclone.cli.console import bars, percent, percent_interval, print_json, print_message, print_table
from diffclone.deploy.pretrained import pretrained, pretrained_names
from diffclone.errors import InvalidSettings
from diffclone.evaluation import Protocol, Scores, Starts, evaluate
from diffclone.fit import choose_device
from diffclone.policy import Policy
from diffclone.statistics import mean_interval
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.training.runs import Run, evaluation_record, record_evaluation


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with every member of a run, and append the result to the run's Records."""

    run_folder: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="RUN")] = None
    """What `diffclone train` made."""
    pretrained: str | None = None
    """Or a policy that comes with the package: TASK, or TASK/METHOD. Nothing is written."""
    episodes: int = 100
    """Episodes a member. (The paper's protocol always counts a hundred.)"""
    task: str | None = None
    """The task to play; by default the one the run was trained for."""
    env: str | None = None
    """Or any environment by its Gymnasium id; `module:id` imports the module first."""
    protocol: Protocol = "fixed"
    """fixed: the same starts for all, every episode counts; paper: as the released code counts."""
    starts: Starts = "evaluation"
    """Which list of starts; choose settings on validation."""
    options: tuple[str, ...] = ()
    """Of the task's environment, e.g. start_noise=2 goal_noise=2."""
    where: tuple[str, ...] = ()
    """Only members with these values, e.g. coefficient=30 or seed=0,1."""
    acting: tuple[str, ...] = ()
    """Settings of how the method acts that differ from its training's, e.g. sampler=ddim calls=10."""
    device: str = "auto"
    """Where the policy runs; auto is a GPU where there is one."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Do it."""
        device = str(choose_device(self.device))
        if (self.run_folder is None) == (self.pretrained is None):
            raise InvalidSettings(
                f"say what plays: a run's folder, or --pretrained with one of {', '.join(pretrained_names())}."
            )
        run = None if self.run_folder is None else Run(self.run_folder)
        policy = pretrained(self.pretrained or "", device=device) if run is None else run.policy(device)
        task = (self.pretrained or "").split("/")[0] if run is None else run.identity()["task"]
        policy = choose_members(policy, parse_values("--where", self.where)).acting(**parse_options(self.acting))
        scores = self.play(policy, self.env or self.task or task)
        record = evaluation_record(policy, scores) if run is None else record_evaluation(run, policy, scores)
        if self.json:
            print_json(dataclasses.asdict(record))
            return
        rows = [
            [", ".join(f"{key} {value:g}" for key, value in member.items()), *score_cells(scores, [m])]
            for m, member in enumerate(policy.members)
        ]
        rows.append(["all", *score_cells(scores, list(range(len(policy))))])
        count = f"{len(policy)} member{'s' * (len(policy) != 1)} × {scores.success.shape[1]} episodes"
        title = f"{type(policy.method).__name__} on {scores.task}: {count}"
        print_table(title, ["member", metric(scores), "95 %", "steps"], rows)
        if self.protocol == "paper":
            print_message("The paper's protocol counts the first hundred episodes to end, which favours short ones.")

    def play(self, policy: Policy, task: str | None) -> Scores:
        """All episodes."""
        if task is None:
            raise InvalidSettings(
                f"{self.run_folder} was trained on a file of no known task; say --task NAME, or --env ID for any "
                "Gymnasium environment."
            )
        options = parse_options(self.options)
        with bars() as show:

            def progress(done: int, total: int) -> None:
                show.update(f"playing {task}", done, total)

            if self.env is not None and self.protocol == "paper":
                raise InvalidSettings("--protocol paper is for bundled tasks; --env counts every episode.")
            return evaluate(
                policy,
                task,
                episodes=self.episodes,
                protocol=self.protocol,
                starts=self.starts,
                progress=progress,
                **options,
            )


def metric(scores: Scores) -> str:
    """What is reported: success where there is such a thing, else the return."""
    return TASKS[scores.task].metric if scores.task in TASKS else "success" if scores.reports_success else "return"


def score_cells(scores: Scores, members: list[int]) -> list[str]:
    """What the task reports, its interval, and steps, over some members."""
    length = f"{scores.length[members].mean():.0f}"
    if metric(scores) == "success":
        outcomes = scores.success[members]
        return [percent(float(outcomes.mean())), percent_interval(mean_interval(outcomes)), length]
    low, high = mean_interval(scores.returns[members])
    return [f"{scores.returns[members].mean():.1f}", f"{low:.1f} … {high:.1f}", length]
