"""Calibrate the monitor of a policy on episodes that it was not trained on.

Held-out demonstrations bound false alarms while the expert acts, successful rollouts bound them while the policy acts.
`monitors/thresholds.py` has the equations and the guarantee.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.deploy.monitor import Monitor, split_episodes
from diffclone.deploy.monitors import SCORES, PairScore
from diffclone.deploy.monitors.base import Context, FittedScore
from diffclone.deploy.monitors.calibrated import Calibration
from diffclone.deploy.monitors.thresholds import (
    MOST_STEPS,
    SHAPE_EPISODES,
    Kind,
    agree,
    calibrate_threshold,
    conformal_rank,
    episodes_needed,
    find_unit,
    moving_average,
    split_shape,
)
from diffclone.errors import InvalidData, InvalidSettings
from diffclone.evaluation import Starts, evaluate
from diffclone.policy import Policy
from diffclone.rng import Rng
from diffclone.tasks import Task
from diffclone.training.runs import Run

DEFAULT_SCORE = "logpzo"
"""The score of `diffclone calibrate`. docs/monitor.md has the table that it was chosen from."""
DEFAULT_WINDOW = 5
"""Its window."""

ScoreChoice = str | Sequence[str | PairScore[Any]] | PairScore[Any]
"""A score by its name or settings, or several that must agree."""


@final
@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of a policy in an environment."""

    steps: Demonstrations
    """Observations and actions."""
    success: npt.NDArray[np.bool_]
    """Whether each episode succeeded."""
    returns: npt.NDArray[np.float64]
    """Sum of rewards of each episode."""
    reports_success: bool = True
    """Whether the environment reports success."""

    @property
    def successes(self) -> Demonstrations:
        """The episodes that succeeded."""
        return self.steps.take(np.flatnonzero(self.success).tolist())


@final
@dataclass(frozen=True)
class Rule:
    """How scores become alarms."""

    scores: ScoreChoice | None = None
    """A score, or several that must agree; None for the default."""
    threshold: Kind | None = None
    """One threshold for all steps, or a band that varies with time; None: a band if there are enough episodes."""
    window: int = DEFAULT_WINDOW
    """Steps that a score is averaged over."""

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MOST_STEPS:
            raise InvalidSettings(f"window must be from 1 to {MOST_STEPS:,} steps; it is {self.window}.")

    def settings(self, *, with_training: bool) -> dict[str, PairScore[Any]]:
        """Return the settings of the scores by name. Without training data the default is "guide"."""
        chosen = (DEFAULT_SCORE if with_training else "guide") if self.scores is None else self.scores
        listed = [chosen] if isinstance(chosen, str | PairScore) else list(chosen)
        found: dict[str, PairScore[Any]] = {}
        for score in listed:
            settings = SCORES[score]() if isinstance(score, str) else score
            name = score if isinstance(score, str) else SCORES.name_of(type(score))
            if name in found:
                raise InvalidSettings(f"the score {name!r} is listed twice.")
            found[name] = settings
        if not found:
            raise InvalidSettings(f"name at least one score: {', '.join(SCORES)}.")
        return found


def make_context(policy: Policy, member: int) -> Context:
    """Return what the scores of one member use of its policy."""
    guide = policy[member].guide
    return Context(policy.method, policy.window_normaliser, {} if guide is None else guide.parts, policy.net)


def make_monitor(
    policy: Policy, member: int = 0, scores: ScoreChoice | None = None, training: Demonstrations | None = None
) -> Monitor:
    """Return a monitor of one member of a policy, without calibration. Its scores are fitted to `training`."""
    context, settings = make_context(policy, member), Rule(scores).settings(with_training=training is not None)
    pairs = None if training is None else context.pairs(training)
    return Monitor(context, [FittedScore.fit(name, score, context, pairs) for name, score in settings.items()])


