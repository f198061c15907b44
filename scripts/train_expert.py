"""Train the expert of a task by reinforcement learning.

python -m scripts.train_expert walker --out walker.safetensors
python -m scripts.train_expert walker --algorithm sac --device cuda --seconds 700 --out walker.safetensors
python -m scripts.train_expert hand-rotate --snapshots 0.5 0.59 --out hand.safetensors
diffclone expert evaluate walker --weights walker.safetensors
"""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tyro

from diffclone.cli.console import bars, print_json, print_message
from diffclone.errors import DiffcloneError, InvalidSettings
from diffclone.files import refuse_existing, write_tensors
from diffclone.records import versions
from diffclone.reports.numbers import percent
from diffclone.tasks import TASKS, Task
from diffclone.tasks.batch import BatchEnv, Doubles, Flags, Outcome, Rows
from scripts import ppo, sac
from scripts.keep import keep_best, keep_snapshots
from scripts.ppo import Learner, PPOOptions
from scripts.sac import SACOptions


def hand_reward(env: BatchEnv, rows: Rows, outcome: Outcome) -> tuple[Doubles, Flags]:
    """Reward turning and success; a dropped block costs 1 and ends the episode."""
    dropped = env.observe(rows)[:, 56] < 0.1
    return 5 * outcome.reward + 2.0 * outcome.success - 1.0 * dropped, outcome.ended | dropped


def ant_reward(env: BatchEnv, rows: Rows, outcome: Outcome) -> tuple[Doubles, Flags]:
    """Reward being near the goal; a fall costs 0.5."""
    obs = env.observe(rows)
    arrived, fallen = np.linalg.norm(obs[:, -2:], axis=1) < 0.5, obs[:, 0] < 0.25
    return outcome.reward + 1.0 * arrived - 0.5 * fallen, outcome.ended


def pen_reward(env: BatchEnv, rows: Rows, outcome: Outcome) -> tuple[Doubles, Flags]:
    """Reward success; distance and angle from the target cost. A dropped pen costs 5 and ends the episode."""
    obs = env.observe(rows)
    along, distance = (obs[:, 33:36] * obs[:, 36:39]).sum(1), np.linalg.norm(obs[:, 39:42], axis=1)
    dropped = obs[:, 26] < PEN_DROPPED
    return 5.0 * outcome.success - 0.1 * (1 - along) - distance - 5.0 * dropped, outcome.ended | dropped


PEN_DROPPED = 0.075
"""Height in metres."""
RUNNER = PPOOptions(
    steps=20_000_000,
    rows=64,
    horizon=128,
    epochs=6,
    batch=2048,
    lr=3e-4,
    gamma=0.99,
    entropy=0.0,
    std=0.6,
    widths=(128, 128),
    scale_rewards=True,
)
OPTIONS: dict[str, PPOOptions] = {
    "hand-rotate": PPOOptions(reward=hand_reward),
    "cheetah": RUNNER,
    "walker": RUNNER,
    "ant-reach": PPOOptions(
        steps=10_000_000,
        horizon=25,
        gamma=0.97,
        entropy=0.0,
        widths=(256, 128),
        scale_rewards=True,
        reward=ant_reward,
    ),
    "adroit/pen": PPOOptions(
        steps=4_000_000,
        horizon=25,
        gamma=0.97,
        widths=(128, 128),
        scale_rewards=True,
        reward=pen_reward,
    ),
}

Options = TypeVar("Options", PPOOptions, SACOptions)
SAC_OPTIONS = {"walker": SACOptions(), "cheetah": SACOptions()}


def find_options(task: str, steps: int | None) -> PPOOptions:
    """Return the options of a task, with another number of steps if it is given."""
    if task not in OPTIONS:
        raise InvalidSettings(f"the expert of {task!r} is not trained; the trained ones are {', '.join(OPTIONS)}.")
    return with_steps(OPTIONS[task], steps)


def find_sac_options(task: str, steps: int | None) -> SACOptions:
    """Return the options of a task for SAC, with another number of steps if it is given."""
    if task not in SAC_OPTIONS:
        raise InvalidSettings(f"there are no options of SAC for {task!r}; there are for {', '.join(SAC_OPTIONS)}.")
    return with_steps(SAC_OPTIONS[task], steps)


