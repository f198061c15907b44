"""FetchPick's expert: over the block with open fingers, down, close, to the goal, hold.

    1  a = 6 (block − gripper + 3 cm up)    fingers open      until 5 mm away
    2  a = 6 (block − gripper)              fingers close     until 5 mm away
    3  a = 6 (goal − block)                 fingers close     until 1 cm away
    4  a = 0                                fingers close

Actions are kept as they are meant; the environment cuts them to ±1. A phase is left one step after its distance is met.
"""

from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.expert import Expert

GAIN = 6.0
ABOVE = np.array([0.0, 0.0, 0.03])
OPEN, CLOSE = 0.05, -0.005
NEAR = (0.005, 0.005, 0.01)
"""Distances that end the first three phases."""
BLOCK, BLOCK_FROM_GRIPPER, GOAL = slice(3, 6), slice(6, 9), slice(13, 16)


@final
class PickExpert(Expert):
    """Sees what a policy sees, and remembers its phase."""

    horizon = 50

    def __init__(self, noise: float = 0.05, region: float = 1.25, *, stop_at_success: bool = True):
        """Make it.

        Args:
            noise: standard deviation of what its hand adds to a movement.
            region: scales the regions of block and goal that are demonstrated.
            stop_at_success: whether a demonstration ends where the task is solved, or after fifty steps.
        """
        self.noise = noise
        self.env_options: dict[str, Any] = {"start_noise": region, "goal_noise": region}
        self.env_options["end_on_success"] = stop_at_success
        self.phase, self.way = 0, np.ones(3)
        self.rng = np.random.default_rng(0)

    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """Start over."""
        self.phase, self.way, self.rng = 0, np.ones(3), rng

    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """What the phase asks for."""
        while self.phase < len(NEAR) and np.linalg.norm(self.way) < NEAR[self.phase]:
            self.phase, self.way = self.phase + 1, self._way(obs, self.phase + 1)
        self.way = self._way(obs, self.phase)
        fingers = OPEN if self.phase == 0 else CLOSE
        shake = self.noise * self.rng.standard_normal(3) if self.noise else 0.0
        return np.append(GAIN * self.way * (self.phase < len(NEAR)) + shake, fingers)

    def _way(self, obs: npt.NDArray[np.float64], phase: int) -> npt.NDArray[np.float64]:
        if phase == 0:
            return obs[BLOCK_FROM_GRIPPER] + ABOVE
        return obs[BLOCK_FROM_GRIPPER] if phase == 1 else obs[GOAL] - obs[BLOCK]

    def keeps(self, steps: int, *, success: bool) -> bool:
        """Solved."""
        return success


make_expert = PickExpert
