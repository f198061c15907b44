"""Log losses to TensorBoard and Weights & Biases. The file `metrics.jsonl` of a run is always written."""

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from diffclone.errors import MissingPackage, install_command
from diffclone.training import Progress

Write = Callable[[Progress], None]


@contextmanager
def tracking(folder: Path, *, tensorboard: bool, wandb: bool) -> Generator[Write, None, None]:
    """Yield a function that logs the losses of one progress report."""
    with ExitStack() as stack:
        writers: list[Write] = []
        if tensorboard:
            writers.append(stack.enter_context(tensorboard_writer(folder)))
        if wandb:
            writers.append(stack.enter_context(wandb_writer(folder)))

        def write(now: Progress) -> None:
            for writer in writers:
                writer(now)

        yield write


@contextmanager
def tensorboard_writer(folder: Path) -> Generator[Write, None, None]:
    """Write event files into the folder of the run."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingPackage(
            f"--tensorboard needs the package tensorboard. Try: {install_command('tensorboard')}."
        ) from None
    writers: list[SummaryWriter] = []

    def write(now: Progress) -> None:
        if not writers:  # only after the run has claimed its folder
            writers.append(SummaryWriter(str(folder / "tensorboard")))
        for name, value in member_losses(now).items():
            writers[0].add_scalar(name, value, now.update)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


@contextmanager
def wandb_writer(folder: Path) -> Generator[Write, None, None]:
    """Write into the folder of the run. Nothing is uploaded unless WANDB_MODE is set."""
    try:
        import wandb
    except ImportError:
        raise MissingPackage(f"--wandb needs the package wandb. Try: {install_command('wandb')}.") from None
    runs: list[Any] = []

    def write(now: Progress) -> None:
        if not runs:
            mode: Any = os.environ.get("WANDB_MODE", "offline")
            runs.append(wandb.init(project="diffclone", name=folder.name, dir=str(folder), mode=mode))
        runs[0].log({**member_losses(now), f"{now.stage}/update": now.update})

    try:
        yield write
    finally:
        for run in runs:
            run.finish()


def member_losses(now: Progress) -> dict[str, float]:
    """Return the losses of every member by name."""
    return {
        f"{now.stage}/{name}/member {member}": float(value)
        for name, values in now.losses.items()
        for member, value in enumerate(values)
    }
