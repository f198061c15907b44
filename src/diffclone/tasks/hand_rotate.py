"""HandRotate: a hand of twenty-four joints turns a block about the vertical to a goal angle.

    observation (68)   24 joint angles; 24 joint velocities; the block's velocity (6), position (3), quaternion (4);
                       zeros (3); the goal's quaternion (4)
    action (20)        joint targets, from one end of an actuator's range (−1) to the other (1)
    success            less than 0.1 rad between block and goal; it ends the episode, as in the released code

The block starts at a yaw within ±π/6 (the released code; the paper's text says ±π/12) and the goal's yaw is between π/3
and 2π/3. Hand and block are Gymnasium-Robotics' models; no class of it is used.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.simulation import Camera, Simulation, asset
from diffclone.tasks.single import SingleEnv

SUBSTEPS = 20
REACHED = 0.1
"""Radians between block and goal that count as success."""
GOAL_YAW = (math.pi / 3, 2 * math.pi / 3)
JITTER = 0.005
"""Standard deviation of the block's starting place, in metres."""
SETTLE = 10
"""Steps before an episode in which the block comes to rest in the hand."""
ON_PALM = 0.04
"""Height above which a block has not fallen off."""
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
BESIDE = np.array([0.15, 0.0, 0.0])
CAMERA = Camera(lookat=(1.05, 0.9, 0.2), distance=0.45, azimuth=55.0, elevation=-35.0)


@final
class HandRotateBatch(BatchEnv):
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
            count: rows.
            start_yaw: the block starts at a yaw within ± this, in radians. The released code has π/6, the paper π/12.
            start_noise: scales the jitter of the block's starting place.
            end_on_success: whether success ends the episode.
        """
        if not (start_noise >= 0 and 0 <= start_yaw <= math.pi):
            raise InvalidSettings(
                f"noise must not be negative and start_yaw lie in 0 … π; they are {start_noise} and {start_yaw}."
            )
        self.count = count
        self.act_low, self.act_high = -np.ones(20), np.ones(20)
        self.start_yaw, self.start_noise, self.end_on_success = start_yaw, start_noise, end_on_success
        assets = asset("gymnasium_robotics", "hand-rotate", "envs/assets/hand/robot.xml").parents[1]
        self.simulation = Simulation(XML.format(assets=assets), count, rows_a_thread=1)
        model = self.simulation.model
        low, high = np.array(model.actuator_ctrlrange).T
        self._middle, self._reach = (low + high) / 2, (high - low) / 2
        self._place, self._motion = int(model.joint("block").qposadr[0]), int(model.joint("block").dofadr[0])
        self.goals = np.zeros((count, 4))
        self.distance = np.zeros(count)
        self.solved = np.zeros(count, dtype=np.bool_)

    def _advance(self, rows: Rows, act: Doubles, substeps: int) -> None:
        self.simulation.advance(rows, self._middle + self._reach * act, substeps)

    def _block(self, rows: Rows) -> Doubles:
        """Place and quaternion."""
        return self.simulation.positions[rows, self._place : self._place + 7]

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """A block at rest in the hand, and a goal; a block that fell off is put back at another place."""
        sim, falling = self.simulation, list(zip(rows, rngs, strict=True))
        while falling:
            for row, rng in falling:
                yaw, jitter = rng.uniform(-self.start_yaw, self.start_yaw), rng.standard_normal(3)
                sim.states[row] = 0
                sim.positions[row] = sim.model.qpos0
                sim.positions[row, self._place : self._place + 3] += JITTER * self.start_noise * jitter
                sim.positions[row, self._place + 3 : self._place + 7] = yaw_quaternion(yaw)
            settling = np.array([row for row, _ in falling], dtype=np.int64)
            self._advance(settling, np.zeros((len(settling), 20)), SETTLE * SUBSTEPS)
            falling = [(row, rng) for row, rng in falling if sim.positions[row, self._place + 2] <= ON_PALM]
        for row, rng in zip(rows, rngs, strict=True):
            self.goals[row] = yaw_quaternion(rng.uniform(*GOAL_YAW))
        self.distance[rows] = angle_between(self._block(rows)[:, 3:], self.goals[rows])
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Hold the joints' targets; the reward is how much nearer the block has come to the goal."""
        self._advance(rows, np.clip(act, -1, 1).astype(np.float64), SUBSTEPS)
        before, now = self.distance[rows], angle_between(self._block(rows)[:, 3:], self.goals[rows])
        self.distance[rows] = now
        self.solved[rows] |= now < REACHED
        return Outcome(before - now, self.solved[rows], self.solved[rows] & self.end_on_success)

    def observe(self, rows: Rows) -> Doubles:
        """The hand, the block, the goal."""
        sim = self.simulation
        velocity = sim.velocities[rows, self._motion : self._motion + 6]
        hand = [sim.positions[rows, :JOINTS], sim.velocities[rows, :JOINTS]]
        return np.concatenate([*hand, velocity, self._block(rows), np.zeros((len(rows), 3)), self.goals[rows]], axis=1)

    def render(self, row: int) -> Picture:
        """The hand with its block, and beside it the block as it should be."""
        place = self._block(np.array([row]))[0, :3] + BESIDE
        return self.simulation.picture(row, CAMERA, np.concatenate([place, self.goals[row]])[None])

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()


def yaw_quaternion(yaw: float) -> Doubles:
    """A turn about the vertical."""
    return np.array([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])


def angle_between(a: Doubles, b: Doubles) -> Doubles:
    """The angle of a b⁻¹ for quaternions (rows, 4), in 0 … 2π: its sign is not folded, as in the released code."""
    return 2 * np.arccos(np.clip((a * b).sum(1), -1, 1))


make_batch = HandRotateBatch


@final
class HandRotateEnv(SingleEnv):
    """One hand with Gymnasium's interface."""

    batch_type = HandRotateBatch
    obs_size = 68
