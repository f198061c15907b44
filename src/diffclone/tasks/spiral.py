"""Spiral: a point mass in an open square is driven along a spiral; the paper's toy example of manifold overfitting.

    observation (6)   x, y, ẋ, ẏ, goal x, goal y: the end point of the script
    action (2)        force along x and y, in [−1, 1], times 100 N
    success           within 0.1 of the end point after the last of 160 steps

The expert applies the script's forces (0.5, 0), (0, 0.5), (−0.7, 0), (0, −0.7) for forty steps each. The paper does not
say where it starts: here at (1, 1), from where it touches no wall. The physics are those of Maze.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import Doubles, Outcome, Rows
from diffclone.tasks.experts import Expert
from diffclone.tasks.maze import PointMassBatch
from diffclone.tasks.mujoco import Camera
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

LAYOUT = ("#######", "#OOOOO#", "#OOOOO#", "#OOOOO#", "#OOOOO#", "#OOOOO#", "#######")
START = (1.0, 1.0)
SCRIPT = ((0.5, 0.0), (0.0, 0.5), (-0.7, 0.0), (0.0, -0.7))
STEPS_PER_FORCE = 40
STEPS = STEPS_PER_FORCE * len(SCRIPT)
SUCCESS_DISTANCE = 0.1


@final
class SpiralBatch(PointMassBatch):
    """Many point masses in an open square."""

    camera = Camera(lookat=(4.0, 4.0, 0.0), distance=8.5, azimuth=90.0, elevation=-89.0)

    def __init__(self, count: int, *, start_noise: float = 0.0):
        """Make `count` of them; `start_noise` is the standard deviation of the starting position."""
        check_not_negative(start_noise=start_noise)
        super().__init__(LAYOUT, count)
        self.start_noise = start_noise
        self.steps = np.zeros(count, dtype=np.int64)
        self.goals[:] = self._find_end()

    def _find_end(self) -> Doubles:
        """Run the script in row 0 and return where it ends."""
        self.simulation.positions[0] = START
        for step in range(STEPS):
            self.push(np.zeros(1, dtype=np.int64), np.array([SCRIPT[step // STEPS_PER_FORCE]]))
        return self.simulation.positions[0].copy()

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start at rest."""
        for row, rng in zip(rows, rngs, strict=True):
            self.simulation.states[row] = 0
            self.simulation.positions[row] = START + self.start_noise * rng.standard_normal(2)
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Push; the last step decides about success."""
        distance = self.push(rows, act)
        self.steps[rows] += 1
        ended = self.steps[rows] >= STEPS
        return Outcome(np.exp(-distance), ended & (distance <= SUCCESS_DISTANCE), ended)


@final
class SpiralExpert(Expert):
    """Follows the script and ignores observations."""

    horizon = STEPS

    def __init__(self, noise: float = 0.0, start_noise: float = 0.01):
        """Make the expert.

        Args:
            noise: standard deviation of the action noise.
            start_noise: standard deviation of the starting position; without it all demonstrations are the same.
        """
        self.noise, self.env_options = noise, {"start_noise": start_noise}
        self.steps, self.rng = 0, np.random.default_rng(0)

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Start the script."""
        self.steps, self.rng = 0, rng

    def act(self, obs: Doubles) -> Doubles | None:
        """Return the next force."""
        force = np.array(SCRIPT[self.steps // STEPS_PER_FORCE])
        self.steps += 1
        return force + (self.noise * self.rng.standard_normal(2) if self.noise else 0.0)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept successful episodes."""
        return success


SPIRAL = Task(
    name="spiral",
    gymnasium_id="diffclone/Spiral-v0",
    summary="A point mass is driven along a spiral, the paper's toy example.",
    obs_size=6,
    act_size=2,
    horizon=STEPS,
    metric="success",
    make_batch=SpiralBatch,
    make_expert=SpiralExpert,
    episodes=10,
)
