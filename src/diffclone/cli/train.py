"""The `train` command.

Without a method, a preset or a settings flag, it searches for them (`cli/search.py`). Otherwise it trains one method.

The settings flags depend on the method, and their defaults on the data. So the arguments are parsed in two stages:
first the options below, to choose the method and to read the demonstrations; then the same options together with the
fields of the method.
"""

from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from diffclone.cli.arguments import (
    Data,
    Device,
    ReadArguments,
    Reading,
    absolute_source,
    guide_cache,
    open_demonstrations_of,
    parse_values,
    print_contents,
)
from diffclone.cli.blocks import refuse_blocks, select_blocks
from diffclone.cli.console import bars, print_json, print_message
from diffclone.cli.help import is_help
from diffclone.cli.hints import next_evaluation
from diffclone.cli.interrupt import between_updates
from diffclone.cli.parser import parse, parse_known
from diffclone.cli.search import parse_budget, run_search
from diffclone.cli.sources import is_bundled
from diffclone.cli.stages import SEEN, Resumed, announce, describe_finished
from diffclone.cli.tracking import tracking
from diffclone.data import AnyDemonstrations, Demonstrations, Streamed
from diffclone.errors import InvalidSettings
from diffclone.experiments import PRESETS, preset
from diffclone.fit import FitOptions
from diffclone.guides import GUIDES
from diffclone.model import Default, Method
from diffclone.training import Precision, Progress
from diffclone.training.episodes import RunEpisodes
from diffclone.training.estimate import estimate_seconds
from diffclone.training.overfitting import Overfitting
from diffclone.training.runs import Run, train_run
from diffclone.training.search import BUDGET, SearchOptions
from diffclone.training.suggestion import shorten_parts, suggest

PROG = "diffclone train"
DEFAULT = "dbc"
"""The method that is trained if only settings are given."""
UPDATES = "training.updates"
HELD_OUT = 0.1
"""The default fraction of held-out episodes."""


