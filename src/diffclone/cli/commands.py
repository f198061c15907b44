"""What each command does. A command is a dataclass: its flags and its help are made from the fields."""

import dataclasses
import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import tyro

from diffclone.cli.console import answer, bars, percent, percent_interval, say, show_table
from diffclone.cli.tracking import tracking
from diffclone.data import Demonstrations
from diffclone.data.formats import PREFIXES, describe
from diffclone.deploy.pretrained import names as pretrained_names
from diffclone.deploy.pretrained import pretrained
from diffclone.errors import InvalidSettings
from diffclone.evaluation import Protocol, Scores, Starts, evaluate
from diffclone.experiments import PRESETS
from diffclone.fit import choose_device
from diffclone.model import Method
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.statistics import mean_interval
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.training import Precision, Progress
from diffclone.training.overfitting import Overfitting
from diffclone.training.runs import Run, evaluation_record, record_evaluation, train_run

HELD_OUT = 0.1
"""Part of the episodes held out where nothing is said."""


@dataclass(frozen=True)
class Train:
    """Train a method on a task's bundled demonstrations or on a file, several seeds at once."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A task's name, for its bundled demonstrations; or demonstrations of yours: .npz, .pt, robomimic or D4RL .hdf5,
    minari:ID, lerobot:FOLDER, .zarr."""
    out: Path
    """The run's folder. The same command again continues it; a folder that holds another run is left alone."""
    task: str | None = None
    """The task that a file's demonstrations are of, for presets; by default what the file says."""
    method: str = "dbc"
    """What to train: bc, dbc, ibc, ibc-langevin or diffusion-policy."""
    preset: str | None = None
    """Settings made for the task: paper, release, brief, best, demo. Without one, sizes and schedules follow from the
    data. The flags below change either."""
    guide: str | None = None
    """Another guide for dbc, with its default settings: diffusion, energy, vae or gan."""
    seeds: int = 3
    """How many members to train, with seeds 0, 1, …"""
    vary: tuple[str, ...] = ()
    """Fields in which members differ beside their seeds, e.g. coefficient=0,10,30."""
    fraction: float = 1.0
    """Learn from this part of the demonstrations only, chosen at random."""
    fraction_by: Literal["episode", "transition"] = "episode"
    """What the part is of: whole episodes, or transitions, as the released code has it."""
    action_noise: float = 0.0
    """Standard deviation of noise put on the expert's actions, in their own unit."""
    held_out: float | None = None
    """Part of the episodes that nothing learns from, to see over-fitting by; by default a tenth of a file's where it
    has ten episodes and no preset is named, else none."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto is a GPU where there is one."""
    precision: Precision = "float32"
    """Of matrix products; tf32 and bfloat16 are faster on a GPU where networks are wide."""
    cache: bool = True
    """Keep trained guides for other runs, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    checkpoint_seconds: float = 30.0
    """How often the state of training is written."""
    tensorboard: bool = False
    """Also write losses for TensorBoard into the run's folder."""
    wandb: bool = False
    """Also write losses for Weights & Biases there, offline unless WANDB_MODE says otherwise."""
    json: bool = False
    """Print JSON when done."""

    def run(self, method: Method[Any]) -> None:
        """Do it."""
        task, demos = find_demonstrations(self.data, self.task)
        if self.data not in TASKS:
            say(f"{self.data} is {describe(demos)}")
        if self.seeds < 1:
            raise InvalidSettings(f"at least one seed is needed; {self.seeds} were asked for.")
        if self.fraction != 1:
            demos = demos.subsample(self.fraction, by=self.fraction_by)
        if self.action_noise:
            demos = demos.with_action_noise(self.action_noise)
        if self.preset is not None:
            say(f"{task}/{self.method}/{self.preset}: {PRESETS[f'{task}/{self.method}/{self.preset}'].source}")
        share = self.held_out
        if share is None:
            own = self.preset is None and self.data not in TASKS
            share = HELD_OUT if own and demos.num_episodes >= 1 / HELD_OUT else 0.0
        demos, unseen = demos.split(share) if share else (demos, None)
        watched = Overfitting()
        with (
            tracking(self.out, tensorboard=self.tensorboard, wandb=self.wandb) as write,
            bars() as show,
            between_updates() as stop,
        ):

            def progress(now: Progress) -> None:
                show.training(self.method, now)
                write(now)
                watched.see(now)
                stop()

            run = train_run(
                self.out,
                method,
                demos,
                task=task,
                seeds=range(self.seeds),
                vary=parse_values("--vary", self.vary),
                held_out=unseen,
                checkpoint_seconds=self.checkpoint_seconds,
                device=self.device,
                precision=self.precision,
                cache=guide_cache() if self.cache else None,
                progress=progress,
            )
        policy = run.policy()
        diverged = Record.read_all(run.records)[0].results["diverged"]
        if diverged:
            lost = "; ".join(", ".join(f"{k} {v:g}" for k, v in policy.members[m].items()) for m in diverged)
            say(f"Members that diverged, and are of no use: {lost}. A smaller learning rate may help.")
        if notice := watched.notice():
            say(notice)
        if self.json:
            about = {"members": list(policy.members), "diverged": diverged, "data": policy.data}
            answer({"run": str(self.out), **about})
        else:
            say(f"{policy!r} in {self.out}. Next: diffclone evaluate {self.out}")


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
    device: Literal["auto", "cpu", "cuda"] = "auto"
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
            answer(dataclasses.asdict(record))
            return
        rows = [
            [", ".join(f"{key} {value:g}" for key, value in member.items()), *score_cells(scores, [m])]
            for m, member in enumerate(policy.members)
        ]
        rows.append(["all", *score_cells(scores, list(range(len(policy))))])
        count = f"{len(policy)} member{'s' * (len(policy) != 1)} × {scores.success.shape[1]} episodes"
        title = f"{type(policy.method).__name__} on {scores.task}: {count}"
        show_table(title, ["member", metric(scores), "95 %", "steps"], rows)
        if self.protocol == "paper":
            say("The paper's protocol counts the first hundred episodes to end, which favours short ones.")

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

            if self.env is not None:
                from diffclone.tasks.environments import evaluate_gymnasium

                if self.protocol == "paper":
                    raise InvalidSettings("--protocol paper is for bundled tasks; --env counts every episode.")
                count, starts = self.episodes, self.starts
                return evaluate_gymnasium(policy, self.env, episodes=count, starts=starts, progress=progress, **options)
            return evaluate(
                policy,
                task,
                episodes=self.episodes,
                protocol=self.protocol,
                starts=self.starts,
                progress=progress,
                **TASKS[task].check(options),
            )


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
        from diffclone.cli.demo import COLUMNS, run_demo

        seeds, episodes = (min(self.seeds, 2), min(self.episodes, 4)) if self.quick else (self.seeds, self.episodes)
        with bars() as show, between_updates() as stop:
            result = run_demo(self.out, seeds, episodes, quick=self.quick, show=show, stop=stop)
        if self.json:
            answer(result.summary)
        else:
            show_table(result.caption, COLUMNS, result.rows)
            say(f"The page is {self.out / 'index.html'}")


