"""The `calibrate` command."""

from dataclasses import dataclass

from diffclone.cli.arguments import ReadArguments, Reading, RunFolder, find_demonstrations
from diffclone.cli.console import bars, print_json, print_message
from diffclone.data.formats import ReadOptions
from diffclone.deploy.calibration import (
    calibrate_on_demonstrations,
    calibrate_on_rollouts,
    find_trained_episodes,
    select_held_out,
)
from diffclone.deploy.monitor import CALIBRATION
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings
from diffclone.files import refuse_existing
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.training.runs import Run


@dataclass(frozen=True)
class Calibrate:
    """Find the thresholds above which a run's monitor raises an alarm, on held-out episodes or successful rollouts."""

    run_folder: RunFolder
    """Folder of a run that was trained with a diffusion guide."""
    data: str | None = None
    """Demonstrations that are not in the training data; by default the run's own held-out episodes."""
    read: Reading = ReadArguments()
    env: str | None = None
    """Calibrate on successful episodes of the policy in this task instead, from validation starts."""
    skip_trained: bool = False
    """Leave out episodes of --data that are in the training data, instead of refusing them."""
    episodes: int = 100
    """Number of episodes to run with --env."""
    alpha: float = 0.05
    """Share of good episodes that may raise an alarm; 0.05 needs 19 episodes, 0.01 needs 99."""
    member: int = 0
    """Index of the member whose guide and policy are used."""
    options: tuple[str, ...] = ()
    """Options of the environment of --env, e.g. start_noise=2 goal_noise=2."""
    again: bool = False
    """Replace an existing calibration."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Calibrate and save the monitor next to the policy."""
        if self.data is not None and self.env is not None:
            raise InvalidSettings("--data and --env exclude each other; choose one.")
        if self.options and self.env is None:
            raise InvalidSettings("--options need --env TASK.")
        if self.skip_trained and self.data is None:
            raise InvalidSettings("--skip-trained needs --data FILE.")
        if self.read != ReadArguments() and self.data is None:
            raise InvalidSettings("options of reading need --data FILE; a run's own data is read as for its training.")
        run = Run(self.run_folder)
        run.policy()  # raises an error if the run has not finished
        path = run.folder / "policy" / CALIBRATION
        if not self.again:
            refuse_existing(path, "Add --again to replace it.")
        policy = self.on_rollouts(run, self.env) if self.env is not None else self.on_demonstrations(run)
        monitor = policy.calibrated_monitor
        assert monitor is not None
        monitor.save(path.parent)
        q = monitor.calibration
        assert q is not None
        if self.json:
            print_json({"out": str(path), **q.to_dict()})
        else:
            thresholds = f"state {q.state:.4g}, action {q.action:.4g}, both {q.both:.4g}"
            print_message(
                f"wrote {path}: thresholds {thresholds}; {q.episodes} episodes, alpha {q.alpha:g}, member {q.member}."
            )

    def on_demonstrations(self, run: Run) -> Policy:
        """Calibrate on --data, or on the run's held-out episodes."""
        known = run.episodes
        if self.data is None and (known is None or known.source is None or not known.held_out):
            raise InvalidSettings(
                f"{run.folder} has no known held-out episodes. Train with --held-out 0.2, or calibrate on other "
                "episodes with --data FILE, or on rollouts with --env TASK."
            )
        data = self.data or str(known and known.source)
        try:
            read = ReadOptions.from_dict(known.read) if known and self.data is None else self.read.options()
            _, demos = find_demonstrations(data, None, read)
        except DiffcloneError as error:
            if self.data is not None:
                raise
            message = f"{error} The run was trained on it. If you have moved it, use --data FILE --skip-trained."
            raise InvalidFile(message) from None
        overlap, chosen = find_trained_episodes(run, demos), demos
        if self.data is None:
            chosen = select_held_out(run, demos)
        elif overlap is None:
            print_message(f"{run.folder} is of an older version: overlap with its training episodes cannot be checked.")
        elif self.skip_trained and len(overlap) < demos.num_episodes:
            chosen = demos.take(sorted(set(range(demos.num_episodes)) - set(overlap)))
        if left_out := demos.num_episodes - chosen.num_episodes:
            print_message(f"using {chosen.num_episodes} episodes of {data}; {left_out} are left out.")
        return calibrate_on_demonstrations(run, chosen, self.alpha, self.member)

    def on_rollouts(self, run: Run, env: str) -> Policy:
        """Calibrate on successful episodes in a task."""
        task = TASKS[env]
        options = task.check_options(parse_options(self.options))
        with bars() as show:
            return calibrate_on_rollouts(
                run,
                task.name,
                self.alpha,
                self.member,
                episodes=self.episodes,
                progress=lambda done, total: show.update(f"running {task.name}", done, total),
                **options,
            )
