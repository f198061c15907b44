"""Walker: a flat body on two legs walks for a thousand steps of 0.008 s, or until it falls.

    reward   ẋ + 1 − 0.001 ‖a‖²
    fallen   height of the torso outside (0.8, 2), or its lean at 1 rad or more

The model is Gymnasium's for its fourth version, which is nearest to the one of the authors' demonstrations.
"""

from typing import final

import numpy as np

from diffclone.tasks.batch import Doubles, Flags, Rows
from diffclone.tasks.locomotion import RunnerBatch
from diffclone.tasks.single import SingleEnv

LOWEST, HIGHEST, LEAN = 0.8, 2.0, 1.0
MAX_SEEN_SPEED = 10.0


@final
class WalkerBatch(RunnerBatch):
    """Many walkers."""

    task, model_file = "walker", "walker2d.xml"
    substeps = 4
    control_cost, step_bonus = 1e-3, 1.0

    def start(self, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
        """Almost at rest."""
        return rng.uniform(-0.005, 0.005, 9), rng.uniform(-0.005, 0.005, 9)

    def upright(self, rows: Rows) -> Flags:
        """Neither down nor flying nor leaning too far."""
        height, lean = self.simulation.positions[rows, 1], self.simulation.positions[rows, 2]
        return (height > LOWEST) & (height < HIGHEST) & (np.abs(lean) < LEAN)

    def observe(self, rows: Rows) -> Doubles:
        """Positions without x, velocities cut at ±10."""
        seen = self.simulation.velocities[rows].clip(-MAX_SEEN_SPEED, MAX_SEEN_SPEED)
        return np.concatenate([self.simulation.positions[rows, 1:], seen], axis=1)


make_batch = WalkerBatch


@final
class WalkerEnv(SingleEnv):
    """One walker with Gymnasium's interface."""

    batch_type = WalkerBatch
    obs_size = 17
