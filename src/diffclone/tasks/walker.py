"""Walker: a planar body on two legs walks for a thousand steps of 0.008 s, or until it falls.

    reward   ẋ + 1 − 0.001 ‖a‖²
    fallen   height of the torso outside (0.8, 2), or its angle at 1 rad or more

The model is that of Gymnasium's Walker2d-v4, which is closest to that of the authors' demonstrations. The expert is a
network whose actions are samples, like those of the authors' demonstrations.
"""

from typing import final

import numpy as np

from diffclone.tasks.batch import Doubles, Flags, Rows
from diffclone.tasks.experts import network_expert
from diffclone.tasks.locomotion import RunnerBatch
from diffclone.tasks.task import Task

MIN_HEIGHT, MAX_HEIGHT, MAX_ANGLE = 0.8, 2.0, 1.0
MAX_OBSERVED_SPEED = 10.0


@final
class WalkerBatch(RunnerBatch):
    """Many walkers."""

    task, model_file = "walker", "walker2d.xml"
    substeps = 4
    control_cost, step_bonus = 1e-3, 1.0

    def draw_start(self, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
        """Draw uniform positions and velocities close to rest."""
        return rng.uniform(-0.005, 0.005, 9), rng.uniform(-0.005, 0.005, 9)

    def is_upright(self, rows: Rows) -> Flags:
        """Return whether height and angle of the torso are in range."""
        height, angle = self.simulation.positions[rows, 1], self.simulation.positions[rows, 2]
        return (height > MIN_HEIGHT) & (height < MAX_HEIGHT) & (np.abs(angle) < MAX_ANGLE)

    def observe(self, rows: Rows) -> Doubles:
        """Return positions without x, and velocities clipped to ±10."""
        velocities = self.simulation.velocities[rows].clip(-MAX_OBSERVED_SPEED, MAX_OBSERVED_SPEED)
        return np.concatenate([self.simulation.positions[rows, 1:], velocities], axis=1)


WALKER = Task(
    name="walker",
    gymnasium_id="diffclone/Walker-v0",
    summary="A flat body on two legs walks.",
    obs_size=17,
    act_size=6,
    horizon=1000,
    metric="return",
    make_batch=WalkerBatch,
    make_expert=network_expert("walker", horizon=1000, noise=1.0, only_successful=False),
    episodes=5,
)
