"""FetchPick: an arm picks up a block and carries it to a goal in the air.

    observation (16)   gripper x, y, z; block x, y, z; block − gripper; right and left finger;
                       the block's first two Euler angles; goal x, y, z
    action (4)         the first three, times 5 cm, move the gripper, the fourth moves both fingers; in [−1, 1]
    success            block within 5 cm of the goal; ends the episode, as in the released code

The block starts on the far side (+y) of the gripper and the goal is on the near side (−y), 15 cm above the table. The
regions are 0.1 m × 0.04 m, times the noise. The arm is the model of Gymnasium-Robotics; none of its classes are used.

The expert is a script of four phases, plus Gaussian action noise:

    1  a = 6 (block − gripper + 3 cm up)    fingers open      until 5 mm away
    2  a = 6 (block − gripper)              fingers close     until 5 mm away
    3  a = 6 (goal − block)                 fingers close     until 1 cm away
    4  a = 0                                fingers close

Its actions are recorded unclipped; the environment clips them to ±1. A phase ends one step after its distance is met.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import Doubles, Image, Outcome, Rows
from diffclone.tasks.experts import Expert
from diffclone.tasks.mujoco import Camera, MujocoBatch, find_asset
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

SUBSTEPS = 20
SUCCESS_DISTANCE = 0.05
MOVE = 0.05
"""Metres that an action of 1 moves the gripper's target."""
HALF_WIDTH, DEPTH, OFFSET = 0.05, 0.04, 0.1
"""A region is ±HALF_WIDTH in x and DEPTH in y, and starts at the distance OFFSET from the gripper."""
GOAL_HEIGHT = 0.15
BINS = 4
"""A coverage below 1 leaves out cells of a grid of BINS × BINS over each region."""
DOWN = np.array([1.0, 0.0, 1.0, 0.0])
"""Orientation of the gripper. It is not normalised, because each step adds it to the current orientation."""

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
# Slices of the sensors:
GRIP, BLOCK, BLOCK_QUATERNION = slice(0, 3), slice(3, 6), slice(6, 10)
HAND, HAND_QUATERNION = slice(10, 13), slice(13, 17)

ARM_START = {"robot0:slide0": 0.405, "robot0:slide1": 0.48, "robot0:slide2": 0.0}
BLOCK_START = (1.25, 0.53, 0.4, 1.0, 0.0, 0.0, 0.0)
HAND_START = (-0.498, 0.005, -0.231)
"""Offset from the gripper's position in the model."""
GOAL_HIDDEN = np.array([0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0])
"""Pose of the goal marker except in images: under the floor."""
CAMERA = Camera(lookat=(1.3, 0.75, 0.5), distance=1.4, azimuth=132.0, elevation=-18.0)


@final
class FetchPickBatch(MujocoBatch):
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
            count: number of rows.
            start_noise: scales the region of the block. The paper's main table has 1.25, its noise study 1 to 2.
            goal_noise: scales the region of the goal.
            coverage: fraction of each region's grid that is used; 0.25 leaves a diagonal.
            end_on_success: whether success ends the episode.
        """
        check_not_negative(start_noise=start_noise, goal_noise=goal_noise)
        if not 1 / BINS <= coverage <= 1:
            raise InvalidSettings(f"coverage must be between {1 / BINS} and 1; it is {coverage}.")
        assets = find_asset("gymnasium_robotics", "fetch-pick", "envs/assets/fetch/robot.xml").parents[1]
        super().__init__(XML.format(assets=assets), count, act_size=4, rows_per_thread=2)
        self.start_noise, self.goal_noise, self.end_on_success = start_noise, goal_noise, end_on_success
        self.bins = allowed_bins(int(BINS * coverage))
        model = self.simulation.model
        model.eq_data[:, 3:6] = 0  # weld the gripper to its target without the offset of the model file
        self._block = int(model.joint("block").qposadr[0])
        fingers = (f"robot0:{side}_gripper_finger_joint" for side in "rl")
        self._right, self._left = (int(model.joint(name).qposadr[0]) for name in fingers)
        self._start = self._find_start()
        self.goals = np.zeros((count, 3))

    def _find_start(self) -> Doubles:
        """Return the state in which the arm holds the gripper above the table; set the quantities that depend on it."""
        sim, row = self.simulation, np.zeros(1, dtype=np.int64)
        model = sim.model
        sim.positions[0] = model.qpos0
        for joint, value in ARM_START.items():
            sim.positions[0, model.joint(joint).qposadr[0]] = value
        sim.positions[0, self._block : self._block + 7] = BLOCK_START
        sim.update_sensors(row)
        hand = np.concatenate([sim.sensors[0, GRIP] + HAND_START, DOWN / np.sqrt(2)])
        sim.advance(row, self._control(np.zeros((1, 2)), hand[None]), 10 * SUBSTEPS)
        self.gripper_start = sim.sensors[0, GRIP].copy()
        self.block_height = float(sim.sensors[0, BLOCK][2])
        return sim.states[0].copy()

    def _control(self, fingers: Doubles, hand: Doubles) -> Doubles:
        """Return the fingers, then the positions of goal marker and gripper, then their orientations."""
        hidden = np.broadcast_to(GOAL_HIDDEN, hand.shape)
        return np.concatenate([fingers, hidden[:, :3], hand[:, :3], hidden[:, 3:], hand[:, 3:]], axis=1)

    def _draw_point(self, rng: np.random.Generator, side: float, noise: float) -> Doubles:
        """Draw a point (x, y) of the region on one side (±1) of the gripper."""
        column = int(rng.integers(BINS))
        allowed = self.bins[column % len(self.bins)]
        row = allowed[int(rng.integers(len(allowed)))]
        x, y = (np.array([column, row]) + rng.uniform(size=2)) / BINS
        offset = np.array([(2 * x - 1) * HALF_WIDTH, y * DEPTH if side > 0 else (y - 1) * DEPTH])
        return self.gripper_start[:2] + (0, side * OFFSET) + noise * offset

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Draw the positions of block and goal."""
        for row, rng in zip(rows, rngs, strict=True):
            self.simulation.states[row] = self._start
            self.simulation.positions[row, self._block : self._block + 2] = self._draw_point(rng, 1.0, self.start_noise)
            self.goals[row] = (*self._draw_point(rng, -1.0, self.goal_noise), self.block_height + GOAL_HEIGHT)
        self.simulation.update_sensors(rows)
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Move the targets of gripper and fingers from their positions; the reward is −distance from block to goal."""
        sim = self.simulation
        act = np.clip(act, -1, 1).astype(np.float64)
        sensors = sim.sensors[rows]
        hand = np.concatenate([sensors[:, HAND] + MOVE * act[:, :3], sensors[:, HAND_QUATERNION] + DOWN], axis=1)
        fingers = sim.positions[rows][:, [self._left, self._right]] + act[:, 3:]
        sim.advance(rows, self._control(fingers, hand), SUBSTEPS)
        distance = np.linalg.norm(sim.sensors[rows, BLOCK] - self.goals[rows], axis=1)
        self.solved[rows] |= distance < SUCCESS_DISTANCE
        return Outcome(-distance, self.solved[rows], self.solved[rows] & self.end_on_success)

    def observe(self, rows: Rows) -> Doubles:
        """Return the gripper, the block and the goal, without velocities."""
        sensors = self.simulation.sensors[rows]
        fingers = self.simulation.positions[rows][:, [self._right, self._left]]
        parts = [sensors[:, GRIP], sensors[:, BLOCK], sensors[:, BLOCK] - sensors[:, GRIP], fingers]
        return np.concatenate([*parts, first_angles(sensors[:, BLOCK_QUATERNION]), self.goals[rows]], axis=1)

    def render(self, row: int) -> Image:
        """Return arm, table and block, with the goal as a red ball."""
        goal = np.concatenate([self.goals[row], [1, 0, 0, 0]])
        hand = np.concatenate([self.simulation.sensors[row, HAND], DOWN / np.sqrt(2)])
        return self.simulation.render(row, CAMERA, np.array([goal, hand]))


def allowed_bins(size: int) -> list[tuple[int, ...]]:
    """Return all subsets of this size of a column's bins, in order; column k uses subset k."""
    return list(combinations(range(BINS), size))


