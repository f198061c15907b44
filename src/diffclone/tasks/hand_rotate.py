"""HandRotate: a hand with 24 joints turns a block about the vertical axis to a goal angle.

    observation (68)   24 joint angles; 24 joint velocities; the block's velocity (6), position (3), quaternion (4);
                       zeros (3); the goal's quaternion (4)
    action (20)        joint targets, from one end of an actuator's range (−1) to the other (1)
    success            less than 0.1 rad between block and goal; ends the episode, as in the released code

The block starts at a yaw within ±π/6 (the released code; the paper's text says ±π/12) and the goal's yaw is between π/3
and 2π/3. Hand and block are Gymnasium-Robotics' models; none of its classes are used. The expert is a network; only its
successful episodes become demonstrations.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import Doubles, Image, Outcome, Rows
from diffclone.tasks.experts import network_expert
from diffclone.tasks.mujoco import Camera, MujocoBatch, find_asset
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

SUBSTEPS = 20
SUCCESS_ANGLE = 0.1
GOAL_YAW = (math.pi / 3, 2 * math.pi / 3)
START_STD = 0.005
"""Standard deviation of the block's starting position, in metres."""
SETTLE_STEPS = 10
"""Steps before an episode in which the block comes to rest in the hand."""
MIN_HEIGHT = 0.04
"""A block below this height has fallen off the hand."""
JOINTS = 24

XML = """
<mujoco model="hand rotate">
  <compiler angle="radian" meshdir="{assets}/stls/hand" texturedir="{assets}/textures"/>
  <option timestep="0.002" iterations="20"/>
  <include file="{assets}/hand/shared.xml"/>
  <asset>
    <include file="{assets}/hand/shared_asset.xml"/>
    <texture name="block" file="block.png" gridsize="3 4" gridlayout=".U..LFRB.D.."/>
    <material name="block" texture="block" specular="1" shininess="0.3"/>
    <material name="goal" texture="block" specular="1" shininess="0.3" rgba="1 1 1 0.5"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" pos="1 1 0" size="1 1 1" condim="3" material="floor_mat"/>
    <include file="{assets}/hand/robot.xml"/>
    <body name="block" pos="1 0.87 0.2">
      <geom name="block" type="box" size="0.025 0.025 0.025" condim="4" density="567" material="block"/>
      <joint name="block" type="free" damping="0.01"/>
    </body>
    <body name="goal" mocap="true" pos="0 0 -1">
      <geom type="box" size="0.025 0.025 0.025" contype="0" conaffinity="0" material="goal"/>
    </body>
    <light directional="true" pos="0 1 4" dir="0 0 -1" ambient="0.2 0.2 0.2" castshadow="false"/>
  </worldbody>
</mujoco>
"""
GOAL_OFFSET = np.array([0.15, 0.0, 0.0])
"""In images the goal is drawn beside the block."""
CAMERA = Camera(lookat=(1.05, 0.9, 0.2), distance=0.45, azimuth=55.0, elevation=-35.0)


