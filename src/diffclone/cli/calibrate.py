"""The command about monitoring; like the others, a dataclass whose fields are its flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from diffclone.cli.arguments import find_demonstrations
from diffclone.cli.console import bars, print_json, print_message
from diffclone.deploy.calibration import calibrate_on_demonstrations, calibrate_on_rollouts
from diffclone.deploy.monitor import CALIBRATION, Monitor
from diffclone.errors import InvalidSettings
from diffclone.files import refuse_existing
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.training.runs import Run


@dataclass(frozen=True)
class Calibrate:
    """Set the thresholds above which a run's guide raises an alarm, on held-out episodes or successful rollouts."""

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """What `diffclone train` made, with a diffusion guide."""
    data: str | None = None
    """A file of demonstrations that the run was not trained on. Or give --env."""
    env: str | None = None
    """A task, in which the policy plays from validation starts; the episodes that succeed count."""
    episodes: int = 100
    """Episodes played with --env."""
    alpha: float = 0.05
    """The share of good episodes that may raise an alarm; 0.05 needs 19 of them, 0.01 needs 99."""
    member: int = 0
    """Which member acts and judges."""
    options: tuple[str, ...] = ()
    """Of the task's environment, e.g. start_noise=2 goal_noise=2."""
    again: bool = False
    """Replace the calibration that is there."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it."""
        if (self.data is None) == (self.env is None):
            given = "neither" if self.data is None else "both"
            raise InvalidSettings(f"{given} of --data and --env was given; calibrate on one of them.")
        if self.options and self.env is None:
            raise InvalidSettings("--options are of an environment; they go with --env TASK.")
        run = Run(self.run_folder)
        run.policy()  # what is no finished run is told so first
        path = run.folder / "policy" / CALIBRATION
        if not self.again:
            refuse_existing(path, "To replace it: --again.")
        monitor = self.on_data(run, self.data) if self.data is not None else self.on_rollouts(run, str(self.env))
        monitor.save(path.parent)
        q = monitor.calibration
        assert q is not None
        if self.json:
            print_json({"out": str(path), **q.to_dict()})
        else:
            parts = f"state {q.state:.4g}, action {q.action:.4g}, both {q.both:.4g}"
            print_message(
                f"wrote {path}: an alarm above {parts}; {q.episodes} episodes, alpha {q.alpha:g}, member {q.member}."
            )

    def on_data(self, run: Run, data: str) -> Monitor:
        """On a file."""
        _, held_out = find_demonstrations(data, None)
        if held_out.fingerprint == run.policy().data.get("fingerprint"):
            print_message(
                f"{data} is what the guide was trained on: its thresholds will be too low. Hold some episodes out."
            )
        return calibrate_on_demonstrations(run, held_out, self.alpha, self.member)

    def on_rollouts(self, run: Run, env: str) -> Monitor:
        """In a task."""
        task = TASKS[env]
        options = task.check(parse_options(self.options))
        with bars() as show:
            return calibrate_on_rollouts(
                run,
                task.name,
                self.alpha,
                self.member,
                episodes=self.episodes,
                progress=lambda done, total: show.update(f"playing {task.name}", done, total),
                **options,
            )
