"""Maze: a point mass is pushed through a maze to a goal.

    observation (6)   x, y, ẋ, ẏ, goal x, goal y
    action (2)        force along x and y, in [−1, 1], times 100 N
    success           within 0.5 of the goal after a step; ends the episode, as in the released code

The layout is D4RL's medium maze. The coordinates of the point mass are those of the world minus 1.2, so the centre of
cell (i, j) is at (i − 0.2, j − 0.2), while starts and goals are drawn around (i, j).

The expert follows the shortest path through the cells with a spring, a damper and Gaussian action noise:

    a = clip(clip(10 (w − x) − ẋ, ±1) + 0.5 ε, ±1)          w the next waypoint, ε ~ N(0, I)

A waypoint is a cell's point moved towards the cell's centre by U(0, 0.2) along each axis; the last one is the goal's
cell. The demonstrations of the original release contain this noise, though the paper does not mention it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import Doubles, Image, Outcome, Rows
from diffclone.tasks.experts import Expert
from diffclone.tasks.mujoco import Camera, MujocoBatch
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

Cell = tuple[int, int]

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


def find_cells(layout: Sequence[str], kind: str) -> tuple[Cell, ...]:
    """Return the cells of a kind: "O" free, "#" wall."""
    return tuple((i, j) for i, row in enumerate(layout) for j, cell in enumerate(row) if cell == kind)


CELLS, WALLS = find_cells(LAYOUT, "O"), find_cells(LAYOUT, "#")
SUCCESS_DISTANCE = 0.5
MAX_SPEED = 5.0
"""The speed along each axis is clipped to this before a step. It may be slightly higher after the step."""
START_NOISE, START_SPEED = 0.1, 0.1
SHIFT = 1.2
"""World coordinates minus those of the point mass."""
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


class PointMassBatch(MujocoBatch):
    """Many point masses between walls, with a goal each."""

    camera: Camera

    def __init__(self, layout: Sequence[str], count: int):
        boxes = (
            f'<geom name="wall {i} {j}" type="box" pos="{i + 1} {j + 1} 0" size="0.5 0.5 0.2"/>'
            for i, j in find_cells(layout, "#")
        )
        super().__init__(XML.format(walls="\n    ".join(boxes)), count, act_size=2)
        self.goals = np.zeros((count, 2))

    def push(self, rows: Rows, act: npt.NDArray[Any]) -> Doubles:
        """Clip the speed, apply the force, and return the distance to the goal."""
        sim = self.simulation
        sim.velocities[rows] = sim.velocities[rows].clip(-MAX_SPEED, MAX_SPEED)
        sim.advance(rows, np.clip(act, -1, 1).astype(np.float64), substeps=1)
        return np.linalg.norm(sim.positions[rows] - self.goals[rows], axis=1)

    def observe(self, rows: Rows) -> Doubles:
        """Return position, velocity and goal."""
        sim = self.simulation
        return np.concatenate([sim.positions[rows], sim.velocities[rows], self.goals[rows]], axis=1)

    def render(self, row: int) -> Image:
        """Return the view from above, with the goal as a green disc."""
        return self.simulation.render(row, self.camera, np.array([[*(self.goals[row] + SHIFT), 0.0, 1, 0, 0, 0]]))


@final
class MazeBatch(PointMassBatch):
    """Many mazes."""

    camera = CAMERA

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
            count: number of rows.
            start_noise: scales the spread of starts around a cell's point, and their speed.
            goal_noise: scales the spread of goals around a cell's point.
            coverage: fraction of the cells that starts, and that goals, are drawn from.
            end_on_success: whether success ends the episode (released code) or only the horizon does (paper's text).
        """
        if not 0 < coverage <= 1 or int(len(CELLS) * coverage) < 1:
            raise InvalidSettings(
                f"coverage must leave at least one of {len(CELLS)} cells and be at most 1; it is {coverage}."
            )
        check_not_negative(start_noise=start_noise, goal_noise=goal_noise)
        super().__init__(LAYOUT, count)
        self.start_noise, self.goal_noise, self.end_on_success = start_noise, goal_noise, end_on_success
        shuffle, kept = np.random.RandomState(123), int(len(CELLS) * coverage)
        self.start_cells = [CELLS[k] for k in shuffle.permutation(len(CELLS))[:kept]]
        self.goal_cells = [CELLS[k] for k in shuffle.permutation(len(CELLS))[:kept]]

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Draw a start and a goal around two cells."""
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
        """Push; the reward is exp(−distance to the goal)."""
        distance = self.push(rows, act)
        reached = distance <= SUCCESS_DISTANCE
        self.solved[rows] |= reached
        return Outcome(np.exp(-distance), self.solved[rows], reached & self.end_on_success)


STIFFNESS, DAMPING = 10.0, 1.0
WAYPOINT_DISTANCE = 0.1
"""Distance at which a waypoint is reached."""
MIN_STEPS, MAX_STEPS = 75, 600
"""Demonstrations have more steps than the first and fewer than the second."""
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
"""Neighbours of a cell. Their order decides between equally short paths."""


def distances_to(goal: Cell) -> dict[Cell, int]:
    """Return the number of moves from every cell to the goal."""
    distance, queue = {goal: 0}, deque([goal])
    while queue:
        i, j = queue.popleft()
        for di, dj in MOVES:
            cell = (i + di, j + dj)
            if cell in CELLS and cell not in distance:
                distance[cell] = distance[i, j] + 1
                queue.append(cell)
    return distance


def shortest_path(start: Cell, goal: Cell) -> list[Cell]:
    """Return the cells after the start, up to the goal."""
    distance, path = distances_to(goal), [start]
    while path[-1] != goal:
        i, j = path[-1]
        path.append(min(((i + di, j + dj) for di, dj in MOVES), key=lambda c: distance.get(c, len(CELLS))))
    return path[1:]


def nearest_cell(point: Doubles) -> Cell:
    """Return the free cell whose point is nearest."""
    return min(CELLS, key=lambda cell: float(np.square(point - cell).sum()))


@final
class WaypointExpert(Expert):
    """Knows the layout and sees what a policy sees."""

    horizon = MAX_STEPS
    env_options = {"end_on_success": False}  # noqa: RUF012

    def __init__(self, noise: float = 0.5):
        """Make the expert; `noise` is the standard deviation of the action noise."""
        self.noise = noise
        self.waypoints: list[Doubles] = []
        self.rng = np.random.default_rng(0)
        self.arrived = self.moved = False

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Plan the path."""
        start, goal = (nearest_cell(obs[k : k + 2]) for k in (0, 4))
        path = shortest_path(start, goal) or [goal]
        self.rng = rng
        self.waypoints = [np.array(cell) - rng.uniform(0, 0.2, 2) for cell in path[:-1]]
        self.waypoints.append(np.array(path[-1], dtype=np.float64))
        self.arrived = self.moved = False

    def act(self, obs: Doubles) -> Doubles | None:
        """Push towards the waypoint. Stop at the goal's cell, after at least one step."""
        position, velocity = obs[0:2], obs[2:4]
        if np.linalg.norm(position - self.waypoints[0]) < WAYPOINT_DISTANCE:
            if len(self.waypoints) > 1:
                del self.waypoints[0]
            elif self.moved:
                self.arrived = True
                return None
        self.moved = True
        push = np.clip(STIFFNESS * (self.waypoints[0] - position) - DAMPING * velocity, -1, 1)
        return np.clip(push + self.noise * self.rng.standard_normal(2), -1, 1)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept episodes that arrive, neither too short nor too long."""
        return self.arrived and success and MIN_STEPS < steps < MAX_STEPS


MAZE = Task(
    name="maze",
    gymnasium_id="diffclone/Maze-v0",
    summary="A point mass is driven to a goal through a medium-sized maze.",
    obs_size=6,
    act_size=2,
    horizon=400,
    metric="success",
    make_batch=MazeBatch,
    make_expert=WaypointExpert,
    episodes=100,
)