@dataclass(frozen=True)
class TrainOptions:
    """The options that every method has."""

    out: Path
    """Folder of the run. Run the same command again to resume it. A folder with another run is not changed."""
    task: str | None = None
    """Task of the demonstrations in a file, for presets. By default the task that the file names."""
    read: Reading = ReadArguments()
    budget: str | None = None
    """Time that a search for method, settings and training length may take, e.g. 90s, 3m or 1h; by default 4m. The
    search is made unless a method, a preset or a setting is given."""
    plain: bool = False
    """Do not search: train dbc with settings that follow from the data."""
    method: str | None = None
    """Method to train, without a search: bc, dbc, ibc, ibc-langevin, diffusion-policy,
    flow-matching, mip, bc-gmm, or one of another package."""
    preset: str | None = None
    """Settings made for the task: paper, release, brief, best, demo. Without a preset, sizes and schedules follow from
    the data. The settings flags below change either."""
    guide: str | None = None
    """Guide of dbc, with its default settings: diffusion, energy, vae or gan."""
    seeds: int = Default(3)
    """Number of members to train, with seeds 0, 1, … After a search the default is 1."""
    vary: tuple[str, ...] = ()
    """Values of fields in which members differ besides their seeds, e.g. coefficient=0,10,30."""
    snapshots: tuple[int, ...] = ()
    """Also keep the policy at these updates, e.g. 500 1000 2000, for `diffclone evaluate RUN --snapshot 500`."""
    fraction: float = 1.0
    """Train on a random fraction of the demonstrations."""
    fraction_by: Literal["episode", "transition"] = "episode"
    """Whether the fraction is of episodes or of transitions (as in the released code)."""
    action_noise: float = 0.0
    """Standard deviation of the Gaussian noise added to the expert's actions, in raw units."""
    held_out: float | None = None
    """Fraction of the episodes that is not trained on, to detect over-fitting; by default 0.1 for a file of at least
    ten episodes if no preset is given, else 0. A given fraction replaces the search."""
    device: Device = "auto"
    precision: Precision = "float32"
    """Precision of matrix products. On a GPU, tf32 and bfloat16 are faster for wide networks."""
    memory: str | None = None
    """Memory that training may use, e.g. 4GB. A file or folder that does not fit is read in blocks while training
    (docs/scale.md). Without this, demonstrations are read at once."""
    cache: bool = True
    """Keep trained guides for other runs, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints."""
    tensorboard: bool = False
    """Also log losses for TensorBoard, in the folder of the run."""
    wandb: bool = False
    """Also log losses for Weights & Biases, in the folder of the run; offline unless WANDB_MODE is set."""
    json: bool = False
    """Print the result as JSON."""

    def run(self, method: Method[Any], data: str, task: str | None, demos: AnyDemonstrations) -> None:
        """Train the method on the demonstrations and print the result."""
        name, whole = self.method or DEFAULT, demos
        if isinstance(demos, Streamed):
            if self.action_noise or (self.fraction != 1 and self.fraction_by == "transition"):
                raise InvalidSettings("--action-noise and --fraction-by transition need all demonstrations in memory.")
            demos = demos if self.fraction == 1 else demos.subsample(self.fraction)
            demos, held_out, episodes = select_blocks(demos, self.share_held_out(demos, data), absolute_source(data))
            episodes = replace(episodes, read=self.read.options().to_dict())
        else:
            demos, held_out, episodes = self.select(demos, data)
        options = FitOptions(
            seeds=range(self.count_seeds()),
            vary=parse_values("--vary", self.vary),
            device=self.device,
            precision=self.precision,
            held_out=held_out,
            snapshots=self.snapshots,
            checkpoint_seconds=self.checkpoint_seconds,
            cache=guide_cache() if self.cache else None,
        )
        if not is_bundled(data):
            print_contents(data, whole)
        if self.preset is not None:
            key = f"{task}/{name}/{self.preset}"
            print_message(f"{key}: {PRESETS[key].source}")
        overfitting = Overfitting()
        finished = Run(self.out).finished
        plan = {} if finished else estimate_seconds(method, demos, options)
        say_resumed = Resumed()
        with (
            tracking(self.out, tensorboard=self.tensorboard, wandb=self.wandb) as write,
            bars() as show,
            between_updates() as stop,
        ):

            def progress(now: Progress) -> None:
                say_resumed(name, now)
                if plan and (now.seconds >= SEEN or now.update == now.updates):
                    left = announce(plan, now)
                    show.plan({f"{name}: {stage}": seconds for stage, seconds in left.items()})
                    plan.clear()
                show.training(name, now)
                write(now)
                overfitting.add(now)
                stop()

            run = train_run(self.out, method, demos, options, task=task, episodes=episodes, progress=progress)
        policy = run.policy()
        if finished:
            print_message(describe_finished(self.out))
        if policy.diverged:
            members = "; ".join(", ".join(f"{k} {v:g}" for k, v in policy.members[m].items()) for m in policy.diverged)
            print_message(f"Diverged (NaN weights): {members}. Try a smaller learning rate.")
        if notice := overfitting.message():
            print_message(notice)
        if self.json:
            about = {"members": list(policy.members), "diverged": list(policy.diverged), "data": policy.data}
            print_json({"run": str(self.out), **about})
        else:
            print_message(f"{policy!r} in {self.out}. {next_evaluation(self.out, policy)}")

    def search(self, data: str, task: str | None, demos: Demonstrations, begun: float) -> None:
        """Choose method, settings and training length, train the choice and print what was tried."""
        whole, (demos, _, episodes) = demos, replace(self, held_out=0.0).select(demos, data)
        options = SearchOptions(
            budget=BUDGET if self.budget is None else parse_budget(self.budget),
            begun=begun,
            seeds=range(1 if isinstance(self.seeds, Default) else self.count_seeds()),
            device=self.device,
            precision=self.precision,
            cache=guide_cache() if self.cache else None,
            checkpoint_seconds=self.checkpoint_seconds,
            task=task,
            episodes=episodes,
        )
        if not is_bundled(data):
            print_contents(data, whole)
        log = tracking(self.out, tensorboard=self.tensorboard, wandb=self.wandb)
        run_search(self.out, demos, options, log, json=self.json)

    def count_seeds(self) -> int:
        """Return the number of seeds that is set."""
        if self.seeds < 1:
            raise InvalidSettings(f"--seeds must be at least 1; it is {self.seeds}.")
        return self.seeds

    @property
    def instead_of_search(self) -> list[str]:
        """The options that replace the search."""
        lists = {"--plain": self.plain, "--vary": self.vary, "--snapshots": self.snapshots}
        named = {"--method": self.method, "--preset": self.preset, "--guide": self.guide, "--held-out": self.held_out}
        named |= {flag: value or None for flag, value in lists.items()}
        return [flag for flag, value in named.items() if value is not None]

    def select(self, demos: Demonstrations, data: str) -> tuple[Demonstrations, Demonstrations | None, RunEpisodes]:
        """Return the demonstrations to train on, the held-out ones, and a list of both for the run."""
        original = demos
        if self.fraction != 1:
            demos = demos.subsample(self.fraction, by=self.fraction_by)
            original = demos if self.fraction_by == "episode" else original
        if self.action_noise:
            demos = demos.with_action_noise(self.action_noise)
        share = self.share_held_out(demos, data)
        training, held_out = demos.split(share) if share else (demos, None)
        episodes = RunEpisodes.from_split(demos, training, original, absolute_source(data))
        return training, held_out, replace(episodes, read=self.read.options().to_dict())

    def share_held_out(self, demos: AnyDemonstrations, data: str) -> float:
        """Return the fraction of the episodes that is held out."""
        share = self.held_out
        if share is None:
            by_default = not is_bundled(data) and self.preset is None
            share = HELD_OUT if by_default and demos.num_episodes >= 1 / HELD_OUT else 0.0
        if not 0 <= share < 1:
            raise InvalidSettings(f"--held-out must be at least 0 and below 1; it is {share:g}.")
        return share


