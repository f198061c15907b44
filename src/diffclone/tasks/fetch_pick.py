"""FetchPick: an arm picks up a block and carries it to a goal in the air.

    observation (16)   gripper x, y, z; block x, y, z; block − gripper; right and left finger;
                       the block's first two Euler angles; goal x, y, z
    action (4)         5 cm times the first three moves the gripper, the fourth both fingers, in [−1, 1]
    success            block within 5 cm of the goal; it ends the episode, as in the released code

The block starts on the far side (+y) of the gripper and the goal is on the near side (−y), 15 cm above the table. The
regions are 0.1 m × 0.04 m, times the noise. The arm is the model of Gymnasium-Robotics; no class of it is used.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.simulation import Camera, Simulation, asset
from diffclone.tasks.single import SingleEnv

SUBSTEPS = 20
REACHED = 0.05
"""Distance from block to goal that counts as success."""
MOVE = 0.05
"""Metres that a full action moves the hand's target."""
HALF_WIDTH, DEPTH, APART = 0.05, 0.04, 0.1
"""A region is ±HALF_WIDTH in x and DEPTH in y, and begins APART from the gripper."""
GOAL_HEIGHT = 0.15
BINS = 4
"""Coverage leaves out cells of a grid of BINS × BINS over each region."""
DOWN = np.array([1.0, 0.0, 1.0, 0.0])
"""The hand's orientation, not normalised, as it is added to the present one at each step."""

XML = """
<mujoco model="fetch pick">
  <compiler angle="radian" autolimits="false" meshdir="{assets}/stls/fetch" texturedir="{assets}/textures"/>
  <option timestep="0.002"/>
  <include file="{assets}/fetch/shared.xml"/>
  <worldbody>
    <geom name="floor" type="plane" pos="0.8 0.75 0" size="0.85 0.7 1" condim="3" material="floor_mat"/>
    <body name="goal" mocap="true" pos="0 0 -1">
      <site name="goal" size="0.02" rgba="1 0.2 0.2 1"/>
    </body>
    <include file="{assets}/fetch/robot.xml"/>
    <body name="table" pos="1.3 0.75 0.2">
      <geom type="box" size="0.25 0.35 0.2" mass="2000" material="table_mat"/>
    </body>
    <body name="block" pos="0.025 0.025 0.025">
      <joint name="block" type="free" damping="0.01"/>
      <geom name="block" type="box" size="0.025 0.025 0.025" condim="3" mass="2" rgba="0.9 0.75 0.1 1"/>
      <site name="block"/>
    </body>
    <light directional="true" pos="0 0 4" dir="0 0 -1" ambient="0.2 0.2 0.2" castshadow="false"/>
  </worldbody>
  <actuator>
    <position joint="robot0:l_gripper_finger_joint" kp="30000" ctrllimited="true" ctrlrange="0 0.2"/>
    <position joint="robot0:r_gripper_finger_joint" kp="30000" ctrllimited="true" ctrlrange="0 0.2"/>
  </actuator>
  <sensor>
    <framepos objtype="site" objname="robot0:grip"/>
    <framepos objtype="site" objname="block"/>
    <framequat objtype="site" objname="block"/>
    <framepos objtype="xbody" objname="robot0:gripper_link"/>
    <framequat objtype="xbody" objname="robot0:gripper_link"/>
  </sensor>
</mujoco>
"""
GRIP, BLOCK, BLOCK_TURN = slice(0, 3), slice(3, 6), slice(6, 10)
HAND, HAND_TURN = slice(10, 13), slice(13, 17)
"""Where the sensors are."""
ARM_START = {"robot0:slide0": 0.405, "robot0:slide1": 0.48, "robot0:slide2": 0.0}
BLOCK_START = (1.25, 0.53, 0.4, 1.0, 0.0, 0.0, 0.0)
HAND_START = (-0.498, 0.005, -0.231)
"""From where the arm's model has the gripper."""
AWAY = np.array([0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0])
"""The goal's mark is under the floor while nobody looks: it touches nothing."""
CAMERA = Camera(lookat=(1.3, 0.75, 0.5), distance=1.4, azimuth=132.0, elevation=-18.0)