def collect_rollouts(
    policy: Policy,
    task: str | Task,
    *,
    episodes: int,
    starts: Starts = "validation",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> Rollouts:
    """Run episodes with one member and keep every step."""
    if len(policy) != 1:
        raise InvalidSettings(f"this policy has {len(policy)} members; choose one: policy[0].")
    recorded: list[tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]]] = []

    def record(rows: npt.NDArray[np.int64], obs: npt.NDArray[np.float64], act: npt.NDArray[Any]) -> None:
        recorded.append((rows, obs.astype(np.float32), act))

    scores = evaluate(policy, task, episodes=episodes, starts=starts, progress=progress, on_step=record, **options)
    rows, obs, act = (np.concatenate(column) for column in zip(*recorded, strict=True))
    order = rows.argsort(kind="stable")
    meta = {"task": scores.task, "starts": starts, "options": dict(options)}
    steps = Demonstrations.from_arrays(obs[order], act[order], episode_ends=np.cumsum(scores.length[0]), meta=meta)
    return Rollouts(steps, scores.success[0], scores.returns[0], scores.reports_success)


def calibrate(
    policy: Policy,
    episodes: Demonstrations,
    alpha: float = 0.05,
    *,
    member: int = 0,
    rule: Rule | None = None,
    training: Demonstrations | None = None,
    source: Mapping[str, Any] | None = None,
) -> Policy:
    """Return the policy with a monitor that is calibrated on `episodes`.

    Args:
        policy: a policy.
        episodes: demonstrations or successful rollouts. None of them may be in the training data.
        alpha: the share of good episodes that may raise an alarm.
        member: the index of the member that is monitored.
        rule: scores, kind of threshold and window. The default score is "logpzo", or "guide" without `training`.
        training: the demonstrations that the policy was trained on. Most scores are fitted to them.
        source: stored with the thresholds; by default the fingerprint of the episodes.
    """
    if episodes.fingerprint == policy.data.get("fingerprint"):
        raise InvalidData("the policy was trained on these episodes. Calibrate on episodes that were held out.")
    if training is not None and (shared := episodes.find_shared_episodes(training)):
        raise InvalidData(
            f"{len(shared)} of {episodes.num_episodes} calibration episodes are also in the training data. Calibrate "
            "on episodes that were held out."
        )
    (rule := rule or Rule()).settings(with_training=training is not None)  # refuses mistakes before scores are fitted
    (split_shape if rule.threshold == "band" else conformal_rank)(episodes.num_episodes, alpha)
    monitor = replace(make_monitor(policy, member, rule.scores, training), meta=policy.data.get("meta", {}))
    calibration = replace(
        find_thresholds(monitor, episodes, alpha, rule),
        member=range(len(policy))[member],
        source=source or {"demonstrations": episodes.fingerprint, "steps": episodes.num_steps},
    )
    return replace(policy, calibrated_monitor=replace(monitor, calibration=calibration))


def find_thresholds(monitor: Monitor, episodes: Demonstrations, alpha: float, rule: Rule) -> Calibration:
    """Return the thresholds of a monitor for calibration episodes."""
    count, several = episodes.num_episodes, len(monitor.scores) > 1
    enough = count >= episodes_needed(alpha) + SHAPE_EPISODES
    kind: Kind = rule.threshold or ("band" if enough else "constant")
    shape, rest = list[int](), list(range(count))
    if several or kind == "band":
        shape, rest = split_shape(count, alpha)
    values, units = monitor.values(*monitor.context.windows(episodes)), ()
    if several:
        names = [fitted.name for fitted in monitor.scores]
        by_episode = [list(split_episodes(values[n], episodes)) for n in names]
        units = tuple(find_unit([y[k] for k in shape]) for y in by_episode)
        values["both"] = agree([values[n] for n in names], units)
    single, thresholds = dict[str, float](), dict[str, Any]()
    for part in monitor.parts:
        plain = list(split_episodes(values[part], episodes))
        mean = [moving_average(y, rule.window) for y in plain]
        # A single score of single steps has no shape, so its threshold can use all episodes.
        single[part] = calibrate_threshold([plain[k] for k in rest] if several else plain, alpha).q
        thresholds[part] = calibrate_threshold([mean[k] for k in rest], alpha, kind, [mean[k] for k in shape])
    return Calibration(
        alpha=alpha,
        episodes=len(rest),
        single=single,
        thresholds=thresholds,
        fingerprint=monitor.fingerprint,
        kind=kind,
        window=rule.window,
        shape_episodes=len(shape),
        units=units,
        precision=str(monitor.context.normaliser.obs_mean.dtype).removeprefix("torch."),
    )


