"""Episodes in any Gymnasium environment, for policies whose task is not one of the bundled ones."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.evaluation import START_SEEDS, Scores, Starts
from diffclone.policy import Policy

LONGEST = 100_000
"""Steps after which an episode of an environment without a limit is ended."""
SUCCESS = ("is_success", "success")
"""What environments call it in their last info."""


def evaluate_gymnasium(
    policy: Policy,
    env_id: str,
    *,
    episodes: int = 100,
    starts: Starts = "evaluation",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> Scores:
    """Play episodes in the environment of this id, all members in turn on the same seeds.

    Args:
        policy: all its members play.
        env_id: as `gymnasium.make` takes it; `module:id` imports the module first.
        episodes: a member.
        starts: which list of seeds.
        progress: called with episodes done and episodes in all.
        options: for `gymnasium.make`.
    """
    if episodes < 1:
        raise InvalidSettings(f"at least one episode must be played; {episodes} were asked for.")
    begun, members = time.monotonic(), len(policy)
    env, flatten = make(env_id, options)
    check_spaces(env, env_id, policy, flatten)
    success = np.zeros((members, episodes), dtype=np.bool_)
    length, returns = np.zeros((members, episodes), dtype=np.int64), np.zeros((members, episodes))
    told = True
    try:
        for member in range(members):
            one = policy[member]
            for episode in range(episodes):
                seen, _ = env.reset(seed=START_SEEDS[starts] + episode)
                info, over = dict[str, Any](), False
                while not over and length[member, episode] < LONGEST:
                    act = one(flatten(seen)).astype(env.action_space.dtype)
                    seen, reward, terminated, truncated, info = env.step(act.reshape(env.action_space.shape))
                    over = bool(terminated or truncated)
                    length[member, episode] += 1
                    returns[member, episode] += float(reward)
                key = next((name for name in SUCCESS if name in info), None)
                told = told and key is not None
                success[member, episode] = bool(info[key]) if key is not None else False
                progress(member * episodes + episode + 1, members * episodes)
    finally:
        env.close()
    seconds = time.monotonic() - begun
    return Scores(success, length, returns, env_id, "fixed", starts, options, seconds, tells_success=told)


def make(env_id: str, options: dict[str, Any]) -> tuple[Any, Callable[[Any], npt.NDArray[np.float32]]]:
    """The environment, and how one of its observations becomes a row of numbers."""
    try:
        import gymnasium
        from gymnasium.spaces import flatten
    except ImportError:
        raise MissingPackage("--env needs the package gymnasium. Try: pip install 'diffclone[tasks]'.") from None
    try:
        env: Any = gymnasium.make(env_id, **options)
    except (gymnasium.error.Error, ImportError, TypeError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise InvalidSettings(f"the environment {env_id} cannot be made ({reason}).") from None
    return env, lambda seen: np.asarray(flatten(env.observation_space, seen), dtype=np.float32)


def check_spaces(env: Any, env_id: str, policy: Policy, flatten: Callable[[Any], npt.NDArray[np.float32]]) -> None:
    """The policy must fit."""
    from gymnasium.spaces import Box

    if not isinstance(env.action_space, Box):
        raise InvalidSettings(f"{env_id} takes {env.action_space}; a policy gives numbers, for a Box.")
    given = len(flatten(env.observation_space.sample()))
    taken = int(np.prod(env.action_space.shape))
    if (policy.dims.obs, policy.dims.act) != (given, taken):
        raise InvalidSettings(
            f"the policy maps {policy.dims.obs} numbers to {policy.dims.act}; {env_id} gives {given} and takes {taken} "
            "(a dict of observations is flattened in the order of its space)."
        )
