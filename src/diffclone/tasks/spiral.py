"""Spiral: a point mass in an open square is driven along a spiral; the paper's toy of manifold overfitting.

    observation (6)   x, y, ẋ, ẏ, end x, end y: where the script ends
    action (2)        force along x and y, in [−1, 1], times 100 N
    success           within 0.1 of the script's end after the last of 160 steps

The script's forces are (0.5, 0), (0, 0.5), (−0.7, 0), (0, −0.7), forty steps each. The paper does not say where it
begins: here at (1, 1), from where no wall is touched. Physics are Maze's.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.maze import MAX_SPEED, SHIFT, maze_xml
from diffclone.tasks.simulation import Camera, Simulation
from diffclone.tasks.single import SingleEnv

LAYOUT = ("#######", "#OOOOO#", "#OOOOO#", "#OOOOO#", "#OOOOO#", "#OOOOO#", "#######")
START = (1.0, 1.0)
SCRIPT = ((0.5, 0.0), (0.0, 0.5), (-0.7, 0.0), (0.0, -0.7))
STEPS_EACH = 40
STEPS = STEPS_EACH * len(SCRIPT)
REACHED = 0.1
"""Distance to the script's end that counts as success."""
CAMERA = Camera(lookat=(4.0, 4.0, 0.0), distance=8.5, azimuth=90.0, elevation=-89.0)


@final
class SpiralBatch(BatchEnv):
    """Many point masses."""

    def __init__(self, count: int, *, start_noise: float = 0.0):
        """Make `count` of them; `start_noise` is the standard deviation of the start's place."""
        if not start_noise >= 0:
            raise InvalidSettings(f"noise must not be negative; it is {start_noise}.")
        self.count = count
        self.start_noise = start_noise
        self.act_low, self.act_high = -np.ones(2), np.ones(2)
        self.simulation = Simulation(maze_xml(LAYOUT), count)
        self.steps = np.zeros(count, dtype=np.int64)
        self.end = self._follow_script()

    def _follow_script(self) -> Doubles:
        """Where the script ends."""
        row = np.zeros(1, dtype=np.int64)
        self.simulation.states[0] = 0
        self.simulation.positions[0] = START
        for step in range(STEPS):
            self._push(row, np.array([SCRIPT[step // STEPS_EACH]]))
        return self.simulation.positions[0].copy()

    def _push(self, rows: Rows, act: Doubles) -> None:
        sim = self.simulation
        sim.velocities[rows] = sim.velocities[rows].clip(-MAX_SPEED, MAX_SPEED)
        sim.advance(rows, act, substeps=1)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """At rest where the script begins."""
        for row, rng in zip(rows, rngs, strict=True):
            self.simulation.states[row] = 0
            self.simulation.positions[row] = START + self.start_noise * rng.standard_normal(2)
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Push; after the last step, look how far the script's end is."""
        self._push(rows, np.clip(act, -1, 1).astype(np.float64))
        self.steps[rows] += 1
        distance = np.linalg.norm(self.simulation.positions[rows] - self.end, axis=1)
        over = self.steps[rows] >= STEPS
        return Outcome(np.exp(-distance), over & (distance <= REACHED), over)

    def observe(self, rows: Rows) -> Doubles:
        """Position, velocity, the script's end."""
        sim = self.simulation
        end = np.broadcast_to(self.end, (len(rows), 2))
        return np.concatenate([sim.positions[rows], sim.velocities[rows], end], axis=1)

    def render(self, row: int) -> Picture:
        """From above, with the script's end as a green disc."""
        return self.simulation.picture(row, CAMERA, np.array([[*(self.end + SHIFT), 0.0, 1, 0, 0, 0]]))

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()


make_batch = SpiralBatch


@final
class SpiralEnv(SingleEnv):
    """One point mass with Gymnasium's interface."""

    batch_type = SpiralBatch
    obs_size = 6
