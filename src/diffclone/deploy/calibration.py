"""Calibrating the monitor of a run: on demonstrations that were held out, or on what the policy itself does.

Demonstrations bound false alarms where the expert acts, successful rollouts where the policy acts, which is where a
monitor is asked. Both are only as good as the guide was not trained on them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from diffclone.data import Demonstrations
from diffclone.deploy.conformal import Calibration, conformal_threshold, episodes_needed
from diffclone.deploy.monitor import Monitor, judging_parts
from diffclone.errors import InvalidData, InvalidSettings
from diffclone.evaluation import Starts, evaluate
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.training.runs import Run


@final
@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes that a policy played."""

    steps: Demonstrations
    """What it saw and did."""
    success: npt.NDArray[np.bool_]
    """Of each episode."""

    @property
    def successes(self) -> Demonstrations:
        """Only the episodes that succeeded."""
        return self.steps.take(np.flatnonzero(self.success).tolist())


def monitor_of(run: Run, member: int) -> Monitor:
    """The monitor of one member of a run, not yet calibrated."""
    policy = run.policy()
    if not 0 <= member < len(policy):
        raise InvalidSettings(f"member {member} was asked for; {run.folder} has members 0 … {len(policy) - 1}.")
    needed = judging_parts(policy.method, policy.normaliser)
    parts = {name: run.part(name, model, dims, member=member) for name, (model, dims) in needed.items()}
    return Monitor.of(policy.method, parts, policy.normaliser)


def play(
    policy: Policy,
    task: str,
    *,
    episodes: int,
    starts: Starts = "validation",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> Rollouts:
    """Let one member play, and keep every step."""
    if len(policy) != 1:
        raise InvalidSettings(f"one member plays at a time; this policy has {len(policy)}: choose policy[0].")
    seen: list[tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]]] = []

    def watch(rows: npt.NDArray[np.int64], obs: npt.NDArray[np.float64]) -> None:
        # The same call with the same rows as the evaluation's own, so the same actions, drawn ones included.
        x = torch.from_numpy(obs.astype(np.float32))[None].to(policy.device, policy.normaliser.obs_mean.dtype)
        seen.append((rows.copy(), obs.astype(np.float32), policy.act(x, len(seen))[0].cpu().numpy()))

    scores = evaluate(policy, task, episodes=episodes, starts=starts, progress=progress, watch=watch, **options)
    rows, obs, act = (np.concatenate(column) for column in zip(*seen, strict=True))
    order = rows.argsort(kind="stable")
    meta = {"task": task, "starts": starts, "options": dict(options)}
    steps = Demonstrations.from_arrays(obs[order], act[order], episode_ends=np.cumsum(scores.length[0]), meta=meta)
    return Rollouts(steps, scores.success[0])


def calibrate(
    monitor: Monitor, episodes: Demonstrations, alpha: float, *, member: int, source: Mapping[str, Any]
) -> Monitor:
    """The monitor with thresholds from these episodes."""
    maxima = monitor.maxima(episodes)
    thresholds = {name: conformal_threshold(found, alpha) for name, found in maxima.items()}
    return monitor.calibrated(
        Calibration(
            alpha=alpha,
            episodes=episodes.num_episodes,
            **thresholds,
            member=member,
            guide=monitor.fingerprint,
            source=source,
        )
    )


def calibrate_on_demonstrations(run: Run, held_out: Demonstrations, alpha: float, member: int) -> Monitor:
    """On demonstrations that the run was not trained on."""
    source = {"demonstrations": held_out.fingerprint, "steps": held_out.num_steps}
    return calibrate(monitor_of(run, member), held_out, alpha, member=member, source=source)


def calibrate_on_rollouts(
    run: Run,
    task: str,
    alpha: float,
    member: int,
    *,
    episodes: int = 100,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> Monitor:
    """On what the policy does where it succeeds, from validation starts."""
    if TASKS[task].metric != "success":
        raise InvalidSettings(
            f"{task} tells returns and not successes, so no episode is known to be good. "
            "Calibrate on demonstrations: --data FILE."
        )
    if not 0 < alpha < 1:
        raise InvalidSettings(f"alpha is a probability between 0 and 1; it is {alpha:g}.")
    monitor, needed = monitor_of(run, member), episodes_needed(alpha)
    played = play(run.policy()[member], task, episodes=episodes, progress=progress, **options)
    count = int(played.success.sum())
    if count < needed:
        raise InvalidData(
            f"of {episodes} episodes {count} succeeded; {needed} are needed for alpha {alpha:g}. "
            "Play more with --episodes, or choose a larger --alpha."
        )
    source = {"task": task, "starts": "validation", "options": dict(options), "played": episodes, "succeeded": count}
    return calibrate(monitor, played.successes, alpha, member=member, source=source)
