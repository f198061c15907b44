"""One environment with Gymnasium's interface: a batch of one row, so that both are the same code."""

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Picture
from diffclone.tasks.options import check_options


class SingleEnv(gym.Env[npt.NDArray[np.float64], npt.NDArray[np.float32]]):
    """A task's Gymnasium environment names its batch and its observation's size; nothing else is needed."""

    batch_type: ClassVar[Callable[..., BatchEnv]]
    """What makes the batch: its options are this environment's."""
    obs_size: ClassVar[int]
    """Numbers in an observation."""
    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(self, render_mode: str | None = None, **options: Any):
        """Options are those of the batch."""
        if render_mode not in (None, "rgb_array"):
            raise InvalidSettings(f"render_mode may be rgb_array or none; it is {render_mode!r}.")
        self.render_mode = render_mode
        make = type(self).batch_type
        self.batch = make(1, **check_options(f"the task {type(self).__name__}", make, options))
        self.row = np.zeros(1, dtype=np.int64)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.obs_size,), np.float64)
        low, high = (bound.astype(np.float32) for bound in (self.batch.act_low, self.batch.act_high))
        self.action_space = gym.spaces.Box(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.batch.reset(self.row, [self.np_random])
        return self.batch.observe(self.row)[0], {"success": False}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Advance by one action."""
        outcome = self.batch.step(self.row, np.asarray(action)[None])
        observation = self.batch.observe(self.row)[0]
        info = {"success": bool(outcome.success[0])}
        return observation, float(outcome.reward[0]), bool(outcome.ended[0]), False, info

    def render(self) -> Picture | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A picture, where `render_mode` asks for one."""
        return None if self.render_mode is None else self.batch.render(0)

    def close(self) -> None:
        """End the threads."""
        self.batch.close()