@final
class FetchPickBatch(BatchEnv):
    """Many arms."""

    def __init__(
        self,
        count: int,
        *,
        start_noise: float = 1.25,
        goal_noise: float = 1.25,
        coverage: float = 1.0,
        end_on_success: bool = True,
    ):
        """Make `count` arms.

        Args:
            count: rows.
            start_noise: scales the region of the block. The paper's main table has 1.25, its study 1 to 2.
            goal_noise: scales the region of the goal.
            coverage: the share of each region's grid that is used; 0.25 leaves a diagonal.
            end_on_success: whether success ends the episode.
        """
        if not (start_noise >= 0 and goal_noise >= 0):
            raise InvalidSettings(f"noise must not be negative; it is {start_noise} (start), {goal_noise} (goal).")
        if not 1 <= int(BINS * coverage) <= BINS:
            raise InvalidSettings(f"coverage must lie between {1 / BINS} and 1; it is {coverage}.")
        self.count = count
        self.act_low, self.act_high = -np.ones(4), np.ones(4)
        self.start_noise, self.goal_noise, self.end_on_success = start_noise, goal_noise, end_on_success
        self.bins = allowed_bins(int(BINS * coverage))
        assets = asset("gymnasium_robotics", "fetch-pick", "envs/assets/fetch/robot.xml").parents[1]
        self.simulation = Simulation(XML.format(assets=assets), count, rows_a_thread=2)
        model = self.simulation.model
        model.eq_data[:, 3:6] = 0  # the hand is welded to its target without the distance they have in the file
        self._block = int(model.joint("block").qposadr[0])
        fingers = (f"robot0:{side}_gripper_finger_joint" for side in "rl")
        self._right, self._left = (int(model.joint(name).qposadr[0]) for name in fingers)
        self._start = self._find_start()
        self.goals = np.zeros((count, 3))
        self.solved = np.zeros(count, dtype=np.bool_)

    def _find_start(self) -> Doubles:
        """The state in which the arm holds its hand over the table, and what follows from it."""
        sim, row = self.simulation, np.zeros(1, dtype=np.int64)
        model = sim.model
        sim.states[0] = 0
        sim.positions[0] = model.qpos0
        for joint, value in ARM_START.items():
            sim.positions[0, model.joint(joint).qposadr[0]] = value
        sim.positions[0, self._block : self._block + 7] = BLOCK_START
        sim.sense(row)
        hand = np.concatenate([sim.sensors[0, GRIP] + HAND_START, DOWN / np.sqrt(2)])
        sim.advance(row, self._control(np.zeros((1, 2)), hand[None]), 10 * SUBSTEPS)
        self.gripper_start = sim.sensors[0, GRIP].copy()
        self.block_height = float(sim.sensors[0, BLOCK][2])
        return sim.states[0].copy()

    def _control(self, fingers: Doubles, hand: Doubles) -> Doubles:
        """Fingers, then positions of goal mark and hand, then their orientations."""
        away = np.broadcast_to(AWAY, hand.shape)
        return np.concatenate([fingers, away[:, :3], hand[:, :3], away[:, 3:], hand[:, 3:]], axis=1)

    def _place(self, rng: np.random.Generator, side: float, noise: float) -> Doubles:
        """A point of the region on one side (±1) of the gripper, in the plane."""
        column = int(rng.integers(BINS))
        allowed = self.bins[column % len(self.bins)]
        row = allowed[int(rng.integers(len(allowed)))]
        share = (np.array([column, row]) + rng.uniform(size=2)) / BINS
        offset = np.array([(2 * share[0] - 1) * HALF_WIDTH, share[1] * DEPTH if side > 0 else (share[1] - 1) * DEPTH])
        return self.gripper_start[:2] + (0, side * APART) + noise * offset

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """A block and a goal, each from its region."""
        for row, rng in zip(rows, rngs, strict=True):
            self.simulation.states[row] = self._start
            self.simulation.positions[row, self._block : self._block + 2] = self._place(rng, 1.0, self.start_noise)
            self.goals[row] = (*self._place(rng, -1.0, self.goal_noise), self.block_height + GOAL_HEIGHT)
        self.simulation.sense(rows)
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Move the hand's target from where the hand is, and the fingers' from where they are."""
        sim = self.simulation
        act = np.clip(act, -1, 1).astype(np.float64)
        seen = sim.sensors[rows]
        hand = np.concatenate([seen[:, HAND] + MOVE * act[:, :3], seen[:, HAND_TURN] + DOWN], axis=1)
        fingers = sim.positions[rows][:, [self._left, self._right]] + act[:, 3:]
        sim.advance(rows, self._control(fingers, hand), SUBSTEPS)
        distance = np.linalg.norm(sim.sensors[rows, BLOCK] - self.goals[rows], axis=1)
        self.solved[rows] |= distance < REACHED
        return Outcome(-distance, self.solved[rows], self.solved[rows] & self.end_on_success)

    def observe(self, rows: Rows) -> Doubles:
        """What the gripper and the block do, and the goal; no velocities."""
        seen = self.simulation.sensors[rows]
        fingers = self.simulation.positions[rows][:, [self._right, self._left]]
        parts = [seen[:, GRIP], seen[:, BLOCK], seen[:, BLOCK] - seen[:, GRIP], fingers]
        return np.concatenate([*parts, first_angles(seen[:, BLOCK_TURN]), self.goals[rows]], axis=1)

    def render(self, row: int) -> Picture:
        """Arm, table, block, and the goal as a red ball."""
        goal = np.concatenate([self.goals[row], [1, 0, 0, 0]])
        hand = np.concatenate([self.simulation.sensors[row, HAND], DOWN / np.sqrt(2)])
        return self.simulation.picture(row, CAMERA, np.array([goal, hand]))

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()


def allowed_bins(size: int) -> list[tuple[int, ...]]:
    """All subsets of a column's bins of this size, in order: column k may use the k-th."""
    from itertools import combinations

    return list(combinations(range(BINS), size))


def first_angles(turn: Doubles) -> Doubles:
    """The first two Euler angles, as Gymnasium-Robotics counts them, of quaternions (rows, 4)."""
    w, x, y, z = turn.T
    m02, m12, m22 = 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)
    return np.stack([-np.arctan2(m12, m22), np.arctan2(m02, np.hypot(m12, m22))], axis=1)


make_batch = FetchPickBatch


@final
class FetchPickEnv(SingleEnv):
    """One arm with Gymnasium's interface."""

    batch_type = FetchPickBatch
    obs_size = 16
