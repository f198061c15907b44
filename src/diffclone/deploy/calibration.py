"""Calibrate the monitor of a run by split conformal prediction over whole episodes.

M_i    = max over the steps of episode i of a score                  i = 1 … n, none of them in the training data
q      = the ⌈(n + 1)(1 − α)⌉-th smallest M_i                        exists if n ≥ 1/α − 1
alarm  = score > q

P(an alarm in a new episode of the same distribution) ≤ α            over calibrations and episodes

Episodes are exchangeable, the steps of one episode are not. Held-out demonstrations bound false alarms while the expert
acts, successful rollouts bound them while the policy acts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.deploy.monitor import Calibration, Monitor
from diffclone.errors import InvalidData, InvalidSettings
from diffclone.evaluation import Starts, evaluate
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.training.runs import Run


def conformal_threshold(maxima: npt.ArrayLike, alpha: float) -> float:
    """Return q. A new episode of the same distribution exceeds it with probability at most α.

    Calibrated on successes, α bounds the share of successful episodes that raise a false alarm, on average over
    calibrations. There is no bound on missed failures or on episodes of another distribution.
    """
    needed, m = episodes_needed(alpha), np.sort(np.asarray(maxima, dtype=np.float64).reshape(-1))
    n = len(m)
    if n < needed:
        raise InvalidData(
            f"alpha {alpha:g} needs at least {needed} calibration episodes; there are {n}. Add episodes, or choose a "
            "larger alpha."
        )
    if not np.isfinite(m).all():
        raise InvalidData(f"{int((~np.isfinite(m)).sum())} of {n} episodes have scores that are NaN or infinite.")
    # ⌈(n + 1)(1 − α)⌉, tolerant of rounding errors in (n + 1) α.
    rank = n + 1 - math.floor((n + 1) * alpha + 1e-9)
    return float(m[rank - 1])


def episodes_needed(alpha: float) -> int:
    """Return the smallest n ≥ 1/α − 1."""
    if not 0 < alpha < 1:
        raise InvalidSettings(f"alpha must be a probability between 0 and 1; it is {alpha:g}.")
    return math.ceil(1 / alpha - 1 - 1e-9)


@final
@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of a policy in an environment."""

    steps: Demonstrations
    """Observations and actions."""
    success: npt.NDArray[np.bool_]
    """Whether each episode succeeded."""

    @property
    def successes(self) -> Demonstrations:
        """The episodes that succeeded."""
        return self.steps.take(np.flatnonzero(self.success).tolist())


def make_monitor(policy: Policy, member: int = 0) -> Monitor:
    """Return a monitor with the guide of one member of a policy, without calibration."""
    if (guide := policy[member].guide) is None:
        raise InvalidSettings(
            f"this {type(policy.method).__name__} policy has no guide. Use a policy with a diffusion guide, from `fit` "
            "or `Run.policy`: diffclone train DATA --method dbc --guide diffusion."
        )
    return Monitor(guide)


def collect_rollouts(
    policy: Policy,
    task: str,
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
    meta = {"task": task, "starts": starts, "options": dict(options)}
    steps = Demonstrations.from_arrays(obs[order], act[order], episode_ends=np.cumsum(scores.length[0]), meta=meta)
    return Rollouts(steps, scores.success[0])


def calibrate(
    policy: Policy,
    episodes: Demonstrations,
    alpha: float = 0.05,
    *,
    member: int = 0,
    source: Mapping[str, Any] | None = None,
) -> Policy:
    """Return the policy with a monitor that is calibrated on `episodes`.

    Args:
        policy: a policy with a diffusion guide.
        episodes: demonstrations or successful rollouts. None of them may be in the training data.
        alpha: the share of good episodes that may raise an alarm.
        member: the index of the member whose guide computes the scores.
        source: stored with the thresholds; by default the fingerprint of the episodes.
    """
    if episodes.fingerprint == policy.data.get("fingerprint"):
        raise InvalidData("the policy was trained on these episodes. Calibrate on episodes that were held out.")
    monitor = make_monitor(policy, member)
    thresholds = {name: conformal_threshold(m, alpha) for name, m in monitor.episode_maxima(episodes).items()}
    calibration = Calibration(
        alpha=alpha,
        episodes=episodes.num_episodes,
        **thresholds,
        member=range(len(policy))[member],
        guide=monitor.fingerprint,
        source=source or {"demonstrations": episodes.fingerprint, "steps": episodes.num_steps},
    )
    return replace(policy, calibrated_monitor=replace(monitor, calibration=calibration))


def select_held_out(run: Run, demos: Demonstrations) -> Demonstrations:
    """Return the run's held-out episodes, which must be in `demos`."""
    known = run.episodes
    wanted = set() if known is None else set(known.held_out) - set(known.trained)
    chosen = demos.find_shared_episodes(wanted)
    if not wanted or len(chosen) < len(wanted):
        raise InvalidData(
            f"{len(chosen)} of the {len(wanted)} held-out episodes of {run.folder} are in the data. Calibrate on other "
            "episodes with --data FILE, or on rollouts with --env TASK."
        )
    return demos.take(chosen)


def find_trained_episodes(run: Run, demos: Demonstrations) -> list[int] | None:
    """Return the indices of the episodes in the run's training data; None if an older run does not know them."""
    return None if (known := run.episodes) is None else demos.find_shared_episodes(known.trained)


def calibrate_on_demonstrations(run: Run, demos: Demonstrations, alpha: float, member: int) -> Policy:
    """Calibrate on demonstrations. Episodes of the run's training data are refused."""
    known, overlap = run.episodes, find_trained_episodes(run, demos)
    if known is not None and overlap:
        way_out = "Calibrate on other episodes, or on rollouts with --env TASK."
        if known.held_out and known.source:
            way_out = f"Omit --data to calibrate on the run's {len(known.held_out)} held-out episodes."
        elif len(overlap) < demos.num_episodes:
            way_out = "Leave them out with --skip-trained."
        raise InvalidData(
            f"{len(overlap)} of {demos.num_episodes} episodes are in the training data of {run.folder}, so the rate of "
            f"false alarms could exceed alpha. {way_out}"
        )
    return calibrate(run.policy(), demos, alpha, member=member)


def calibrate_on_rollouts(
    run: Run,
    task: str,
    alpha: float,
    member: int,
    *,
    episodes: int = 100,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> Policy:
    """Calibrate on successful episodes of the policy from validation starts."""
    if TASKS[task].metric != "success":
        raise InvalidSettings(
            f"{task} reports returns but no successes, so successful episodes cannot be selected. "
            "Calibrate on demonstrations instead: --data FILE."
        )
    policy, needed = run.policy(), episodes_needed(alpha)
    if policy.chunks.has_memory:
        raise InvalidSettings(
            "rollouts contain the actions played, but the monitor of a policy with chunks or a history scores whole "
            "chunks. Calibrate on demonstrations instead: --data FILE."
        )
    make_monitor(policy, member)  # raises an error before the episodes are run
    rollouts = collect_rollouts(policy[member], task, episodes=episodes, progress=progress, **options)
    count = int(rollouts.success.sum())
    if count < needed:
        raise InvalidData(
            f"{count} of {episodes} episodes succeeded; alpha {alpha:g} needs at least {needed}. "
            "Run more --episodes, or choose a larger --alpha."
        )
    source = {"task": task, "starts": "validation", "options": dict(options), "played": episodes, "succeeded": count}
    return calibrate(policy, rollouts.successes, alpha, member=member, source=source)
