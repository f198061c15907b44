"""The `train` command."""

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from diffclone.cli.arguments import absolute_source, find_demonstrations, guide_cache, parse_values, scalar_rule
from diffclone.cli.console import bars, print_json, print_message
from diffclone.cli.interrupt import between_updates
from diffclone.cli.tracking import tracking
from diffclone.data.formats import describe, has_format_prefix
from diffclone.errors import InvalidSettings
from diffclone.experiments import PRESETS, preset
from diffclone.fit import FitOptions
from diffclone.guides import GUIDES
from diffclone.methods import DBC
from diffclone.model import Method
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training import Precision, Progress
from diffclone.training.episodes import RunEpisodes
from diffclone.training.overfitting import Overfitting
from diffclone.training.runs import train_run
from diffclone.training.suggestion import suggest

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
    device: str = "auto"
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
            print_message(f"{self.data} is {describe(demos)}")
        if self.seeds < 1:
            raise InvalidSettings(f"at least one seed is needed; {self.seeds} were asked for.")
        original = demos
        if self.fraction != 1:
            demos = demos.subsample(self.fraction, by=self.fraction_by)
            original = demos if self.fraction_by == "episode" else original
        if self.action_noise:
            demos = demos.with_action_noise(self.action_noise)
        if self.preset is not None:
            print_message(
                f"{task}/{self.method}/{self.preset}: {PRESETS[f'{task}/{self.method}/{self.preset}'].source}"
            )
        share = self.held_out
        if share is None:
            own = self.preset is None and self.data not in TASKS
            share = HELD_OUT if own and demos.num_episodes >= 1 / HELD_OUT else 0.0
        whole, (demos, unseen) = demos, demos.split(share) if share else (demos, None)
        episodes = RunEpisodes.from_split(whole, demos, original, absolute_source(self.data))
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
                FitOptions(
                    seeds=range(self.seeds),
                    vary=parse_values("--vary", self.vary),
                    device=self.device,
                    precision=self.precision,
                    held_out=unseen,
                    checkpoint_seconds=self.checkpoint_seconds,
                    cache=guide_cache() if self.cache else None,
                ),
                task=task,
                episodes=episodes,
                progress=progress,
            )
        policy = run.policy()
        diverged = Record.read_all(run.records)[0].results["diverged"]
        if diverged:
            lost = "; ".join(", ".join(f"{k} {v:g}" for k, v in policy.members[m].items()) for m in diverged)
            print_message(f"Members that diverged, and are of no use: {lost}. A smaller learning rate may help.")
        if notice := watched.notice():
            print_message(notice)
        if self.json:
            about = {"members": list(policy.members), "diverged": diverged, "data": policy.data}
            print_json({"run": str(self.out), **about})
        else:
            print_message(f"{policy!r} in {self.out}. Next: diffclone evaluate {self.out}")


def run_train(arguments: list[str], summary: str) -> None:
    """Parse and run."""
    method = peek_method(arguments)
    both = dataclasses.make_dataclass(
        "TrainWithSettings",
        [
            ("command", Annotated[Train, tyro.conf.arg(name="")]),
            (
                "settings",
                Annotated[type(method), tyro.conf.arg(name="")],
                dataclasses.field(default=method),
            ),
        ],
        frozen=True,
    )
    # What may be absent (an encoder) is there with its flags where the preset has it.
    whole = (tyro.conf.AvoidSubcommands,)
    chosen: Any = tyro.cli(
        both, prog="diffclone train", description=summary, args=arguments, registry=scalar_rule(), config=whole
    )
    chosen.command.run(chosen.settings)


def peek_method(argv: list[str]) -> Method[Any]:
    """The settings that the flags of `train` start from: they depend on --method, --preset and the task."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, default in (
        ("--method", "dbc"),
        ("--preset", None),
        ("--task", None),
        ("--guide", None),
        ("--out", None),
    ):
        parser.add_argument(flag, default=default)
    known, rest = parser.parse_known_args(argv)
    task = known.task
    data = next((a for a in rest if is_data(a)), None)
    if known.preset is not None and task is None:
        task = data if data is None else find_demonstrations(data, None)[0]
        if task is None:
            presets = ", ".join(PRESETS)
            raise InvalidSettings(f"a preset belongs to a task; say --task NAME. Presets: {presets}.")
    method = preset(task, known.method, known.preset)
    if known.guide is not None:
        if not isinstance(method, DBC):
            raise InvalidSettings(f"--guide {known.guide} is for dbc; {known.method} has no guide.")
        method = dataclasses.replace(method, guide=GUIDES[known.guide]())
    if known.preset is not None or data is None:
        return method
    return suggest(method, known.method, find_demonstrations(data, None)[1])


def is_data(text: str) -> bool:
    """Whether an argument names demonstrations."""
    return text in TASKS or has_format_prefix(text) or Path(text).exists()
