"""What Cheetah and Walker share: a flat body of nine joints runs along x.

observation (17)   positions without x (8); velocities (9)
action (6)         torques, in [−1, 1]; larger ones are cut by the motors, but cost what they are
reward             speed along x + a bonus for each step − a cost of the action
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Flags, Outcome, Picture, Rows
from diffclone.tasks.simulation import Camera, Simulation, asset

CAMERA = Camera(lookat=(0.0, 0.0, 0.0), distance=4.0, azimuth=90.0, elevation=-15.0, follow="torso")


class RunnerBatch(BatchEnv):
    """Many runners."""

    task: str
    model_file: str
    """Gymnasium's."""
    substeps: int
    control_cost: float
    step_bonus: float

    def __init__(self, count: int, *, start_noise: float = 1.0):
        """Make `count` runners; `start_noise` scales how much starts differ."""
        if not start_noise >= 0:
            raise InvalidSettings(f"noise must not be negative; it is {start_noise}.")
        self.count = count
        self.start_noise = start_noise
        xml = asset("gymnasium", self.task, f"envs/mujoco/assets/{self.model_file}").read_text(encoding="utf-8")
        self.simulation = Simulation(xml, count, rows_a_thread=4)
        self.simulation.model.geom("floor").size[:2] = 0  # drawn without an end, as it is felt
        self.act_low, self.act_high = -np.ones(self.simulation.model.nu), np.ones(self.simulation.model.nu)
        self.step_seconds = float(self.simulation.model.opt.timestep) * self.substeps

    @abstractmethod
    def start(self, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
        """How far positions and velocities are from the model's own at the start."""

    @abstractmethod
    def upright(self, rows: Rows) -> Flags:
        """Whether an episode may go on."""

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Near the model's own pose."""
        for row, rng in zip(rows, rngs, strict=True):
            positions, velocities = self.start(rng)
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
        return Outcome(reward, np.zeros(len(rows), dtype=np.bool_), ~self.upright(rows))

    def render(self, row: int) -> Picture:
        """From the side, following."""
        return self.simulation.picture(row, CAMERA)

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()
