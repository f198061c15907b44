"""AntReach: a four-legged ant walks to a goal on a half circle of five metres, in fifty steps of 0.1 s.

    observation (42)   height; torso quaternion (4); hip and ankle of each leg (8); the goal body's pose (7);
                       torso velocity (6); joint velocities (8); the goal body's velocity (6); goal − torso in x, y
    action (8)         torques, in [−1, 1]; the motors clip larger ones
    success            within 0.5 m of the goal at any step; an episode always has fifty steps, as in the released code

The goal is a body that starts partly inside the ground: it is pushed out and settles while the ant starts to walk, and
its motion is part of the observation. This is kept so that observations mean the same as in the original.

The expert is a network; its demonstrations start without noise and last fifty steps.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import Doubles, Image, Outcome, Rows
from diffclone.tasks.experts import network_expert
from diffclone.tasks.mujoco import Camera, MujocoBatch
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

SUBSTEPS = 5
RADIUS = 5.0
SUCCESS_DISTANCE = 0.5
ACTION_COST = 0.005
SPEED_NOISE = 0.005
START = (0, 0, 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1, 0.15, 0.15, 0.15, 1, 1, 0, 0)
"""Torso, joints, goal body. MuJoCo normalises the goal's quaternion at the first step."""
GOAL_POSITION = slice(15, 17)

LEG = """
      <body name="leg {k}">
        <geom type="capsule" size="0.08" fromto="0 0 0 {x} {y} 0"/>
        <body name="hip {k}" pos="{x} {y} 0">
          <joint name="hip {k}" type="hinge" axis="0 0 1" range="-30 30"/>
          <geom type="capsule" size="0.08" fromto="0 0 0 {x} {y} 0"/>
          <body name="ankle {k}" pos="{x} {y} 0">
            <joint name="ankle {k}" type="hinge" axis="{axis} 1 0" range="{low} {high}"/>
            <geom type="capsule" size="0.08" fromto="0 0 0 {fx} {fy} 0"/>
          </body>
        </body>
      </body>"""
LEGS = ((0.2, 0.2, -1, 30, 70), (-0.2, 0.2, 1, -70, -30), (-0.2, -0.2, -1, -70, -30), (0.2, -0.2, 1, 30, 70))
"""Direction of each leg, and axis and range of its ankle."""
MOTOR_ORDER = (4, 1, 2, 3)
"""Order of the legs in the action; each has a hip and an ankle."""
XML = """
<mujoco model="ant reach">
  <compiler angle="degree" inertiafromgeom="true" autolimits="false"/>
  <option timestep="0.02" integrator="RK4"/>
  <default>
    <joint armature="1" damping="1" limited="true"/>
    <geom conaffinity="0" condim="3" density="5" friction="1 0.5 0.5" margin="0.01" solref="0.02 1"
          solimp="0.8 0.8 0.01" rgba="0.8 0.6 0.4 1"/>
  </default>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="1 1 1" rgb2="0.6 0.7 0.8" width="100" height="100"/>
    <texture name="squares" type="2d" builtin="checker" rgb1="0.35 0.4 0.35" rgb2="0.5 0.5 0.5" width="90" height="90"/>
    <material name="floor" texture="squares" texrepeat="60 60"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 1.3" dir="0 0 -1.3" diffuse="0.6 0.6 0.6" specular="0.1 0.1 0.1"/>
    <geom name="floor" type="plane" size="40 40 40" conaffinity="1" material="floor" rgba="1 1 1 1"/>
    <body name="torso" pos="0 0 0.75">
      <geom type="sphere" size="0.25"/>
      <joint name="root" type="free" armature="0" damping="0" limited="false" margin="0.01"/>{legs}
    </body>
    <body name="goal">
      <joint name="goal" type="free" armature="0" damping="0" limited="false" margin="0.01"/>
      <geom name="base" type="box" size="0.5 0.5 0.5" mass="0.2" rgba="0 0 0 0"/>
      <geom name="pole" type="cylinder" size="0.03 0.5" pos="0 0 0.5" mass="0.2" contype="0" rgba="0.3 0.3 0.3 1"/>
      <geom name="flag" type="box" size="0.2 0.01 0.12" pos="0.2 0 0.5" mass="0.2" contype="0" rgba="0.8 0.1 0.1 1"/>
    </body>
  </worldbody>
  <actuator>{motors}
  </actuator>
</mujoco>
"""
CAMERA = Camera(lookat=(0.0, 2.4, 0.0), distance=11.0, azimuth=90.0, elevation=-50.0)