def metric(scores: Scores) -> str:
    """What is reported: success where there is such a thing, else the return."""
    return TASKS[scores.task].metric if scores.task in TASKS else "success" if scores.tells_success else "return"


def score_cells(scores: Scores, members: list[int]) -> list[str]:
    """What the task reports, its interval, and steps, over some members."""
    length = f"{scores.length[members].mean():.0f}"
    if metric(scores) == "success":
        outcomes = scores.success[members]
        return [percent(float(outcomes.mean())), percent_interval(mean_interval(outcomes)), length]
    low, high = mean_interval(scores.returns[members])
    return [f"{scores.returns[members].mean():.1f}", f"{low:.1f} … {high:.1f}", length]


def find_demonstrations(data: str, task: str | None) -> tuple[str | None, Demonstrations]:
    """Bundled ones by a task's name, or whatever `Demonstrations.load` reads; and their task, if that is known."""
    if data in TASKS:
        return data, TASKS[data].demonstrations()
    if not Path(data).exists() and not Path(data).suffix and not data.startswith(PREFIXES):
        TASKS[data]  # neither a file nor a task: the nearest task is named
    demos = Demonstrations.load(data)
    name = task or demos.meta.get("task")
    return (None if name is None else TASKS[name].name), demos


def parse_values(flag: str, entries: Sequence[str]) -> dict[str, list[float]]:
    """`field=1,2,3` to its values."""
    parsed: dict[str, list[float]] = {}
    for entry in entries:
        name, _, values = entry.partition("=")
        try:
            parsed[name] = [float(value) for value in values.split(",")]
        except ValueError:
            raise InvalidSettings(f"{flag} takes FIELD=NUMBER,NUMBER,…; it was given {entry!r}.") from None
    return parsed


def choose_members(policy: Policy, where: Mapping[str, Sequence[float]]) -> Policy:
    """The members whose fields have one of these values."""
    chosen = [
        m
        for m, member in enumerate(policy.members)
        if all(member.get(name) in values for name, values in where.items())
    ]
    if not chosen:
        fields = ", ".join(policy.members[0])
        raise InvalidSettings(f"no member has {dict(where)}; members differ in {fields}.")
    return policy.choose(chosen)


def guide_cache() -> Path:
    """Where trained guides are kept."""
    if chosen := os.environ.get("DIFFCLONE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffclone" / "guides"


@contextmanager
def between_updates() -> Generator[Callable[[], None], None, None]:
    """Hold back Ctrl-C until the yielded function is called, between two updates; a second Ctrl-C is not held back."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def stop() -> None:
        if asked:
            raise KeyboardInterrupt("interrupted. The checkpoint is kept; the same command goes on from there.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
