"""Train and evaluate the paper's own recipe at full length (docs/paper-recipe.md), one stage per process.

python -m scripts.paper_recipe guide maze                  train the diffusion model that all seeds share
python -m scripts.paper_recipe train maze dbc 0-9          train one policy per seed, as one stack
python -m scripts.paper_recipe evaluate maze dbc 0-9       run 100 episodes per seed with both protocols

A command that is repeated resumes from its checkpoint, or does nothing if it has finished. Several processes may work
in one folder at once; scripts/run_jobs.py runs a list of them.
"""

import fcntl
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from diffclone.cli.console import bars, print_message
from diffclone.cli.interrupt import between_updates
from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, InvalidSettings
from diffclone.evaluation import Protocol, evaluate
from diffclone.experiments.presets import PRESETS, shorten_training
from diffclone.fit import FitOptions, OnProgress, open_session
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.training import Precision, Progress
from diffclone.training.loop import train_parts
from diffclone.training.runs import Run, evaluation_record, train_run
from diffclone.training.session import describe_data

GUIDE_SEED = 0
EPISODES, QUICK_EPISODES = 100, 2
PROTOCOLS: tuple[Protocol, ...] = ("fixed", "paper")
CHECKPOINT_SECONDS = 120.0

Command = Literal["guide", "train", "evaluate"]


@dataclass(frozen=True)
class PaperRecipe:
    """Train or evaluate the paper's own recipe at full length."""

    command: tyro.conf.Positional[Command]
    """The stage to run: a guide, the policies that use it, or their episodes."""
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Name of the task."""
    method: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="METHOD")] = "dbc"
    """Name of the method: bc, dbc, ibc or diffusion-policy."""
    seeds: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SEEDS")] = "0-9"
    """First and last seed, or one seed."""
    preset: Literal["paper", "release"] = "paper"
    """Settings of the paper's appendix, or of the released code. Both use the same guide."""
    demos: Path | None = None
    """File of demonstrations, e.g. the authors'; by default the bundled ones."""
    out: Path = Path("paper-recipe")
    """Folder of guides, runs and records.jsonl."""
    device: str = "auto"
    """Device that trains. Episodes are always run on the CPU."""
    precision: Precision = "float32"
    """Precision of matrix products in training. A guide is only shared by policies of the same precision."""
    quick: bool = False
    """Train for a moment, run two episodes per seed with the fixed protocol only, and mark the Records as quick."""

    def run(self) -> None:
        """Run the stage."""
        {"guide": self.train_guide, "train": self.train_policies, "evaluate": self.run_episodes}[self.command]()

    def train_guide(self) -> None:
        """Train the guide into the folder of guides, where the policies find it."""
        method, demos, begun = self.load_method(), self.load_demonstrations(), time.monotonic()
        if "guide" not in method.needs():
            raise InvalidSettings(f"{self.method} has no guide; train it with: train {self.task} {self.method}.")
        checkpoints = self.out / "checkpoints" / self.name
        _, session = open_session(method, demos, replace(self.make_options(method), checkpoints=checkpoints))
        losses: Mapping[str, Any] = {}
        with self.show_training() as report, closing(train_parts(method, (GUIDE_SEED,), session)) as training:
            for now in training:
                report(now)
                losses = now.losses or losses
        device = session.device
        record = Record(
            kind="training",
            settings=to_dict(method.needs()["guide"]),
            members=[{"seed": GUIDE_SEED}],
            data=describe_data(demos),
            results={"last_losses": {name: float(values.mean()) for name, values in losses.items()}},
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            seconds=time.monotonic() - begun,
            quick=self.quick,
        )
        if losses:  # otherwise the guide was found
            self.append_record(f"guide {self.name}", record)

    def train_policies(self) -> None:
        """Train one policy per seed. A guide that is not in the folder of guides is trained first."""
        method, demos = self.load_method(), self.load_demonstrations()
        options = self.make_options(method)
        with self.show_training() as report:
            run = train_run(self.folder, method, demos, options, task=self.task, quick=self.quick, progress=report)
        self.append_record(f"train {self.name}", Record.read_all(run.records)[0])

    def run_episodes(self) -> None:
        """Run episodes with the last weights of all seeds. The Record has the outcome of every episode."""
        policy = Run(self.folder).policy()
        for protocol in PROTOCOLS[:1] if self.quick else PROTOCOLS:
            job = f"evaluate {self.name} {protocol}"
            if self.has_record(job):
                continue
            episodes = QUICK_EPISODES if self.quick else EPISODES
            with bars() as show:
                scores = evaluate(
                    policy,
                    self.task,
                    episodes=episodes,
                    protocol=protocol,
                    progress=lambda done, total, job=job: show.update(job, done, total),
                )
            self.append_record(job, evaluation_record(policy, scores, quick=self.quick))

    @contextmanager
    def show_training(self) -> Generator[OnProgress, None, None]:
        """Yield a function that shows progress and, after Ctrl-C, stops between two updates and keeps a checkpoint."""
        with between_updates() as stop, bars() as show:

            def report(now: Progress) -> None:
                show.training(self.name, now)
                stop()

            yield report

    @property
    def name(self) -> str:
        """The name of the run."""
        demos = "bundled" if self.demos is None else self.demos.stem
        marks = [*([] if self.precision == "float32" else [self.precision]), *(["quick"] if self.quick else [])]
        return "_".join([self.task, demos, self.method, self.preset, self.seeds, *marks])

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.out / "runs" / self.name

    def load_method(self) -> Method[Any]:
        """Return the method with the settings of the preset."""
        method = PRESETS[f"{self.task}/{self.method}/{self.preset}"].method
        return shorten_training(method) if self.quick else method

    def load_demonstrations(self) -> Demonstrations:
        """Return the demonstrations to train on."""
        return TASKS[self.task].demonstrations() if self.demos is None else Demonstrations.load(self.demos)

    def make_options(self, method: Method[Any]) -> FitOptions:
        """Return the options of training, with one guide that all seeds share."""
        return FitOptions(
            seeds=parse_seeds(self.seeds),
            device=self.device,
            precision=self.precision,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            cache=self.out / "guides",
            guide_seed=GUIDE_SEED if method.needs() else None,
        )

    def has_record(self, job: str) -> bool:
        """Return whether the Record of a job has been written."""
        path = self.out / "records.jsonl"
        return path.exists() and any(record.results["job"] == job for record in Record.read_all(path))

    def append_record(self, job: str, record: Record) -> None:
        """Append the Record of a job to the file of all Records, once."""
        preset = f"{self.task}/{self.method}/{self.preset}"
        more = {"job": job, "task": self.task, "preset": preset, "precision": self.precision}
        with (self.out / "records.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.has_record(job):
                replace(record, results={**record.results, **more}).append_to(self.out / "records.jsonl")
        print_message(f"{job}: done")


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return all seeds from the first to the last."""
    first, _, last = text.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise InvalidSettings(f"seeds must be like 0-9 or 3; they are {text!r}.")
    return tuple(range(int(first), int(last or first) + 1))


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a mistake of the user is one line."""
    try:
        tyro.cli(PaperRecipe, args=arguments, prog="python -m scripts.paper_recipe").run()
    except (DiffcloneError, KeyboardInterrupt) as error:
        raise SystemExit(f"paper_recipe: {error}") from None


if __name__ == "__main__":
    main()
