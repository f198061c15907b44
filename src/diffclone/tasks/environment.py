"""One environment with Gymnasium's interface for any task: a batch of one row, so both run the same code."""

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import Image
from diffclone.tasks.task import Task


class TaskEnv(gym.Env[npt.NDArray[np.float64], npt.NDArray[np.float32]]):
    """A task's environment. `gymnasium.make` ends its episodes at the task's horizon; this class does not."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(self, task: str | Task, render_mode: str | None = None, **options: Any):
        """Make the environment.

        Args:
            task: a registered name, or the task.
            render_mode: "rgb_array", or None.
            options: of the task's environments.
        """
        if render_mode not in (None, "rgb_array"):
            raise InvalidSettings(f"render_mode must be 'rgb_array' or None; it is {render_mode!r}.")
        if isinstance(task, str):
            from diffclone.tasks import TASKS

            task = TASKS[task]
        self.render_mode = render_mode
        self.batch = task.make(1, **options)
        self.row = np.zeros(1, dtype=np.int64)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (task.obs_size,), np.float64)
        low, high = (bound.astype(np.float32) for bound in (self.batch.act_low, self.batch.act_high))
        self.action_space = gym.spaces.Box(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self.batch.reset(self.row, [self.np_random])
        return self.batch.observe(self.row)[0], {"success": False}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Apply one action."""
        outcome = self.batch.step(self.row, np.asarray(action)[None])
        observation = self.batch.observe(self.row)[0]
        info = {"success": bool(outcome.success[0])}
        return observation, float(outcome.reward[0]), bool(outcome.ended[0]), False, info

    def render(self) -> Image | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return an image if `render_mode` is "rgb_array"."""
        return None if self.render_mode is None else self.batch.render(0)

    def close(self) -> None:
        """Close the batch."""
        self.batch.close()
