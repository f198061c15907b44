"""The `calibrate` command."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from diffclone.cli.arguments import ReadArguments, Reading, RunFolder, find_demonstrations
from diffclone.cli.console import bars, print_json, print_message
from diffclone.cli.inspect import check_page
from diffclone.cli.sources import find_policy
from diffclone.data import Demonstrations
from diffclone.data.formats import NO_OPTIONS, ReadOptions
from diffclone.deploy.calibration import (
    DEFAULT_WINDOW,
    Rule,
    calibrate_on_demonstrations,
    calibrate_on_rollouts,
    find_trained_episodes,
    select_held_out,
)
from diffclone.deploy.monitor import CALIBRATION
from diffclone.deploy.monitors.thresholds import Kind, episodes_needed
from diffclone.errors import DiffcloneError, InvalidData, InvalidFile, InvalidSettings
from diffclone.evaluation import find_task
from diffclone.files import refuse_existing, write_atomically
from diffclone.policy import Policy
from diffclone.tasks.options import parse_options
from diffclone.training.runs import Run


@dataclass(frozen=True)
class Calibrate:
    """Find the thresholds above which a run's monitor raises an alarm, on held-out episodes or successful rollouts."""

    run_folder: RunFolder
    """Folder of a run."""
    data: Annotated[str | None, tyro.conf.arg(aliases=["--demos"])] = None
    """Demonstrations that are not in the training data; by default the run's own held-out episodes."""
    read: Reading = ReadArguments()
    env: str | None = None
    """Calibrate on successful episodes of the policy in this task or Gymnasium environment (an id, or MODULE:ID)
    instead, from validation starts."""
    score: str | None = None
    """Score, or several that must agree, separated by commas: nearest, guide, rnd, logpzo, disagreement. By default
    logpzo."""
    threshold: Kind | None = None
    """One threshold for all steps, or a band that varies with time; by default a band if there are enough episodes."""
    window: int = DEFAULT_WINDOW
    """Steps of an episode that a score is averaged over."""
    training: str | None = None
    """The demonstrations that the run was trained on, if the run does not know where they are. Scores are fitted to
    them."""
    skip_trained: bool = False
    """Leave out episodes of --data that are in the training data, instead of refusing them."""
    episodes: int = 100
    """Number of episodes to run with --env."""
    min_return: float | None = None
    """With --env, use episodes with at least this return instead of successes."""
    alpha: float = 0.05
    """Share of good episodes that may raise an alarm; 0.05 needs 19 episodes, 0.01 needs 99."""
    member: int = 0
    """Index of the member whose guide and policy are used."""
    options: tuple[str, ...] = ()
    """Options of the environment of --env, e.g. start_noise=2 goal_noise=2."""
    again: bool = False
    """Replace an existing calibration."""
    page: Path | None = None
    """Also write a page with the scores of the calibration episodes (.html). An existing file is not overwritten."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Calibrate and save the monitor next to the policy."""
        if self.data is not None and self.env is not None:
            raise InvalidSettings("--data and --env exclude each other; choose one.")
        if self.options and self.env is None:
            raise InvalidSettings("--options need --env ID.")
        if self.min_return is not None and self.env is None:
            raise InvalidSettings("--min-return needs --env ID.")
        if self.skip_trained and self.data is None:
            raise InvalidSettings("--skip-trained needs --data FILE.")
        if self.read != ReadArguments() and self.data is None:
            raise InvalidSettings("options of reading need --data FILE; a run's own data is read as for its training.")
        if self.page is not None:
            check_page(self.page)
        self.rule.settings(with_training=True)  # an unknown score is reported before the episodes are read
        run = self.find_run()
        path = run.folder / "policy" / CALIBRATION
        if not self.again:
            refuse_existing(path, "Add --again to replace it.")
        kept: list[Demonstrations] = []
        keep = kept.append
        policy = self.on_rollouts(run, self.env, keep) if self.env is not None else self.on_demonstrations(run, keep)
        monitor = policy.calibrated_monitor
        assert monitor is not None
        monitor.save(path.parent)
        q = monitor.checked_calibration
        if self.page is not None:
            from diffclone.cli.monitor_page import make_monitor_page

            write_atomically(self.page, make_monitor_page(str(run.folder), monitor, kept[0]).encode())
            print_message(f"wrote {self.page}")
        if self.json:
            scores = [fitted.name for fitted in monitor.scores]
            print_json({"out": str(path), **q.to_dict(), "scores": scores})
            return
        names = " and ".join(fitted.name for fitted in monitor.scores)
        limits = ", ".join(f"{part} {limit:.4g}" for part, limit in q.single.items())
        window = f", mean of {q.window} steps" if q.window > 1 else ""
        print_message(
            f"wrote {path}: score {names}, {q.kind} threshold{window}; single steps: {limits}; member {q.member}."
        )
        print_message(q.describe())

    def find_run(self) -> Run:
        """Return the finished run. Its policy has no monitor: one that cannot be read can be replaced."""
        source = find_policy(self.run_folder)
        if source.run is None or source.snapshot is not None:
            raise InvalidSettings(
                f"{self.run_folder} is not the folder of a run. A monitor belongs to the trained policy of a run: "
                "diffclone calibrate RUN."
            )
        return replace(source.run, trained=source.run.load("policy", "cpu", monitor=False))

    @property
    def rule(self) -> Rule:
        """The scores and thresholds that the flags ask for."""
        scores = None if self.score is None else tuple(filter(None, self.score.replace(" ", "").split(",")))
        return Rule(scores, self.threshold, self.window)

    def find_training(self, run: Run) -> Demonstrations | None:
        """Return the episodes that the run was trained on; None if they are not known and not needed."""
        known, task = run.episodes, run.identity().get("task")
        read = NO_OPTIONS if known is None else ReadOptions.from_dict(known.read)
        sources = [(None if known is None else known.source, read), (task, NO_OPTIONS)]
        sources.append((self.data, self.read.options()))
        if self.training:  # the file of the training, or a copy that another program wrote
            sources = [(self.training, options) for options in (NO_OPTIONS, read)[: 1 + (read != NO_OPTIONS)]]
        problem = f"{run.folder} does not say which demonstrations it was trained on."
        for source, options in sources:
            if not isinstance(source, str):
                continue
            try:
                return self.select_trained(run, source, find_demonstrations(source, None, options)[1])
            except DiffcloneError as error:
                problem = str(error)
        if self.training is None and self.score is None and run.policy().guide is not None:
            print_message(f"{problem} Using the score 'guide', since the default is fitted to them: --training FILE.")
            return None
        if self.training is None and not any(s.needs_pairs for s in self.rule.settings(with_training=True).values()):
            return None
        raise InvalidData(f"{problem} The score is fitted to the training demonstrations: pass --training FILE.")

    def select_trained(self, run: Run, source: str, demos: Demonstrations) -> Demonstrations:
        """Return the episodes of `demos` that the run was trained on."""
        if (known := run.episodes) is None:
            if demos.fingerprint != run.policy().data.get("fingerprint"):
                raise InvalidData(f"{run.folder} was not trained on {source}.")
            return demos
        if not (chosen := demos.find_shared_episodes(known.trained)):
            raise InvalidData(f"{source} has no episode that {run.folder} was trained on.")
        if len(chosen) < (count := run.policy().data.get("episodes", 0)):
            print_message(f"{source} has {len(chosen)} of the {count} training episodes; scores are fitted to these.")
        return demos.take(chosen)

    def on_demonstrations(self, run: Run, keep: Callable[[Demonstrations], None]) -> Policy:
        """Calibrate on --data, or on the run's held-out episodes."""
        known, rule = run.episodes, self.rule
        if self.data is None and (known is None or known.source is None or not known.held_out):
            raise InvalidSettings(
                f"{run.folder} has no known held-out episodes. Train with --held-out 0.2, or calibrate on other "
                "episodes with --data FILE, or on rollouts with --env ID."
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
        if known is not None and self.data is None and len(known.held_out) < (needed := episodes_needed(self.alpha)):
            raise InvalidData(
                f"{run.folder} held out {len(known.held_out)} episodes; alpha {self.alpha:g} needs {needed}. Train "
                "with a larger --held-out, calibrate on other episodes with --data FILE or on rollouts with "
                "--env ID, or choose a larger --alpha."
            )
        check_sizes(data, demos, run.policy())
        overlap, chosen = find_trained_episodes(run, demos), demos
        if self.data is None:
            chosen = select_held_out(run, demos)
        elif overlap is None:
            print_message(f"{run.folder} is of an older version: overlap with its training episodes cannot be checked.")
        elif self.skip_trained and len(overlap) < demos.num_episodes:
            chosen = demos.take(sorted(set(range(demos.num_episodes)) - set(overlap)))
        if left_out := demos.num_episodes - chosen.num_episodes:
            print_message(f"using {chosen.num_episodes} episodes of {data}; {left_out} are left out.")
        keep(chosen)
        return calibrate_on_demonstrations(run, chosen, self.alpha, self.member, rule, self.find_training(run))

    def on_rollouts(self, run: Run, env: str, keep: Callable[[Demonstrations], None]) -> Policy:
        """Calibrate on successful episodes in a task."""
        options = parse_options(self.options)
        task = find_task(env, options)
        options = task.check_options(options)
        with bars() as show:
            return calibrate_on_rollouts(
                run,
                task,
                self.alpha,
                self.member,
                self.rule,
                self.find_training(run),
                episodes=self.episodes,
                min_return=self.min_return,
                progress=lambda done, total: show.update(f"running {task.name}", done, total),
                on_episodes=keep,
                **options,
            )


def check_sizes(data: str, demos: Demonstrations, policy: Policy) -> None:
    """Refuse demonstrations of another robot than the policy's."""
    found, wanted = (demos.obs_size, demos.act.shape[1]), (policy.dims.obs, policy.dims.act)
    if found != wanted:
        raise InvalidData(
            f"{data} has observations of {found[0]} numbers and actions of {found[1]}; the policy was "
            f"trained on {wanted[0]} and {wanted[1]}. Choose demonstrations of the same robot."
        )
