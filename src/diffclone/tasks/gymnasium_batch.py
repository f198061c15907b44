"""A batch over any Gymnasium environment, so that policies can be evaluated outside the bundled tasks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, final

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from diffclone.errors import CannotRender, DiffcloneError, InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Image, Outcome, Rows
from diffclone.tasks.observations import Flattener, keys_in
from diffclone.tasks.playing import describe_error
from diffclone.tasks.recording import SUCCESS_KEYS
from diffclone.tasks.task import Task

MAX_STEPS = 100_000
"""Episodes of environments without a limit end after this many steps."""
ENVIRONMENTS_PER_MEMBER = 10
"""Number of environments per policy member that an evaluation steps together."""

Source = str | Callable[..., Any]
"""A Gymnasium id (`module:id` imports the module first), or a function that makes an environment."""


def make_env(source: Source, options: dict[str, Any]) -> Any:
    """Make one environment, and refuse one whose actions are not a Box."""
    try:
        env: Any = gym.make(source, **options) if isinstance(source, str) else source(**options)
    except DiffcloneError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidSettings(f"the environment {source_name(source)} cannot be made ({reason}).") from error
    if not hasattr(env, "action_space"):
        raise InvalidSettings(f"{source_name(source)} made an object of type {type(env).__name__}, not an environment.")
    if not isinstance(env.action_space, Box):
        env.close()
        raise InvalidSettings(f"{source_name(source)} takes actions in {env.action_space}; a policy needs a Box.")
    return env


def source_name(source: Source) -> str:
    """Return the id, or the name of the function."""
    return source if isinstance(source, str) else getattr(source, "__qualname__", type(source).__name__)


@final
class GymnasiumBatch(BatchEnv):
    """`count` environments in one process. Observations are flattened: `diffclone.tasks.observations`.

    Success is `info["is_success"]` or `info["success"]` at the last step of an episode.
    """

    def __init__(
        self,
        source: Source,
        count: int,
        *,
        observed_keys: Sequence[str] | None = None,
        with_images: bool = False,
        **options: Any,
    ):
        """Make the environments.

        Args:
            source: a Gymnasium id, or a function that makes an environment.
            count: number of environments.
            observed_keys: parts of Dict observations, which are concatenated; by default all, in the order of the
                space. (An environment may have an option `obs_keys` of its own.)
            with_images: whether images are observed as demonstrations store them, before numbers and with channels
                before height and width.
            options: passed to `gymnasium.make` or to the function.
        """
        self.name, self.options = source_name(source), options
        """What the environments are made from."""
        self.count = count
        """Number of environments."""
        self.envs: list[Any] = []
        """The environments."""
        try:
            for _ in range(count):
                self._add(source, make_env(source, options))
        except BaseException:
            self.close()
            raise
        space = self.envs[0].action_space
        self.act_low, self.act_high = (np.ravel(edge).astype(np.float64) for edge in (space.low, space.high))
        self.flatten = Flattener(self.envs[0].observation_space, observed_keys, with_images=with_images)
        """Turns an observation into a row of numbers."""
        self.obs: Doubles = np.zeros((count, self.flatten.size))
        """The last observation of each environment."""
        self.steps = np.zeros(count, dtype=np.int64)
        """Steps of each environment since its reset."""
        self.has_reported, self.was_silent = False, False
        """Whether any step reported success or failure, and whether an episode ended without it."""

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start an episode in each row, from a seed drawn from the row's generator."""
        self.reset_from_seeds(rows, [int(rng.integers(2**31)) for rng in rngs])

    def reset_from_seeds(self, rows: Rows, seeds: Sequence[int]) -> None:
        """Call `reset(seed=…)` of each row's environment."""
        for row, seed in zip(rows.tolist(), seeds, strict=True):
            self._keep(row, self._call(row, "reset", seed=seed)[0])
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Step each row's environment."""
        reward, success, ended = np.zeros(len(rows)), *np.zeros((2, len(rows)), dtype=np.bool_)
        self.steps[rows] += 1
        for k, row in enumerate(rows.tolist()):
            env = self.envs[row]
            action = act[k].astype(env.action_space.dtype).reshape(env.action_space.shape)
            obs, reward[k], terminated, truncated, info = self._call(row, "step", action)
            self._keep(row, obs)
            ended[k] = terminated or truncated or self.steps[row] >= MAX_STEPS
            key = next((name for name in SUCCESS_KEYS if name in info), None)
            success[k] = key is not None and bool(info[key])
            self.has_reported |= key is not None
            self.was_silent |= bool(ended[k]) and key is None
        self.reports_success = self.has_reported and not self.was_silent
        return Outcome(reward, success, ended)

    def observe(self, rows: Rows) -> Doubles:
        """Return the flattened observations."""
        return self.obs[rows]

    def render(self, row: int) -> Image:
        """Return the environment's own image."""
        if self.envs[row].render_mode != "rgb_array":
            raise CannotRender("an environment renders images if it is made with render_mode='rgb_array'.")
        try:
            image = self.envs[row].render()
        except (gym.error.Error, ImportError) as error:
            raise CannotRender(f"the environment cannot render here ({str(error).splitlines()[0]}).") from None
        if not isinstance(image, np.ndarray):
            raise CannotRender(f"the environment rendered {type(image).__name__}, not an image.")
        return image

    def close(self) -> None:
        """Close all environments, even if closing one of them fails."""
        with ExitStack() as stack:
            while self.envs:
                stack.callback(self.envs.pop().close)

    def _call(self, row: int, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of an environment. Its errors are one line: a wrong option may show only here."""
        try:
            return getattr(self.envs[row], method)(*arguments, **options)
        except DiffcloneError:
            raise
        except Exception as error:
            made = f" It was made with {self.options}." if self.options else ""
            reason = describe_error(error)
            raise InvalidSettings(f"{method} of the environment {self.name} failed: {reason}.{made}") from error

    def _add(self, source: Source, env: Any) -> None:
        if any(env is other for other in self.envs):
            raise InvalidSettings(
                f"{source_name(source)} returned the same environment twice; it must make a new one at each call."
            )
        self.envs.append(env)

    def _keep(self, row: int, obs: Any) -> None:
        self.obs[row] = self.flatten(obs)


def gymnasium_task(source: Source, meta: Mapping[str, Any] | None = None, /, **options: Any) -> Task:
    """Return a task for an environment with these options. Its sizes are those of an environment made for that.

    `meta` is the metadata of the policy's demonstrations: if these were recorded from some parts of Dict observations,
    the same parts are observed.
    """
    env, with_images = make_env(source, options), bool((meta or {}).get("image"))
    try:
        obs_keys = keys_in(env.observation_space, meta or {})
        sizes = (
            Flattener(env.observation_space, obs_keys, with_images=with_images).size,
            int(np.prod(env.action_space.shape)),
        )
    finally:
        env.close()
    return Task(
        name=source_name(source),
        summary="A Gymnasium environment.",
        obs_size=sizes[0],
        act_size=sizes[1],
        horizon=MAX_STEPS,
        metric="return",
        make_batch=partial(GymnasiumBatch, source, observed_keys=obs_keys, with_images=with_images, **options),
        environments_per_member=ENVIRONMENTS_PER_MEMBER,
    )
