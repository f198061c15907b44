"""Play episodes with a function from observations to actions, in an environment that records them."""

import math
import random
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from diffclone.errors import DiffcloneError, InvalidData, InvalidSettings
from diffclone.tasks.batch import START_SEEDS
from diffclone.tasks.recording import RecordDemonstrations, Row

MAX_TRIES = 100
"""Give up after this many episodes per recorded one."""
MAX_STEPS = 100_000
"""Give up if an environment does not end an episode in this many steps."""


@final
@dataclass(frozen=True)
class Played:
    """What has been played so far."""

    episodes: int
    """Episodes, recorded or not."""
    clipped: int
    """Steps whose action was outside the environment's bounds, and was clipped to them."""
    mean_return: float = math.nan
    """Mean sum of rewards of the episodes, recorded or not."""


def play_episodes(
    env: RecordDemonstrations,
    act: Callable[[Any], Any],
    episodes: int,
    *,
    seed: int = 0,
    stop_at_success: bool = False,
) -> Generator[Played, None, None]:
    """Play until `episodes` more episodes are recorded; yield after each one.

    Args:
        env: the recorder.
        act: returns the action for an observation, both as the environment defines them. If it has a method `reset`,
            that is called when an episode starts.
        episodes: number of episodes to record.
        seed: chooses the starts, and seeds Python's and NumPy's global random numbers before every episode.
        stop_at_success: end an episode as soon as the environment reports success.
    """
    played, clipped, rewards = 0, 0, 0.0
    wanted = env.num_episodes + episodes
    while (recorded := env.num_episodes) < wanted:
        if played >= MAX_TRIES * (recorded + 1):
            raise InvalidData(f"only {recorded} of {played} episodes ended in success; {episodes} were requested.")
        outside, total = _play_episode(env, act, [seed, played], stop_at_success=stop_at_success)
        clipped, rewards, played = clipped + outside, rewards + total, played + 1
        if env.only_successes and env.reports_success is False:
            raise InvalidSettings(
                "the environment reports neither is_success nor success in its info, so that successes are unknown."
            )
        yield Played(played, clipped, rewards / played)


def describe_error(error: BaseException) -> str:
    """Return an exception of foreign code as one line: type, message, and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    message = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}{': ' * bool(message)}{message}{place}"


def _play_episode(
    env: RecordDemonstrations, act: Callable[[Any], Any], numbers: list[int], *, stop_at_success: bool
) -> tuple[int, float]:
    """Play one episode; return the number of clipped actions and the sum of rewards."""
    start = int(np.random.SeedSequence([START_SEEDS["demonstrations"], *numbers]).generate_state(1)[0]) >> 1
    random.seed(start)
    np.random.seed(start)  # the function may use it
    space: Any = env.action_space
    clipped, step, total = 0, 0, 0.0
    try:
        obs, _ = env.reset(seed=start)
        if callable(reset := getattr(act, "reset", None)):
            reset()
        while step < MAX_STEPS:
            action = _to_action(space, act(obs))
            inside = action.clip(space.low, space.high)
            clipped += not np.array_equal(inside, action)
            obs, reward, terminated, truncated, _ = env.step(inside)
            step += 1
            total += float(reward)
            if terminated or truncated:
                return clipped, total
            if stop_at_success and env.succeeded:
                env.end_episode()
                return clipped, total
    except DiffcloneError as error:
        raise InvalidData(f"episode {numbers[1]}, step {step}: {error}") from None
    except (Exception, SystemExit) as error:  # closing the window of a teleoperation may call sys.exit
        raise InvalidData(f"episode {numbers[1]}, step {step}: {describe_error(error)}.") from error
    raise InvalidSettings(
        f"the environment has not ended an episode after {MAX_STEPS} steps; limit them (--max-steps)."
    )


def _to_action(space: Any, given: Any) -> Row:
    """Return an action as the environment takes it. Demonstrations store single precision, so that is executed."""
    action = np.asarray(given)
    sides = [side for side in space.shape if side != 1]
    fits = action.ndim == 1 and action.size == math.prod(space.shape)  # a policy's flat action
    if action.dtype.kind not in "fiu" or not (fits or list(action.squeeze().shape) == sides):
        what = f"{action.dtype} of shape {action.shape}" if action.dtype.kind != "O" else type(given).__name__
        raise InvalidData(f"the policy returned {what}; the environment takes {space.shape} numbers.")
    if not np.isfinite(action).all():
        raise InvalidData(f"the policy returned {np.array2string(action, threshold=8)}, which is not finite.")
    return action.reshape(space.shape).astype(np.float32).astype(space.dtype)