def model_xml() -> str:
    """Return the model of ant, goal and floor."""
    legs = (
        LEG.format(k=k, x=x, y=y, fx=2 * x, fy=2 * y, axis=axis, low=low, high=high)
        for k, (x, y, axis, low, high) in enumerate(LEGS, start=1)
    )
    motors = (
        f'\n    <motor joint="{joint} {k}" gear="150" ctrllimited="true" ctrlrange="-1 1"/>'
        for k in MOTOR_ORDER
        for joint in ("hip", "ankle")
    )
    return XML.format(legs="".join(legs), motors="".join(motors))


@final
class AntReachBatch(MujocoBatch):
    """Many ants."""

    def __init__(self, count: int, *, start_noise: float = 0.01, end_on_success: bool = False):
        """Make `count` ants.

        Args:
            count: number of rows.
            start_noise: half width of the uniform noise of starting positions. Demonstrations have 0.
            end_on_success: whether success ends the episode (paper's text) or not (released code).
        """
        check_not_negative(start_noise=start_noise)
        super().__init__(model_xml(), count, act_size=8, rows_per_thread=2)
        self.start_noise, self.end_on_success = start_noise, end_on_success
        self.goals = np.zeros((count, 2))

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start near the initial pose, with a goal on the half circle."""
        sim = self.simulation
        for row, rng in zip(rows, rngs, strict=True):
            angle = rng.uniform(0, math.pi)
            self.goals[row] = RADIUS * math.cos(angle), RADIUS * math.sin(angle)
            sim.states[row] = 0
            sim.positions[row] = np.array(START) + self.start_noise * rng.uniform(-1, 1, len(START))
            sim.positions[row, GOAL_POSITION] = self.goals[row]
            sim.velocities[row] = SPEED_NOISE * rng.uniform(-1, 1, sim.velocities.shape[1])
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Hold the torques; the reward is high near the goal, minus a cost of the action."""
        act = np.asarray(act, dtype=np.float64)
        self.simulation.advance(rows, act, SUBSTEPS)
        distance = np.linalg.norm(self.goal_offsets(rows), axis=1)
        self.solved[rows] |= distance < SUCCESS_DISTANCE
        reward = 1 - distance / RADIUS - ACTION_COST * np.square(act).sum(1)
        return Outcome(reward, self.solved[rows], self.solved[rows] & self.end_on_success)

    def goal_offsets(self, rows: Rows) -> Doubles:
        """Return goal − torso in x, y."""
        return self.goals[rows] - self.simulation.positions[rows, :2]

    def observe(self, rows: Rows) -> Doubles:
        """Return all positions except the torso's x and y, all velocities, and goal − torso."""
        sim = self.simulation
        return np.concatenate([sim.positions[rows, 2:], sim.velocities[rows], self.goal_offsets(rows)], axis=1)

    def render(self, row: int) -> Image:
        """Return a view of the half circle from behind."""
        return self.simulation.render(row, CAMERA)


ANT_REACH = Task(
    name="ant-reach",
    gymnasium_id="diffclone/AntReach-v0",
    summary="A four-legged ant walks to a goal on a half circle.",
    obs_size=42,
    act_size=8,
    horizon=50,
    metric="success",
    make_batch=AntReachBatch,
    make_expert=network_expert(
        "ant-reach", horizon=50, noise=0.5, only_successful=True, env_options={"start_noise": 0.0}
    ),
    episodes=500,
)
