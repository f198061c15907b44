"""CarRacing: a car is driven one lap on a random track. Physics, images and rewards are Gymnasium's.

    observation (8192)   two frames of 64 × 64, the previous and the current one, as whole grey values 0 … 255
    action (3)           steering in [−1, 1], gas in [0, 1], brake in [0, 1]
    reward               1000 / tiles for each tile of road touched for the first time, −0.1 for each of Gymnasium's
                         steps; −100 instead for leaving the field
    success              the lap is complete, with at least 95 % of the tiles touched; ends the episode

An action is held for two of Gymnasium's steps. The paper does not say so, but its laps have 365 actions, which at one
step per action would be 140 units of length per second on average, twice what our expert can hold; at two steps per
action they correspond to a good driver.

The expert follows a smoothed centre line at the speed that the bends ahead allow, with Gaussian noise in the steering:

    w_i    = the centre line, averaged over seven tiles                            the line to drive
    v_i²   = min(v_max², a_side / κ_i, v_{i+1}² + 2 a_brake ‖w_{i+1} − w_i‖)       as fast as grip and brakes allow
    steer  = −0.8 φ + 0.03 ω + σ ε                                                 φ the angle to a point of it ahead
    gas    = 0.1 (v − ‖ẋ‖) (1 − 2 |steer|)                                         gas in a bend makes this car spin
    brake  = 0.05 (‖ẋ‖ − v − 1)

κ is the curvature of the line, ω the car's angular velocity, ε ~ N(0, 1); each control is clipped to its range. The
constants make a lap take about as many actions as the paper's, 365.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv, Doubles, Image, Outcome, Rows
from diffclone.tasks.experts import Expert
from diffclone.tasks.processes import Processes, default_processes
from diffclone.tasks.task import Task


@final
class CarRacingBatch(BatchEnv):
    """Many cars, each on its own track."""

    def __init__(self, count: int, *, repeat: int = 2, processes: int | None = None):
        """Make `count` rows; a row's race is created when the row is reset.

        Args:
            count: number of rows.
            repeat: number of Gymnasium's steps for which an action is held.
            processes: number of processes that share the rows; by default one per core, and one for few rows.
        """
        if repeat < 1:
            raise InvalidSettings(f"an action must be held for at least one step; repeat is {repeat}.")
        from diffclone.tasks.car_racing_simulation import FRAME_SIZE, Races

        self.count = count
        self.act_low, self.act_high = np.array([-1.0, 0.0, 0.0]), np.ones(3)
        self.races = Races(repeat)
        self.pool = Processes(self.races, default_processes(count) if processes is None else processes)
        self.frames = np.zeros((count, 2, FRAME_SIZE, FRAME_SIZE), dtype=np.uint8)
        self.solved, self.returns = np.zeros(count, dtype=np.bool_), np.zeros(count)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start on a new track. There is no previous frame yet, so both are the first."""
        seeds = np.array([rng.integers(2**31) for rng in rngs], dtype=np.int64)
        (first,) = self.pool.call("reset", rows, seeds)
        self.frames[rows] = first[:, None]
        self.solved[rows], self.returns[rows] = False, 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Drive on."""
        clipped = np.clip(act, self.act_low, self.act_high).astype(np.float64)
        frames, reward, ended, lap = self.pool.call("step", rows, clipped)
        self.frames[rows] = np.stack([self.frames[rows, 1], frames], 1)
        self.solved[rows] |= lap
        self.returns[rows] += reward
        return Outcome(reward, self.solved[rows], ended)

    def observe(self, rows: Rows) -> Doubles:
        """Return both frames, the previous one first."""
        return self.frames[rows].reshape(len(rows), self.frames[0].size).astype(np.float64)

    def track(self, row: int) -> Doubles:
        """Return the closed centre line of a row's track, (tiles, 2), in driving order. Needs a single process."""
        return np.array(self.races.by_row[row].track)[:, 2:]

    def car(self, row: int) -> tuple[Doubles, float, float, float]:
        """Return a car's position, heading (0 along x), speed and angular velocity. Needs a single process."""
        hull = self.races.by_row[row].hull
        return np.array(hull.position), hull.angle + math.pi / 2, math.hypot(*hull.linearVelocity), hull.angularVelocity

    def render(self, row: int) -> Image:
        """Return a large image, (400, 600, 3). It needs no display."""
        return self.pool.call("render", np.array([row]))[0][0]

    def close(self) -> None:
        """End the processes and delete the races."""
        self.pool.close()
        self.races.by_row.clear()


