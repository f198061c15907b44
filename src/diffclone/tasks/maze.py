"""Maze: a ball on two slides is pushed to a goal.

    observation (6)   x, y, ẋ, ẏ, goal x, goal y
    action (2)        force along x and y, in [−1, 1], times 100 N
    success           within 0.5 of the goal after a step; it ends the episode, as in the released code

The layout is D4RL's medium maze; the ball's coordinates are shifted by 1.2 against the world's, so that the middle of a
cell (i, j) is at (i − 0.2, j − 0.2) while starts and goals are drawn around (i, j).
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.simulation import Camera, Simulation
from diffclone.tasks.single import SingleEnv

LAYOUT = (
    "########",
    "#OO##OO#",
    "#OO#OOO#",
    "##OOO###",
    "#OO#OOO#",
    "#O#OO#O#",
    "#OOO#OO#",
    "########",
)
CELLS = tuple((i, j) for i, row in enumerate(LAYOUT) for j, cell in enumerate(row) if cell == "O")


def walls_of(layout: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The cells that are walls."""
    return tuple((i, j) for i, row in enumerate(layout) for j, cell in enumerate(row) if cell == "#")


WALLS = walls_of(LAYOUT)
REACHED = 0.5
"""Distance to the goal that counts as success."""
MAX_SPEED = 5.0
"""Speed along an axis is cut to this before a step, and may exceed it a little after."""
START_NOISE, START_SPEED = 0.1, 0.1
SHIFT = 1.2
"""From the ball's coordinates to the world's."""
CAMERA = Camera(lookat=(4.5, 4.5, 0.0), distance=10.5, azimuth=90.0, elevation=-80.0)

XML = """
<mujoco model="maze">
  <compiler inertiafromgeom="true"/>
  <option timestep="0.01" gravity="0 0 0" iterations="20" integrator="Euler"/>
  <default>
    <joint damping="1" limited="false"/>
    <geom friction="0.5 0.1 0.1" density="1000" margin="0.002" condim="1" contype="2" conaffinity="1"
          rgba="0.25 0.3 0.4 1"/>
  </default>
  <worldbody>
    <geom name="ground" type="plane" pos="0 0 -0.1" size="40 40 0.25" contype="1" conaffinity="0"
          rgba="0.6 0.62 0.65 1"/>
    <body name="ball" pos="1.2 1.2 0">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <geom name="ball" type="sphere" size="0.1" contype="1" rgba="0.8 0.15 0.1 1"/>
    </body>
    <body name="goal" mocap="true" pos="0 0 -1">
      <site name="goal" type="cylinder" size="0.12 0.02" rgba="0.1 0.6 0.2 1"/>
    </body>
    <light directional="true" pos="4 4 6" dir="0 0 -1" diffuse="0.3 0.3 0.3" castshadow="false"/>
    {walls}
  </worldbody>
  <actuator>
    <motor name="x" joint="x" gear="100" ctrlrange="-1 1" ctrllimited="true"/>
    <motor name="y" joint="y" gear="100" ctrlrange="-1 1" ctrllimited="true"/>
  </actuator>
</mujoco>
"""


def maze_xml(layout: Sequence[str]) -> str:
    """Walls around the ball, which a mark for the goal, moved by hand, does not touch."""
    boxes = (
        f'<geom name="wall {i} {j}" type="box" pos="{i + 1} {j + 1} 0" size="0.5 0.5 0.2"/>'
        for i, j in walls_of(layout)
    )
    return XML.format(walls="\n    ".join(boxes))


@final
class MazeBatch(BatchEnv):
    """Many mazes."""

    def __init__(
        self,
        count: int,
        *,
        start_noise: float = 1.0,
        goal_noise: float = 1.0,
        coverage: float = 1.0,
        end_on_success: bool = True,
    ):
        """Make `count` mazes.

        Args:
            count: rows.
            start_noise: scales the spread of starts around a cell's point, and their speed.
            goal_noise: scales the spread of goals around a cell's point.
            coverage: the share of cells that starts, and that goals, are drawn from.
            end_on_success: the released code ends an episode at the goal; the paper's text only at 400 steps.
        """
        if not 0 < coverage <= 1 or int(len(CELLS) * coverage) < 1:
            raise InvalidSettings(
                f"coverage must leave at least one of {len(CELLS)} cells and be at most 1; it is {coverage}."
            )
        if not (start_noise >= 0 and goal_noise >= 0):
            raise InvalidSettings(f"noise must not be negative; it is {start_noise} (start), {goal_noise} (goal).")
        self.count = count
        self.act_low, self.act_high = -np.ones(2), np.ones(2)
        self.start_noise, self.goal_noise, self.end_on_success = start_noise, goal_noise, end_on_success
        shuffle = np.random.RandomState(123)
        kept = int(len(CELLS) * coverage)
        self.start_cells = [CELLS[k] for k in shuffle.permutation(len(CELLS))[:kept]]
        self.goal_cells = [CELLS[k] for k in shuffle.permutation(len(CELLS))[:kept]]
        self.simulation = Simulation(maze_xml(LAYOUT), count)
        self.goals = np.zeros((count, 2))
        self.solved = np.zeros(count, dtype=np.bool_)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """A start and a goal around cells drawn independently."""
        for row, rng in zip(rows, rngs, strict=True):
            start = self.start_cells[rng.integers(len(self.start_cells))]
            position = start + START_NOISE * self.start_noise * rng.uniform(-1, 1, 2)
            velocity = START_SPEED * self.start_noise * rng.standard_normal(2)
            goal = self.goal_cells[rng.integers(len(self.goal_cells))]
            self.simulation.states[row] = 0
            self.simulation.positions[row] = position
            self.simulation.velocities[row] = velocity
            self.goals[row] = goal + START_NOISE * self.goal_noise * rng.uniform(-1, 1, 2)
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Cut the speed, push, look at the distance."""
        sim = self.simulation
        sim.velocities[rows] = sim.velocities[rows].clip(-MAX_SPEED, MAX_SPEED)
        sim.advance(rows, np.clip(act, -1, 1).astype(np.float64), substeps=1)
        distance = np.linalg.norm(sim.positions[rows] - self.goals[rows], axis=1)
        reached = distance <= REACHED
        self.solved[rows] |= reached
        return Outcome(np.exp(-distance), self.solved[rows], reached & self.end_on_success)

    def observe(self, rows: Rows) -> Doubles:
        """Position, velocity, goal."""
        sim = self.simulation
        return np.concatenate([sim.positions[rows], sim.velocities[rows], self.goals[rows]], axis=1)

    def render(self, row: int) -> Picture:
        """From above, with the goal as a green disc."""
        return self.simulation.picture(row, CAMERA, np.array([[*(self.goals[row] + SHIFT), 0.0, 1, 0, 0, 0]]))

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()


make_batch = MazeBatch


@final
class MazeEnv(SingleEnv):
    """One maze with Gymnasium's interface."""

    batch_type = MazeBatch
    obs_size = 6
