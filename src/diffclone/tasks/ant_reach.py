"""AntReach: a four-legged ant walks to a goal on a half circle of five metres, in fifty steps of 0.1 s.

    observation (42)   height; torso quaternion (4); hip and ankle of each leg (8); the goal body's pose (7);
                       torso velocity (6); joint velocities (8); the goal body's velocity (6); goal − torso in x, y
    action (8)         torques, in [−1, 1]; larger ones are cut by the motors
    success            within 0.5 m of the goal at any step; an episode always lasts fifty steps, as released

The goal is a body of its own, half in the ground at the start: it pops up and settles while the ant sets off, and its
motion is in the observation. It is kept, so that observations mean what they mean in the original.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.simulation import Camera, Simulation
from diffclone.tasks.single import SingleEnv

SUBSTEPS = 5
RADIUS = 5.0
REACHED = 0.5
ACTION_COST = 0.005
SPEED_NOISE = 0.005
START = (0, 0, 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1, 0.15, 0.15, 0.15, 1, 1, 0, 0)
"""Torso, joints, goal body. (The goal's quaternion is not of length one; MuJoCo makes it so at the first step.)"""
GOAL_PLACE = slice(15, 17)

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
"""Where each leg goes, its ankle's axis and range."""
MOTORS = (4, 1, 2, 3)
"""Legs in the order of the action, a hip and an ankle each."""
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
    """Ant, goal, floor."""
    legs = (
        LEG.format(k=k, x=x, y=y, fx=2 * x, fy=2 * y, axis=axis, low=low, high=high)
        for k, (x, y, axis, low, high) in enumerate(LEGS, start=1)
    )
    motors = (
        f'\n    <motor joint="{joint} {k}" gear="150" ctrllimited="true" ctrlrange="-1 1"/>'
        for k in MOTORS
        for joint in ("hip", "ankle")
    )
    return XML.format(legs="".join(legs), motors="".join(motors))


@final
class AntReachBatch(BatchEnv):
    """Many ants."""

    def __init__(self, count: int, *, start_noise: float = 0.01, end_on_success: bool = False):
        """Make `count` ants.

        Args:
            count: rows.
            start_noise: positions at the start are off by up to this, uniformly. Demonstrations have 0.
            end_on_success: the paper's text ends an episode at the goal, the released code does not.
        """
        if not start_noise >= 0:
            raise InvalidSettings(f"noise must not be negative; it is {start_noise}.")
        self.count = count
        self.act_low, self.act_high = -np.ones(8), np.ones(8)
        self.start_noise, self.end_on_success = start_noise, end_on_success
        self.simulation = Simulation(model_xml(), count, rows_a_thread=2)
        self.goals = np.zeros((count, 2))
        self.solved = np.zeros(count, dtype=np.bool_)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Near the starting pose, with a goal somewhere on the half circle."""
        sim = self.simulation
        for row, rng in zip(rows, rngs, strict=True):
            angle = rng.uniform(0, math.pi)
            self.goals[row] = RADIUS * math.cos(angle), RADIUS * math.sin(angle)
            sim.states[row] = 0
            sim.positions[row] = np.array(START) + self.start_noise * rng.uniform(-1, 1, len(START))
            sim.positions[row, GOAL_PLACE] = self.goals[row]
            sim.velocities[row] = SPEED_NOISE * rng.uniform(-1, 1, sim.velocities.shape[1])
        self.solved[rows] = False

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Hold the torques; the reward is nearness to the goal less a cost of the action."""
        act = np.asarray(act, dtype=np.float64)
        self.simulation.advance(rows, act, SUBSTEPS)
        distance = np.linalg.norm(self.towards(rows), axis=1)
        self.solved[rows] |= distance < REACHED
        reward = 1 - distance / RADIUS - ACTION_COST * np.square(act).sum(1)
        return Outcome(reward, self.solved[rows], self.solved[rows] & self.end_on_success)

    def towards(self, rows: Rows) -> Doubles:
        """From torso to goal."""
        return self.goals[rows] - self.simulation.positions[rows, :2]

    def observe(self, rows: Rows) -> Doubles:
        """All positions but the torso's own in the plane, all velocities, the way to the goal."""
        sim = self.simulation
        return np.concatenate([sim.positions[rows, 2:], sim.velocities[rows], self.towards(rows)], axis=1)

    def render(self, row: int) -> Picture:
        """The half circle from behind."""
        return self.simulation.picture(row, CAMERA)

    def close(self) -> None:
        """End the threads."""
        self.simulation.close()


make_batch = AntReachBatch


@final
class AntReachEnv(SingleEnv):
    """One ant with Gymnasium's interface."""

    batch_type = AntReachBatch
    obs_size = 42
