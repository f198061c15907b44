"""The `evaluate` command."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.cli.arguments import Device, choose_members, parse_values
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.hints import next_command
from diffclone.cli.jobs import announce_jobs
from diffclone.cli.sources import Place, choose_place, find_place, find_policy, named_place
from diffclone.deploy.pretrained import pretrained, pretrained_names
from diffclone.errors import InvalidSettings
from diffclone.evaluation import Protocol, Scores, Starts, evaluate
from diffclone.experiments.executors.choose import LOCAL, open_executor, parse_needs
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.playing_jobs import evaluate_with
from diffclone.fit import choose_device
from diffclone.policy import Policy
from diffclone.reports.numbers import format_score, format_score_interval
from diffclone.statistics import mean_interval
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.training.runs import evaluation_record, record_evaluation


@dataclass(frozen=True)
class Evaluate:
    """Run episodes with every member of a run, and append the scores to the Records of the run."""

    run_folder: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run, made by `diffclone train`; or of a policy."""
    pretrained: str | None = None
    """Evaluate a bundled policy instead: TASK or TASK/METHOD. Nothing is written."""
    snapshot: int | None = None
    """Evaluate the policy at this update instead, one of those given to `diffclone train --snapshots`."""
    episodes: int = 100
    """Episodes per member. The paper's protocol always counts a hundred."""
    task: str | None = None
    """Task or task setting to evaluate on; by default the one that the run was trained for."""
    env: str | None = None
    """Evaluate in this Gymnasium environment instead; `module:id` imports the module first."""
    protocol: Protocol = "fixed"
    """fixed: every member has the same starts and every episode counts. paper: count as the released code does."""
    starts: Starts = "evaluation"
    """List of starts. Use validation to choose settings."""
    options: tuple[str, ...] = ()
    """Options of the environment, e.g. start_noise=2 goal_noise=2."""
    where: tuple[str, ...] = ()
    """Evaluate only members with these values, e.g. coefficient=30 or seed=0,1."""
    acting: tuple[str, ...] = ()
    """Settings of how the method acts, if they differ from training, e.g. sampler=ddim calls=10."""
    device: Device = "auto"
    workers: int = 1
    """Processes that run members in parallel. Their actions can differ from those of one process in the last bit."""
    on: str = LOCAL
    """Where members run: local (--workers), ray or ray://HOST:10001."""
    needs: str = ""
    """What a job occupies on a Ray cluster, e.g. cpus=2,gpus=0.5."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Evaluate, record and print the scores."""
        device = str(choose_device(self.device))
        if (self.run_folder is None) == (self.pretrained is None):
            raise InvalidSettings(
                f"name one policy: the folder of a run, or --pretrained with one of {', '.join(pretrained_names())}."
            )
        if self.protocol == "paper" and self.env is not None:
            raise InvalidSettings("--protocol paper is for bundled tasks; --env counts every episode.")
        if self.run_folder is not None:
            source = find_policy(self.run_folder, self.snapshot)
            policy = source.load(device)
            place = choose_place(source, policy, self.task, self.env)
        else:
            if self.snapshot is not None:
                raise InvalidSettings("--snapshot is for the folder of a run; a bundled policy has no snapshots.")
            source, policy = None, pretrained(self.pretrained or "", device=device)
            place = named_place(self.task, self.env) or find_place((self.pretrained or "").split("/")[0])
        policy = choose_members(policy, parse_values("--where", self.where)).acting(**parse_options(self.acting))
        scores = self.run_episodes(policy, place)
        run = None if source is None else source.run
        record = (
            evaluation_record(policy, scores)
            if source is None or run is None
            else record_evaluation(run, policy, scores, source.snapshot)
        )
        if self.json:
            print_json(asdict(record))
            return
        print_scores(policy, scores)
        if source is not None and self.run_folder is not None:
            where = [("--env", self.env), ("--task", self.task)]
            flags = [word for flag, value in where if value is not None for word in (flag, value)]
            print_message(next_command("render", self.run_folder, *flags, "--out", source.folder / "episode.gif"))

    def run_episodes(self, policy: Policy, place: Place) -> Scores:
        """Run all episodes."""
        options = {**place.options, **parse_options(self.options)}
        settings: dict[str, Any] = {
            "episodes": self.episodes,
            "protocol": self.protocol,
            "starts": self.starts,
            **options,
        }
        with open_executor(self.on, self.workers) as executor, bars() as show:
            if executor is not None:
                callbacks = Callbacks(lambda record: None, on_jobs=announce_jobs())
                needs = parse_needs(self.needs, policy.device.type)
                return evaluate_with(executor, policy, place.name, callbacks, needs, **settings)
            return evaluate(
                policy,
                place.name,
                progress=lambda done, total: show.update(f"running {place.name}", done, total),
                **settings,
            )


def print_scores(policy: Policy, scores: Scores) -> None:
    """Print one row per member, and one for all if there are several."""
    bundled = scores.task in TASKS
    metric = TASKS[scores.task].metric if bundled else "success" if scores.reports_success else "return"
    values = scores.success if metric == "success" else scores.returns
    labels = [", ".join(f"{key} {value:g}" for key, value in member.items()) for member in policy.members]
    rows: list[list[str]] = []
    together = [("all", list(range(len(policy))))] if len(policy) > 1 else []
    for label, members in [*((label, [m]) for m, label in enumerate(labels)), *together]:
        chosen = values[members]
        interval = format_score_interval(mean_interval(chosen), metric)
        steps = f"{scores.length[members].mean():.0f}"
        rows.append([label, format_score(float(chosen.mean()), metric), interval, steps])
    count = f"{len(policy)} member{'s' * (len(policy) != 1)} × {scores.success.shape[1]} episodes"
    title = f"{type(policy.method).__name__} on {scores.task}: {count}"
    print_table(title, ["member", metric, "95 %", "steps"], rows)
    if scores.protocol == "paper":
        print_message("The paper's protocol counts the first hundred episodes that end, which favours short ones.")