@final
class HandRotateBatch(MujocoBatch):
    """Many hands."""

    def __init__(
        self,
        count: int,
        *,
        start_yaw: float = math.pi / 6,
        start_noise: float = 1.0,
        end_on_success: bool = True,
    ):
        """Make `count` hands.

        Args:
            count: number of rows.
            start_yaw: the block starts at a yaw within ± this, in radians. The released code has π/6, the paper π/12.
            start_noise: scales the spread of the block's starting position.
            end_on_success: whether success ends the episode.
        """
        check_not_negative(start_noise=start_noise)
        if not 0 <= start_yaw <= math.pi:
            raise InvalidSettings(f"start_yaw must be between 0 and π; it is {start_yaw}.")
        assets = find_asset("gymnasium_robotics", "hand-rotate", "envs/assets/hand/robot.xml").parents[1]
        super().__init__(XML.format(assets=assets), count, act_size=20, rows_per_thread=1)
        self.start_yaw, self.start_noise, self.end_on_success = start_yaw, start_noise, end_on_success
        model = self.simulation.model
        low, high = np.array(model.actuator_ctrlrange).T
        self._middle, self._half_range = (low + high) / 2, (high - low) / 2
        self._pose, self._velocity = int(model.joint("block").qposadr[0]), int(model.joint("block").dofadr[0])
        self.goals = np.zeros((count, 4))
        self.distance = np.zeros(count)

    def _advance(self, rows: Rows, act: Doubles, substeps: int) -> None:
        self.simulation.advance(rows, self._middle + self._half_range * act, substeps)

    def _block(self, rows: Rows) -> Doubles:
        """Return position and quaternion of the block."""
        return self.simulation.positions[rows, self._pose : self._pose + 7]

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Let the block come to rest in the hand and draw a goal. A block that falls off starts at another position."""
        sim, pending = self.simulation, list(zip(rows, rngs, strict=True))
        while pending:
            for row, rng in pending:
                yaw, noise = rng.uniform(-self.start_yaw, self.start_yaw), rng.standard_normal(3)
                sim.states[row] = 0
                sim.positions[row] = sim.model.qpos0
                sim.positions[row, self._pose : self._pose + 3] += START_STD * self.start_noise * noise
                sim.positions[row, self._pose + 3 : self._pose + 7] = yaw_quaternion(yaw)
            settling = np.array([row for row, _ in pending], dtype=np.int64)
            self._advance(settling, np.zeros((len(settling), 20)), SETTLE_STEPS * SUBSTEPS)
            pending = [(row, rng) for row, rng in pending if sim.positions[row, self._pose + 2] <= MIN_HEIGHT]
        for row, rng in zip(rows, rngs, strict=True):
            self.goals[row] = yaw_quaternion(rng.uniform(*GOAL_YAW))
        self.distance[rows] = angle_between(self._block(rows)[:, 3:], self.goals[rows])
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Hold the joint targets; the reward is the decrease of the angle between block and goal."""
        self._advance(rows, np.clip(act, -1, 1).astype(np.float64), SUBSTEPS)
        before, now = self.distance[rows], angle_between(self._block(rows)[:, 3:], self.goals[rows])
        self.distance[rows] = now
        self.solved[rows] |= now < SUCCESS_ANGLE
        return Outcome(before - now, self.solved[rows], self.solved[rows] & self.end_on_success)

    def observe(self, rows: Rows) -> Doubles:
        """Return the hand, the block and the goal."""
        sim = self.simulation
        velocity = sim.velocities[rows, self._velocity : self._velocity + 6]
        hand = [sim.positions[rows, :JOINTS], sim.velocities[rows, :JOINTS]]
        return np.concatenate([*hand, velocity, self._block(rows), np.zeros((len(rows), 3)), self.goals[rows]], axis=1)

    def render(self, row: int) -> Image:
        """Return the hand with its block, and beside it the block at the goal angle."""
        position = self._block(np.array([row]))[0, :3] + GOAL_OFFSET
        return self.simulation.render(row, CAMERA, np.concatenate([position, self.goals[row]])[None])


def yaw_quaternion(yaw: float) -> Doubles:
    """Return the quaternion of a rotation about the vertical axis."""
    return np.array([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])


def angle_between(a: Doubles, b: Doubles) -> Doubles:
    """Return the angle of a b⁻¹ for quaternions (rows, 4), in 0 … 2π: q and −q differ, as in the released code."""
    return 2 * np.arccos(np.clip((a * b).sum(1), -1, 1))


HAND_ROTATE = Task(
    name="hand-rotate",
    gymnasium_id="diffclone/HandRotate-v0",
    summary="A hand of 24 joints turns a block to a goal angle.",
    obs_size=68,
    act_size=20,
    horizon=50,
    metric="success",
    make_batch=HandRotateBatch,
    make_expert=network_expert("hand-rotate", horizon=50, noise=1.0, only_successful=True),
    episodes=515,
)
