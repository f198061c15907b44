"""Shared by Cheetah and Walker: a planar body with nine joints moves along x.

observation (17)   positions without x (8); velocities (9)
action (6)         torques, in [−1, 1]; the motors clip larger ones, but their cost is not clipped
reward             speed along x + a bonus for each step − a cost of the action
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import Doubles, Flags, Image, Outcome, Rows
from diffclone.tasks.mujoco import Camera, MujocoBatch, find_asset
from diffclone.tasks.options import check_not_negative

CAMERA = Camera(lookat=(0.0, 0.0, 0.0), distance=4.0, azimuth=90.0, elevation=-15.0, follow="torso")


class RunnerBatch(MujocoBatch):
    """Many runners."""

    reports_success = False  # there is no goal: policies are scored by their returns
    task: str
    model_file: str
    """Gymnasium's file of the model."""
    substeps: int
    control_cost: float
    step_bonus: float

    def __init__(self, count: int, *, start_noise: float = 1.0):
        """Make `count` runners; `start_noise` scales the spread of starts."""
        check_not_negative(start_noise=start_noise)
        xml = find_asset("gymnasium", self.task, f"envs/mujoco/assets/{self.model_file}").read_text(encoding="utf-8")
        super().__init__(xml, count, act_size=6, rows_per_thread=4)
        self.start_noise = start_noise
        self.simulation.model.geom("floor").size[:2] = 0  # drawn without an edge
        self.step_seconds = float(self.simulation.model.opt.timestep) * self.substeps

    @abstractmethod
    def draw_start(self, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
        """Draw the differences of positions and velocities from the model's initial state."""

    @abstractmethod
    def is_upright(self, rows: Rows) -> Flags:
        """Return whether the episode may continue."""

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start near the model's initial state."""
        for row, rng in zip(rows, rngs, strict=True):
            positions, velocities = self.draw_start(rng)
            self.simulation.states[row] = 0
            self.simulation.positions[row] = self.simulation.model.qpos0 + self.start_noise * positions
            self.simulation.velocities[row] = self.start_noise * velocities

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Hold the torques."""
        sim, act = self.simulation, np.asarray(act, dtype=np.float64)
        before = sim.positions[rows, 0]
        sim.advance(rows, act, self.substeps)
        speed = (sim.positions[rows, 0] - before) / self.step_seconds
        reward = speed + self.step_bonus - self.control_cost * np.square(act).sum(1)
        return Outcome(reward, self.solved[rows], ~self.is_upright(rows))

    def render(self, row: int) -> Image:
        """Return a view from the side that follows the body."""
        return self.simulation.render(row, CAMERA)
