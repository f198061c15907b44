"""CarRacing's expert: follows a smoothed centre line at the speed that the bends ahead allow, with noise in its hand.

    w_i    = the centre line, averaged over seven tiles                            the line to drive
    v_i²   = min(v_max², a_side / κ_i, v_{i+1}² + 2 a_brake ‖w_{i+1} − w_i‖)       as fast as grip and brakes allow
    steer  = −0.8 φ + 0.03 ω + σ ε                                                 φ the angle to a point of it ahead
    gas    = 0.1 (v − ‖ẋ‖) (1 − 2 |steer|)                                         gas in a bend spins this car
    brake  = 0.05 (‖ẋ‖ − v − 1)

κ is the curvature of the line, ω how fast the car turns, ε ~ N(0, 1); each control is cut to its range. The constants
let a lap take about as many actions as the paper's, 365.
"""

import math
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import BatchEnv
from diffclone.tasks.car_racing import CarRacingBatch
from diffclone.tasks.expert import Expert

Doubles = npt.NDArray[np.float64]

TOP_SPEED, SIDE, BRAKE = 78.0, 200.0, 90.0
"""v_max, a_side, a_brake, in the world's units and seconds."""
SMOOTH = 3
"""Tiles either side that a point of the line is averaged over."""
TILE = 3.5
"""Length of a tile."""
AHEAD, AHEAD_SECONDS = 6.0, 0.2
"""How far ahead the car steers to: a distance, and a time at its speed."""
REACTION = 0.05
"""Seconds that the speed aimed for lies ahead."""
HARDEST_BRAKE = 0.6
"""The wheels lock at 0.9."""
GOOD = 850.0
"""Episodes are shown if their return is at least this."""


def plan(track: Doubles) -> tuple[Doubles, Doubles]:
    """The line to drive, (points, 2), and the speed at each point, of a closed centre line (points, 2)."""
    line = _smooth(track, SMOOTH)
    move = np.roll(line, -1, 0) - line
    length, heading = np.linalg.norm(move, axis=1), np.arctan2(move[:, 1], move[:, 0])
    curvature = np.abs(_smooth(_angle(heading - np.roll(heading, 1)), 1)) / length
    speed = np.minimum(TOP_SPEED, np.sqrt(SIDE / np.maximum(curvature, 1e-6)))
    for i in reversed(range(2 * len(speed))):  # twice round: the end of the lap brakes for its beginning
        here, there = i % len(speed), (i + 1) % len(speed)
        speed[here] = min(speed[here], math.sqrt(speed[there] ** 2 + 2 * BRAKE * length[here]))
    return line, speed


@final
class RacingExpert(Expert):
    """Knows the track and the car's own state, of which a policy sees a picture."""

    horizon = 500
    env_options: dict[str, Any] = {}  # noqa: RUF012
    obs_kind = np.uint8

    def __init__(self, noise: float = 0.1):
        self.noise = noise
        """σ, of the hand that steers."""
        self.rng = np.random.default_rng(0)
        self.line, self.speed, self.at = np.zeros((0, 2)), np.zeros(0), 0
        self.env: CarRacingBatch | None = None

    def attach(self, env: BatchEnv) -> None:
        """See the track."""
        assert isinstance(env, CarRacingBatch)
        self.env = env

    def begin(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Plan."""
        self.rng, self.at = rng, 0
        self.line, self.speed = plan(self._env.track(0))

    def act(self, obs: Doubles) -> Doubles:
        """Steer along the line."""
        position, angle, speed, turning = self._env.car(0)
        near = (self.at + np.arange(-3, 15)) % len(self.line)
        self.at = int(near[np.linalg.norm(self.line[near] - position, axis=1).argmin()])
        way = self._ahead(self.line, AHEAD + AHEAD_SECONDS * speed) - position
        off = _angle(math.atan2(way[1], way[0]) - angle)
        steer = -0.8 * off + 0.03 * turning
        faster = self._ahead(self.speed, REACTION * speed) - speed
        gas = np.clip(0.1 * faster, 0, 1) * max(0.0, 1 - 2 * abs(steer))
        brake = np.clip(0.05 * (-faster - 1), 0, HARDEST_BRAKE)
        return np.array([np.clip(steer + self.noise * self.rng.standard_normal(), -1, 1), gas, brake])

    def keeps(self, steps: int, *, success: bool) -> bool:
        """A lap, driven well."""
        return success and bool(self._env.returns[0] >= GOOD)

    @property
    def _env(self) -> CarRacingBatch:
        assert self.env is not None, "an expert that sees more than a policy must be attached first"
        return self.env

    def _ahead(self, values: Doubles, distance: float) -> Any:
        return values[(self.at + 1 + int(distance / TILE)) % len(values)]


def _smooth(values: Doubles, reach: int) -> Doubles:
    """Each value of a closed row averaged with those `reach` either side."""
    return np.mean([np.roll(values, k, 0) for k in range(-reach, reach + 1)], 0)


def _angle(x: Any) -> Any:
    """Within ±π."""
    return (x + math.pi) % (2 * math.pi) - math.pi


make_expert = RacingExpert