def select_held_out(run: Run, demos: Demonstrations) -> Demonstrations:
    """Return the run's held-out episodes, which must be in `demos`."""
    known = run.episodes
    wanted = set() if known is None else set(known.held_out) - set(known.trained)
    chosen = demos.find_shared_episodes(wanted)
    if not wanted or len(chosen) < len(wanted):
        raise InvalidData(
            f"{len(chosen)} of the {len(wanted)} held-out episodes of {run.folder} are in the data. Calibrate on other "
            "episodes with --data FILE, or on rollouts with --env ID."
        )
    return demos.take(chosen)


def find_trained_episodes(run: Run, demos: Demonstrations) -> list[int] | None:
    """Return the indices of the episodes in the run's training data; None if an older run does not know them."""
    return None if (known := run.episodes) is None else demos.find_shared_episodes(known.trained)


def calibrate_on_demonstrations(
    run: Run,
    demos: Demonstrations,
    alpha: float,
    member: int,
    rule: Rule | None = None,
    training: Demonstrations | None = None,
) -> Policy:
    """Calibrate on demonstrations. Episodes of the run's training data are refused."""
    known, overlap = run.episodes, find_trained_episodes(run, demos)
    if known is not None and overlap:
        way_out = "Calibrate on other episodes, or on rollouts with --env ID."
        if known.held_out and known.source:
            way_out = f"Omit --data to calibrate on the run's {len(known.held_out)} held-out episodes."
        elif len(overlap) < demos.num_episodes:
            way_out = "Leave them out with --skip-trained."
        raise InvalidData(
            f"{len(overlap)} of {demos.num_episodes} episodes are in the training data of {run.folder}, so the rate of "
            f"false alarms could exceed alpha. {way_out}"
        )
    return calibrate(run.policy(), demos, alpha, member=member, rule=rule, training=training)


def calibrate_on_rollouts(
    run: Run,
    task: Task,
    alpha: float,
    member: int,
    rule: Rule | None = None,
    training: Demonstrations | None = None,
    *,
    episodes: int = 100,
    min_return: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_episodes: Callable[[Demonstrations], None] = lambda episodes: None,
    **options: Any,
) -> Policy:
    """Calibrate on good episodes of the policy from validation starts: successes, or returns of at least `min_return`.

    The options are passed to the environments and stored with the thresholds. `on_episodes` gets the good episodes.
    """
    no_success = InvalidSettings(
        f"{task.name} reports returns but no successes, so successful episodes cannot be selected. Say which "
        "returns are good, --min-return NUMBER (see diffclone evaluate), or calibrate on demonstrations: --data FILE."
    )
    if task.metric != "success" and task.gymnasium_id is not None and min_return is None:
        raise no_success
    policy, rule, needed = run.policy(), rule or Rule(), episodes_needed(alpha)
    if policy.chunks.has_memory:
        raise InvalidSettings(
            "rollouts contain the actions played, but the monitor of a policy with chunks or a history scores whole "
            "chunks. Calibrate on demonstrations instead: --data FILE."
        )
    context = make_context(policy, member)
    for score in rule.settings(with_training=training is not None).values():
        score.init(context, context.dims, Rng([0])["init"])  # raises an error before the episodes are run
    rollouts = collect_rollouts(policy[member], task, episodes=episodes, progress=progress, **options)
    if min_return is None and not rollouts.reports_success:
        raise no_success
    good = rollouts.success if min_return is None else rollouts.returns >= min_return
    if (count := int(good.sum())) < needed:
        verb = "succeeded" if min_return is None else f"had a return of at least {min_return:g}"
        raise InvalidData(
            f"{count} of {episodes} episodes {verb}; alpha {alpha:g} needs at least {needed}. "
            "Run more --episodes, or choose a larger --alpha."
        )
    source: dict[str, Any] = {"task": task.name, "starts": "validation", "options": dict(options)}
    source |= {"played": episodes, "succeeded": count} | ({} if min_return is None else {"min_return": min_return})
    on_episodes(steps := rollouts.steps.take(np.flatnonzero(good).tolist()))
    return calibrate(policy, steps, alpha, member=member, rule=rule, training=training, source=source)
