"""How good a policy is: every member on the same starts, all stepped together, every episode counted."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import torch

from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.statistics import Interval, mean_interval
from diffclone.tasks import TASKS, Task

Starts = Literal["evaluation", "validation"]
Protocol = Literal["fixed", "paper"]

START_SEEDS: dict[Starts, int] = {"evaluation": 1_000_000, "validation": 2_000_000}
"""Starts are numbered from here. Choices are made on validation starts; evaluation starts are for reporting."""

PAPER_ENVIRONMENTS, PAPER_EPISODES = 10, 100


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """One entry a member and an episode. Column j is the same start for every member (protocol "fixed")."""

    success: npt.NDArray[np.bool_]
    length: npt.NDArray[np.int64]
    returns: npt.NDArray[np.float64]
    task: str
    protocol: Protocol
    starts: Starts
    options: Mapping[str, Any]
    """Of the environment, where they are not its own."""
    seconds: float
    tells_success: bool = True
    """Whether the environment says what a success is; if not, returns are all there is."""

    @property
    def success_rate(self) -> float:
        """Over all members and episodes."""
        return float(self.success.mean())

    @property
    def success_interval(self) -> Interval:
        """95 %, over seeds and starts."""
        return mean_interval(self.success)

    @property
    def member_success(self) -> npt.NDArray[np.float64]:
        """The rate of each member."""
        return self.success.mean(1)

    def summary(self) -> dict[str, Any]:
        """As a Record keeps it."""
        spread = float(self.member_success.std(ddof=1)) if len(self.success) > 1 else None
        return {
            "task": self.task,
            "protocol": self.protocol,
            "starts": self.starts,
            "options": dict(self.options),
            "members": len(self.success),
            "episodes": int(self.success.shape[1]),
            "success_rate": self.success_rate if self.tells_success else None,
            "success_interval": list(self.success_interval) if self.tells_success else None,
            "success_sd_over_members": spread if self.tells_success else None,
            "member_success": self.member_success.tolist() if self.tells_success else None,
            "mean_length": float(self.length.mean()),
            "mean_return": float(self.returns.mean()),
            "return_interval": list(mean_interval(self.returns)),
            "member_return": self.returns.mean(1).tolist(),
            "episodes_per_second": self.success.size / self.seconds,
        }


def evaluate(
    policy: Policy,
    task: str | Task,
    *,
    episodes: int = 100,
    protocol: Protocol = "fixed",
    starts: Starts = "evaluation",
    progress: Callable[[int, int], None] = lambda done, total: None,
    watch: Callable[[npt.NDArray[np.int64], npt.NDArray[np.float64]], None] = lambda rows, obs: None,
    **options: Any,
) -> Scores:
    """Play episodes.

    Args:
        policy: all its members play.
        task: by name.
        episodes: a member. (The paper's protocol always counts a hundred.)
        protocol: "fixed": the same list of starts for every member and method, every episode counts.
            "paper": ten environments a member, restarted as they end, until a hundred episodes have ended; those still
            running are dropped, which favours short episodes, and here short ones are mostly successes.
        starts: which list; choose settings on "validation".
        progress: called with episodes done and episodes in all.
        watch: called at every step with the rows playing (member · episodes + episode) and what they see.
        options: of the task's environment.
    """
    known = TASKS[task] if isinstance(task, str) else task
    if (policy.dims.obs, policy.dims.act) != (known.obs_size, known.act_size):
        raise InvalidSettings(
            f"the policy maps {policy.dims.obs} numbers to {policy.dims.act}; {known.name} gives {known.obs_size} "
            f"and takes {known.act_size}."
        )
    if episodes < 1:
        raise InvalidSettings(f"at least one episode must be played; {episodes} were asked for.")
    begun, members = time.monotonic(), len(policy)
    columns, target = (episodes, episodes) if protocol == "fixed" else (PAPER_ENVIRONMENTS, PAPER_EPISODES)
    env = known.make(members * columns, **options)
    first = START_SEEDS[starts]
    rngs = [np.random.default_rng(first + row % columns) for row in range(members * columns)]
    env.reset(np.arange(members * columns), rngs)
    steps = np.zeros(members * columns, dtype=np.int64)
    returns = np.zeros(members * columns)
    ended: list[list[tuple[bool, int, float]]] = [[] for _ in range(members)]
    outcome = np.zeros((members, columns), dtype=[("success", "?"), ("length", "i8"), ("returns", "f8")])
    playing = np.arange(members * columns)
    finished = call = 0
    while len(playing):
        obs = env.observe(playing)
        watch(playing, obs)
        result = env.step(playing, _act(policy, playing, obs, columns, call))
        call += 1
        steps[playing] += 1
        returns[playing] += result.reward
        over = result.ended | (steps[playing] >= known.horizon)
        for row, success in zip(playing[over], result.success[over], strict=True):
            member, column = divmod(row, columns)
            outcome[member, column] = (success, steps[row], returns[row])
            ended[member].append((bool(success), int(steps[row]), float(returns[row])))
            finished += 1
        if protocol == "fixed":
            playing = playing[~over]
        else:
            restart = playing[over]
            env.reset(restart, [rngs[row] for row in restart])
            steps[restart], returns[restart] = 0, 0
            playing = playing[[len(ended[row // columns]) < target for row in playing]]
        if over.any():
            progress(min(finished, members * target), members * target)
    env.close()
    if protocol == "paper":
        outcome = np.array([e[:target] for e in ended], dtype=outcome.dtype)
    seconds = time.monotonic() - begun
    return Scores(
        outcome["success"], outcome["length"], outcome["returns"], known.name, protocol, starts, options, seconds
    )


def _act(
    policy: Policy, playing: npt.NDArray[np.int64], obs: npt.NDArray[np.float64], columns: int, call: int
) -> npt.NDArray[Any]:
    """One batched call for all members: rows are laid out as (members, most rows of a member)."""
    member = playing // columns
    counts = np.bincount(member, minlength=len(policy))
    place = np.arange(len(playing)) - np.repeat(np.cumsum(counts) - counts, counts)
    padded = np.zeros((len(policy), counts.max(), obs.shape[1]), dtype=np.float32)
    padded[member, place] = obs
    act = policy.act(torch.from_numpy(padded).to(policy.device, policy.normaliser.obs_mean.dtype), call)
    return act.cpu().numpy()[member, place]
