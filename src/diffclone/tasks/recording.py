"""Record demonstrations while a Gymnasium environment is used: by teleoperation, by a program, or by a policy.

    env = RecordDemonstrations(gym.make("Pendulum-v1"))
    obs, info = env.reset(seed=0)
    …                                   # your own loop: env.step(action), env.reset()
    env.save("demos.npz")

Row t has the observation before step t and the action of step t, as they pass this wrapper. Wrappers outside it, such
as a normalisation of observations, do not change what is recorded; wrappers inside it do.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidData, InvalidSettings, MissingPackage, install_command

if TYPE_CHECKING:
    from gymnasium import Wrapper
    from gymnasium.utils import RecordConstructorArgs

    import diffclone.data.demonstrations

    AnyWrapper = Wrapper[Any, Any, Any, Any]
elif importlib.util.find_spec("gymnasium") is not None:
    from gymnasium import Wrapper as AnyWrapper
    from gymnasium.utils import RecordConstructorArgs
else:  # `from diffclone import *` works without Gymnasium; making a wrapper does not
    AnyWrapper, RecordConstructorArgs = type("Wrapper", (), {}), type("RecordConstructorArgs", (), {})

SUCCESS_KEYS = ("is_success", "success")
"""Names under which environments report success in `info`."""
Row = npt.NDArray[Any]
State = Literal["waiting", "running", "over"]
"""waiting: for a reset, nothing is recorded; running: in an episode; over: the environment has ended the episode."""


class RecordDemonstrations(AnyWrapper, RecordConstructorArgs):
    """A wrapper that records every episode until `save` or `demonstrations` is called.

    It changes neither observations nor actions. An episode ends when the environment terminates or truncates it, and at
    `reset`. Several of these wrappers may be nested; each records what passes it.
    """

    def __init__(
        self,
        env: Any,
        *,
        obs_keys: Sequence[str] | None = None,
        keep_partial: bool = True,
        only_successes: bool = False,
        executed: Callable[[Any, Mapping[str, Any]], Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ):
        """Wrap an environment with continuous actions (a Box).

        Args:
            env: the environment; not a vector of environments.
            obs_keys: parts of Dict observations to record, in this order. By default `observation` and `desired_goal`
                of a goal environment, and of others all parts that are not images, in the order of the space.
            keep_partial: whether an episode that `reset`, `save` or `demonstrations` finds unfinished is kept.
            only_successes: keep only episodes whose last `info` reports success.
            executed: returns the executed action from the given action and `info`, for an inner wrapper that replaces
                actions, e.g. `lambda action, info: info.get("intervene_action", action)`.
            meta: more metadata for the demonstrations.
        """
        _check_env(env)
        from diffclone.tasks.observations import Flattener, recorded_keys

        RecordConstructorArgs.__init__(
            self,
            obs_keys=obs_keys,
            keep_partial=keep_partial,
            only_successes=only_successes,
            executed=executed,
            meta=meta,
        )
        AnyWrapper.__init__(self, env)
        chosen, self.left_out = recorded_keys(env.observation_space, obs_keys)
        self.flatten = Flattener(env.observation_space, chosen)
        """Turns an observation into the row that is recorded."""
        self.keep_partial, self.only_successes, self.executed = keep_partial, only_successes, executed
        self.meta = dict(meta or {})
        """Metadata that the demonstrations get beside what is known of the environment."""
        self.reports_success: bool | None = None
        """Whether `info` reported success when the last episode ended; None before that."""
        self._episodes: list[tuple[Row, Row]] = []
        self._obs: list[Row] = []
        self._act: list[Row] = []
        self._next: Row | None = None
        self._state: State = "waiting"
        self._success, self._last_kept = False, False

    @property
    def num_episodes(self) -> int:
        """The number of finished episodes that are kept."""
        return len(self._episodes)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. A running one is kept or dropped, as `keep_partial` says."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._state == "running" and self.keep_partial:
            self._finish()
        self._start(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Execute and record an action."""
        state, act = self._state, np.array(action)  # a copy: an environment may change its argument
        if state == "running":
            self._check_action(act)
        obs, reward, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        if state == "running":
            self._add(act, info, ended=ended)
            self._see(obs)
        elif state == "over":  # an inner wrapper has restarted the environment instead of executing the action
            self._start(obs)
        elif ended:
            self._state = "over"
        return obs, reward, terminated, truncated, info

    @property
    def succeeded(self) -> bool:
        """Whether `info` reported success at the last recorded step."""
        return self._success

    def end_episode(self) -> None:
        """End the running episode here and keep it. Nothing is recorded until the next `reset`."""
        if self._state == "running":
            self._finish()
            self._state = "waiting"

    def discard(self) -> None:
        """Drop the running episode and record nothing until the next; or drop the episode that has just ended."""
        if self._last_kept:
            self._episodes.pop()
        self._obs, self._act, self._last_kept = [], [], False
        self._state = "over" if self._state == "over" else "waiting"

    def demonstrations(self) -> "diffclone.data.demonstrations.Demonstrations":
        """Return the episodes recorded so far. A running one is included if `keep_partial` is set."""
        from diffclone.data import Demonstrations

        episodes = list(self._episodes)
        if self._state == "running" and self.keep_partial and self._is_wanted():
            episodes.append((np.stack(self._obs), np.stack(self._act)))
        if not episodes:
            raise InvalidData(
                "no episode ended in success, and only successes are kept."
                if self.only_successes and self.reports_success is not None
                else "no episode has been recorded; call reset() and step() first."
            )
        return Demonstrations.from_arrays(
            np.concatenate([obs for obs, _ in episodes]),
            np.concatenate([act for _, act in episodes]),
            episode_ends=np.cumsum([len(act) for _, act in episodes]),
            meta=self._describe() | self.meta,
        )

    def save(self, path: str | Path) -> None:
        """Write the episodes to a new file: .npz, .hdf5 (robomimic), `minari:ID-v0` or `lerobot:FOLDER`."""
        self.demonstrations().save(path)

    def _start(self, obs: Any) -> None:
        self._obs, self._act = [], []
        self._state, self._success, self._last_kept = "running", False, False
        self._see(obs)

    def _see(self, obs: Any) -> None:
        """Keep a copy of the observation that the next action belongs to."""
        self._next = self.flatten(obs)
        if self._state == "running" and not np.isfinite(self._next).all():
            step = len(self._act)
            self.discard()
            raise InvalidData(
                f"the observation after {step} steps contains NaN or infinity. This episode is dropped; the "
                f"{self.num_episodes} before it are kept."
            )

    def _add(self, act: Row, info: Mapping[str, Any], *, ended: bool) -> None:
        """Record a step."""
        assert self._next is not None
        if self.executed is not None:
            act = np.array(self.executed(act, info))
            self._check_action(act)
        self._obs.append(self.flatten.store(self._next))
        self._act.append(act.astype(np.float32).reshape(-1))
        success = next((info[key] for key in SUCCESS_KEYS if key in info), None)
        self._success = success is not None and bool(success)
        if ended:
            self.reports_success = success is not None
            self._finish()

    def _finish(self) -> None:
        """End the running episode."""
        if kept := self._is_wanted():
            self._episodes.append((np.stack(self._obs), np.stack(self._act)))
        self._obs, self._act, self._last_kept, self._state = [], [], kept, "over"

    def _is_wanted(self) -> bool:
        return bool(self._act) and (self._success or not self.only_successes)

    def _check_action(self, act: Row) -> None:
        shape = self.env.action_space.shape
        if act.shape != shape or act.dtype.kind not in "fiu":
            raise InvalidData(f"an action must be {shape} numbers; it is {act.dtype} of shape {act.shape}.")
        if not np.isfinite(act).all():
            raise InvalidData(f"the action {np.array2string(act, threshold=8)} contains NaN or infinity.")

    def _describe(self) -> dict[str, Any]:
        """Return what is known about the environment as metadata."""
        env, space = self.env, self.env.action_space
        known: dict[str, Any] = {"environment": env.spec.id if env.spec else type(env.unwrapped).__name__}
        low, high = (np.ravel(edge).astype(np.float64) for edge in (space.low, space.high))  # pyright: ignore
        if np.isfinite(low).all() and np.isfinite(high).all():
            known["action_bounds"] = [low.tolist(), high.tolist()]
        if parts := self.flatten.observation_keys:
            known["observation_keys"] = parts
        if self.flatten.image is not None:
            known["image"] = list(self.flatten.image)
        if flat := self.flatten.images_without_channels:
            known["images_without_channels"] = flat
        if self.flatten.layout is not None:
            known["state_size"] = self.flatten.layout.numbers
        if self.left_out:
            known["observations_left_out"] = list(self.left_out)
        fps = env.metadata.get("render_fps")
        return known | ({"fps": fps} if isinstance(fps, int | float) and fps > 0 else {})


def _check_env(env: Any) -> None:
    if importlib.util.find_spec("gymnasium") is None:
        raise MissingPackage(f"recording needs the package gymnasium. Try: {install_command('tasks')}.")
    import gymnasium as gym

    if isinstance(env, gym.vector.VectorEnv):
        raise InvalidSettings(
            "a vector of environments cannot be recorded; wrap each environment before they are joined."
        )
    if not isinstance(env, gym.Env):
        raise InvalidSettings(f"only a Gymnasium environment can be recorded; {type(env).__name__} is not one.")
    space: Any = env.action_space
    if not isinstance(space, gym.spaces.Box) or space.dtype.kind != "f":
        raise InvalidSettings(
            f"actions in {space} cannot be recorded: only continuous actions, a Box of floats, are supported."
        )