def first_angles(quaternion: Doubles) -> Doubles:
    """Return the first two Euler angles, by Gymnasium-Robotics' convention, of quaternions (rows, 4)."""
    w, x, y, z = quaternion.T
    m02, m12, m22 = 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)
    return np.stack([-np.arctan2(m12, m22), np.arctan2(m02, np.hypot(m12, m22))], axis=1)


GAIN = 6.0
ABOVE = np.array([0.0, 0.0, 0.03])
OPEN, CLOSE = 0.05, -0.005
PHASE_DISTANCES = (0.005, 0.005, 0.01)
"""Distances that end the first three phases."""
# Slices of the observation:
OBS_BLOCK, OBS_BLOCK_FROM_GRIPPER, OBS_GOAL = slice(3, 6), slice(6, 9), slice(13, 16)


@final
class PickExpert(Expert):
    """Sees what a policy sees and remembers its phase."""

    horizon = 50

    def __init__(self, noise: float = 0.05, region: float = 1.25, *, stop_at_success: bool = True):
        """Make the expert.

        Args:
            noise: standard deviation of the action noise; the fingers have none.
            region: scales the regions of block and goal in demonstrations.
            stop_at_success: whether a demonstration ends at success or after fifty steps.
        """
        self.noise = noise
        self.env_options = {"start_noise": region, "goal_noise": region, "end_on_success": stop_at_success}
        self.phase, self.error = 0, np.ones(3)
        self.rng = np.random.default_rng(0)

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Return to the first phase."""
        self.phase, self.error, self.rng = 0, np.ones(3), rng

    def act(self, obs: Doubles) -> Doubles | None:
        """Return the action of the current phase."""
        while self.phase < len(PHASE_DISTANCES) and np.linalg.norm(self.error) < PHASE_DISTANCES[self.phase]:
            self.phase, self.error = self.phase + 1, self._error(obs, self.phase + 1)
        self.error = self._error(obs, self.phase)
        fingers = OPEN if self.phase == 0 else CLOSE
        noise = self.noise * self.rng.standard_normal(3) if self.noise else 0.0
        return np.append(GAIN * self.error * (self.phase < len(PHASE_DISTANCES)) + noise, fingers)

    def _error(self, obs: Doubles, phase: int) -> Doubles:
        if phase == 0:
            return obs[OBS_BLOCK_FROM_GRIPPER] + ABOVE
        return obs[OBS_BLOCK_FROM_GRIPPER] if phase == 1 else obs[OBS_GOAL] - obs[OBS_BLOCK]

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept successful episodes."""
        return success


FETCH_PICK = Task(
    name="fetch-pick",
    gymnasium_id="diffclone/FetchPick-v0",
    summary="An arm picks up a block and carries it to a goal in the air.",
    obs_size=16,
    act_size=4,
    horizon=50,
    metric="success",
    make_batch=FetchPickBatch,
    make_expert=PickExpert,
    episodes=303,
)