TOP_SPEED, SIDE, BRAKE = 78.0, 200.0, 90.0
"""v_max, a_side, a_brake, in the simulation's units and seconds."""
SMOOTH = 3
"""Number of tiles on either side over which a point of the line is averaged."""
TILE = 3.5
"""Length of a tile."""
AHEAD, AHEAD_SECONDS = 6.0, 0.2
"""The car steers towards a point ahead: at this distance plus this time at its speed."""
REACTION_SECONDS = 0.05
"""The target speed is that of the point this far ahead in time."""
MAX_BRAKE = 0.6
"""The wheels lock at 0.9."""
MIN_RETURN = 850.0
"""Lowest return of a demonstration."""


def plan(track: Doubles) -> tuple[Doubles, Doubles]:
    """Return the line to drive, (points, 2), and the speed at each point, for a closed centre line (points, 2)."""
    line = smooth(track, SMOOTH)
    move = np.roll(line, -1, 0) - line
    length, heading = np.linalg.norm(move, axis=1), np.arctan2(move[:, 1], move[:, 0])
    curvature = np.abs(smooth(wrap_angle(heading - np.roll(heading, 1)), 1)) / length
    speed = np.minimum(TOP_SPEED, np.sqrt(SIDE / np.maximum(curvature, 1e-6)))
    for i in reversed(range(2 * len(speed))):  # two laps: the end of the lap brakes for its start
        here, there = i % len(speed), (i + 1) % len(speed)
        speed[here] = min(speed[here], math.sqrt(speed[there] ** 2 + 2 * BRAKE * length[here]))
    return line, speed


def smooth(values: Doubles, reach: int) -> Doubles:
    """Average each value of a closed sequence with `reach` values on either side."""
    return np.mean([np.roll(values, k, 0) for k in range(-reach, reach + 1)], 0)


def wrap_angle(x: Any) -> Any:
    """Return the angle within ±π."""
    return (x + math.pi) % (2 * math.pi) - math.pi


@final
class RacingExpert(Expert):
    """Knows the track and the state of the car, while a policy sees images."""

    horizon = 500
    obs_dtype = np.uint8

    def __init__(self, noise: float = 0.1):
        """Make the expert; `noise` is σ, the standard deviation of the steering noise."""
        self.noise = noise
        self.rng = np.random.default_rng(0)
        self.line, self.speed, self.position = np.zeros((0, 2)), np.zeros(0), 0
        self.env: CarRacingBatch | None = None

    def set_environment(self, env: BatchEnv) -> None:
        """Keep the environment, which knows the track."""
        assert isinstance(env, CarRacingBatch)
        self.env = env

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Plan the line."""
        self.rng, self.position = rng, 0
        self.line, self.speed = plan(self._env.track(0))

    def act(self, obs: Doubles) -> Doubles:
        """Steer along the line."""
        position, heading, speed, turning = self._env.car(0)
        near = (self.position + np.arange(-3, 15)) % len(self.line)
        self.position = int(near[np.linalg.norm(self.line[near] - position, axis=1).argmin()])
        target = self._ahead(self.line, AHEAD + AHEAD_SECONDS * speed) - position
        error = wrap_angle(math.atan2(target[1], target[0]) - heading)
        steer = -0.8 * error + 0.03 * turning
        faster = self._ahead(self.speed, REACTION_SECONDS * speed) - speed
        gas = np.clip(0.1 * faster, 0, 1) * max(0.0, 1 - 2 * abs(steer))
        brake = np.clip(0.05 * (-faster - 1), 0, MAX_BRAKE)
        return np.array([np.clip(steer + self.noise * self.rng.standard_normal(), -1, 1), gas, brake])

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept complete laps with a high return."""
        return success and bool(self._env.returns[0] >= MIN_RETURN)

    @property
    def _env(self) -> CarRacingBatch:
        assert self.env is not None, "call set_environment first"
        return self.env

    def _ahead(self, values: Doubles, distance: float) -> Any:
        return values[(self.position + 1 + int(distance / TILE)) % len(values)]


CAR_RACING = Task(
    name="car-racing",
    gymnasium_id="diffclone/CarRacing-v0",
    summary="A car is driven one lap on a track, observed as images from above.",
    obs_size=8192,
    act_size=3,
    horizon=500,
    metric="return",
    make_batch=CarRacingBatch,
    make_expert=RacingExpert,
    episodes=5,
)