def run_train(arguments: list[str], summary: str, begun: float) -> None:
    """Parse the arguments and train. `begun` is when the command began, by the monotonic clock."""
    words = [argument for argument in arguments if not is_help([argument])]
    # The default stands for --out, which is required: the second stage reports it if it is missing.
    options, rest = parse_known(TrainOptions, PROG, words, default=TrainOptions(out=Path()), add_help=False)
    data = rest[0] if rest and not rest[0].startswith("-") else ""
    task, demos = options.task, None
    if data:
        task, demos = open_demonstrations_of(data, options.task, options.read.options(), options.memory)
    method = choose_method(options, task, demos)
    command = make_dataclass(
        "TrainWithSettings",
        [
            ("data", Data),
            ("options", Annotated[TrainOptions, tyro.conf.arg(name="")]),
            ("settings", Annotated[type(method), tyro.conf.arg(name="")], field(default=method)),
        ],
        frozen=True,
    )
    if demos is not None:
        summary += (
            f" The defaults below are those for {data}, {demos.num_episodes:,} episodes, {demos.num_steps:,} steps."
        )
    parsed: Any = parse(command, PROG, arguments, summary)
    if demos is None or parsed.data != data:
        raise InvalidSettings(f"the data must come first: diffclone train {parsed.data} …")
    named = [*parsed.options.instead_of_search, *(word.partition("=")[0] for word in rest if word.startswith("-"))]
    if not named:
        refuse_blocks(demos, data)
        parsed.options.search(data, task, demos, begun)
        return
    if parsed.options.budget is not None:
        raise InvalidSettings(f"--budget is for the search, which {named[0]} replaces. Remove one of the two.")
    given = [word.lstrip("-").partition("=")[0].removesuffix(f".{UPDATES}") for word in rest]
    settings, changed = parsed.settings, dict[str, int]()
    if parsed.options.preset is None:
        settings, changed = shorten_parts(settings, method, given)
    for name, updates in changed.items():
        print_message(f"The {name} gets {updates:,} updates, in proportion; --{name}.{UPDATES} sets them.")
    parsed.options.run(settings, data, task, demos)


def choose_method(options: TrainOptions, task: str | None, demos: AnyDemonstrations | None) -> Method[Any]:
    """Return the method with the settings of the preset, or with settings for these demonstrations."""
    method = preset(task, options.method or DEFAULT, options.preset)
    if options.guide is not None:
        if "guide" not in {field.name for field in fields(method)}:
            raise InvalidSettings(f"--guide {options.guide} is for dbc; {options.method or DEFAULT} has no guide.")
        method = replace(method, guide=GUIDES[options.guide]())
    if options.preset is not None or demos is None:
        return method
    return suggest(method, demos)
