"""Maze: a ball on two slides is pushed to a goal.

    observation (6)   x, y, ẋ, ẏ, goal x, goal y
    action (2)        force along x and y, in [−1, 1], times 100 N
    success           within 0.5 of the goal after a step; it ends the episode, as in the released code

The layout is D4RL's medium maze; the ball's coordinates are shifted by 1.2 against the world's, so that the middle of a
cell (i, j) is at (i − 0.2, j − 0.2) while starts and goals are drawn around (i, j).
"""

from collections.abc import Sequence
from typing import Any, final

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Rows
from diffclone.tasks.simulation import Simulation

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
WALLS = tuple((i, j) for i, row in enumerate(LAYOUT) for j, cell in enumerate(row) if cell == "#")
REACHED = 0.5
"""Distance to the goal that counts as success."""
MAX_SPEED = 5.0
"""Speed along an axis is cut to this before a step, and may exceed it a little after."""
START_NOISE, START_SPEED = 0.1, 0.1

XML = """
<mujoco model="maze">
  <compiler inertiafromgeom="true"/>
  <option timestep="0.01" gravity="0 0 0" iterations="20" integrator="Euler"/>
  <default>
    <joint damping="1" limited="false"/>
    <geom friction="0.5 0.1 0.1" density="1000" margin="0.002" condim="1" contype="2" conaffinity="1"/>
  </default>
  <worldbody>
    <geom name="ground" type="plane" pos="0 0 -0.1" size="40 40 0.25" contype="1" conaffinity="0"/>
    <body name="ball" pos="1.2 1.2 0">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <geom name="ball" type="sphere" size="0.1" contype="1"/>
    </body>
    {walls}
  </worldbody>
  <actuator>
    <motor name="x" joint="x" gear="100" ctrlrange="-1 1" ctrllimited="true"/>
    <motor name="y" joint="y" gear="100" ctrlrange="-1 1" ctrllimited="true"/>
  </actuator>
</mujoco>
"""


def model_xml() -> str:
    """The maze's walls around the ball."""
    boxes = (f'<geom name="wall {i} {j}" type="box" pos="{i + 1} {j + 1} 0" size="0.5 0.5 0.2"/>' for i, j in WALLS)
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
        if start_noise < 0 or goal_noise < 0:
            raise InvalidSettings(f"noise must not be negative; it is {start_noise} (start), {goal_noise} (goal).")
        self.count = count
        self.act_low, self.act_high = -np.ones(2), np.ones(2)
        self.start_noise, self.goal_noise, self.end_on_success = start_noise, goal_noise, end_on_success
        shuffle = np.random.RandomState(123)
        kept = int(len(CELLS) * coverage)
        self.start_cells = [CELLS[k] for k in shuffle.permutation(len(CELLS))[:kept]]
        self.goal_cells = [CELLS[k] for k in shuffle.permutation(len(CELLS))[:kept]]
        self.simulation = Simulation(model_xml(), count)
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

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()


make_batch = MazeBatch


@final
class MazeEnv(gym.Env[npt.NDArray[np.float64], npt.NDArray[np.float32]]):
    """One maze with Gymnasium's interface; the same code as many."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(self, **options: Any):
        """Options are those of `MazeBatch`."""
        self.batch = MazeBatch(1, **options)
        self.row = np.zeros(1, dtype=np.int64)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.batch.reset(self.row, [self.np_random])
        return self.batch.observe(self.row)[0], {"success": False}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Advance by one action."""
        outcome = self.batch.step(self.row, np.asarray(action)[None])
        observation = self.batch.observe(self.row)[0]
        info = {"success": bool(outcome.success[0])}
        return observation, float(outcome.reward[0]), bool(outcome.ended[0]), False, info

    def close(self) -> None:
        """End the threads."""
        self.batch.close()
