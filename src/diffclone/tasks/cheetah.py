"""Cheetah: a planar cheetah with two legs runs for a thousand steps of 0.05 s. A fall does not end the episode.

reward   ẋ − 0.1 ‖a‖²

The expert is a network whose actions are samples, like those of the authors' demonstrations.
"""

from typing import final

import numpy as np

from diffclone.tasks.batch import Doubles, Flags, Rows
from diffclone.tasks.experts import network_expert
from diffclone.tasks.locomotion import RunnerBatch
from diffclone.tasks.task import Task


@final
class CheetahBatch(RunnerBatch):
    """Many cheetahs."""

    task, model_file = "cheetah", "half_cheetah.xml"
    substeps = 5
    control_cost, step_bonus = 0.1, 0.0

    def draw_start(self, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
        """Draw uniform positions and normal velocities."""
        return rng.uniform(-0.1, 0.1, 9), 0.1 * rng.standard_normal(9)

    def is_upright(self, rows: Rows) -> Flags:
        """Return True for every row."""
        return np.ones(len(rows), dtype=np.bool_)

    def observe(self, rows: Rows) -> Doubles:
        """Return positions without x, and velocities."""
        return np.concatenate([self.simulation.positions[rows, 1:], self.simulation.velocities[rows]], axis=1)


CHEETAH = Task(
    name="cheetah",
    gymnasium_id="diffclone/Cheetah-v0",
    summary="Half a cheetah runs.",
    obs_size=17,
    act_size=6,
    horizon=1000,
    metric="return",
    make_batch=CheetahBatch,
    make_expert=network_expert("cheetah", horizon=1000, noise=1.0, only_successful=False),
    episodes=5,
)
