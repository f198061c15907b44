"""Cheetah: a two-legged half of a cheetah runs for a thousand steps of 0.05 s; it may fall, and the episode goes on.

reward   ẋ − 0.1 ‖a‖²
"""

from typing import final

import numpy as np

from diffclone.tasks.batch import Doubles, Flags, Rows
from diffclone.tasks.locomotion import RunnerBatch
from diffclone.tasks.single import SingleEnv


@final
class CheetahBatch(RunnerBatch):
    """Many cheetahs."""

    task, model_file = "cheetah", "half_cheetah.xml"
    substeps = 5
    control_cost, step_bonus = 0.1, 0.0

    def start(self, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
        """Positions are uniform, velocities normal."""
        return rng.uniform(-0.1, 0.1, 9), 0.1 * rng.standard_normal(9)

    def upright(self, rows: Rows) -> Flags:
        """Always."""
        return np.ones(len(rows), dtype=np.bool_)

    def observe(self, rows: Rows) -> Doubles:
        """Positions without x, velocities."""
        return np.concatenate([self.simulation.positions[rows, 1:], self.simulation.velocities[rows]], axis=1)


make_batch = CheetahBatch


@final
class CheetahEnv(SingleEnv):
    """One cheetah with Gymnasium's interface."""

    batch_type = CheetahBatch
    obs_size = 17