def with_steps(options: Options, steps: int | None) -> Options:
    """Return options with another number of steps, if it is given."""
    if steps is not None and steps < 1:
        raise InvalidSettings(f"steps must be at least 1; they are {steps}.")
    return options if steps is None else replace(options, steps=steps)


def save_expert(path: Path, learner: Learner, about: dict[str, Any]) -> None:
    """Write the weights. An existing file is not replaced."""
    refuse_existing(path)
    write_tensors(path, learner.tensors(), about)


@dataclass(frozen=True)
class TrainExpert:
    """Train the expert of a task by reinforcement learning. Ctrl-C keeps what was learned."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Name of the task."""
    out: Path
    """File of the weights (.safetensors). An existing file is not overwritten."""
    steps: int | None = None
    """Number of environment steps; by default the one in the task's options."""
    seed: int = 0
    """Seed of the training."""
    device: str = "cpu"
    """Device of the networks; the environments use all cores."""
    algorithm: Literal["ppo", "sac"] = "ppo"
    """Algorithm: "ppo", or "sac", which trains several members and writes the best one so far after each evaluation."""
    seconds: float | None = None
    """End after this time."""
    snapshots: tuple[float, ...] = ()
    """PPO: success rates in 0 … 1 at which the policy is also written; the training ends after the highest."""
    weights: Path | None = None
    """An expert's file to start from, trained by the same algorithm."""
    json: bool = False
    """Print JSON at the end."""

    def run(self) -> None:
        """Train and write the file."""
        task = TASKS[self.task]
        refuse_existing(self.out)
        report = self.run_sac(task) if self.algorithm == "sac" else self.run_ppo(task)
        if self.json:
            print_json({"out": str(self.out), **report})
        else:
            print_message(f"wrote {self.out}. Next: diffclone expert evaluate {task.name} --weights {self.out}")

    def run_ppo(self, task: Task) -> dict[str, Any]:
        """Train by PPO; return the last report."""
        options, about = find_options(task.name, self.steps), self.about(task)
        training = ppo.train(task, options, seed=self.seed, device=self.device, weights=self.weights)
        training = keep_snapshots(training, task, self.snapshots, self.out, about)
        report, learner = next(training)
        begun = time.monotonic()
        with bars() as show:
            try:
                for report, _ in training:
                    note = f"return {report.returns:.1f}  success {percent(report.success)}"
                    show.update(f"expert of {task.name}", report.steps, options.steps, note)
                    if self.seconds is not None and time.monotonic() - begun > self.seconds:
                        break
            except KeyboardInterrupt:
                print_message("interrupted; what was learned is kept.")
        save_expert(self.out, learner, {**about, "steps": str(report.steps)})
        return asdict(report)

    def run_sac(self, task: Task) -> dict[str, Any]:
        """Train by SAC; return the last report."""
        if self.snapshots:
            raise InvalidSettings("--snapshots belongs to PPO; the algorithm is SAC.")
        options = find_sac_options(task.name, self.steps)
        training = sac.train(task, options, seed=self.seed, device=self.device, weights=self.weights)
        begun, report, best = time.monotonic(), None, 0.0
        with bars() as show:
            try:
                for report, best in keep_best(training, self.out, self.about(task)):
                    note = f"return {max(report.returns):.1f}  best {best:.1f}"
                    show.update(f"expert of {task.name}", report.steps, options.steps, note)
                    if self.seconds is not None and time.monotonic() - begun > self.seconds:
                        break
            except KeyboardInterrupt:
                print_message("interrupted; what was learned is kept.")
        if report is None:
            raise InvalidSettings("interrupted before the first evaluation; nothing was written.")
        return {**asdict(report), "best": best}

    def about(self, task: Task) -> dict[str, Any]:
        """Return what the header of a file says."""
        return {"task": task.name, "algorithm": self.algorithm, "seed": str(self.seed), "versions": str(versions())}


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a mistake of the user is one line."""
    try:
        tyro.cli(TrainExpert, args=arguments, prog="python -m scripts.train_expert").run()
    except DiffcloneError as error:
        raise SystemExit(f"train_expert: {error}") from None


if __name__ == "__main__":
    main()
