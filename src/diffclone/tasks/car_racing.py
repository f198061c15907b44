"""CarRacing: a car is driven once round a random track. The world, its picture and its rewards are Gymnasium's own.

    observation (8192)   two frames of 64 × 64, the previous one and the present one, in whole greys of 0 … 255
    action (3)           steering in [−1, 1], gas in [0, 1], brake in [0, 1]
    reward               1000 / tiles for each tile of road first touched, −0.1 for each of Gymnasium's steps; −100
                         instead for leaving the field
    success              the lap is complete, with at least 95 % of the tiles touched; it ends the episode

An action is held for two of Gymnasium's steps. The paper does not say so, but its laps of 365 actions would otherwise
mean 140 units a second on average, twice what we could make the car hold; with it, they are a good driver's.

A frame is Gymnasium's picture of 96 × 96, the whole of it, made grey and smaller:

    y = (299 R + 587 G + 114 B) / 1000          luma
    p = mean of y over the pixel's area         1.5 × 1.5 pixels of the picture

Both are done in whole numbers and rounded once, so that a row's frame is the same whatever stands beside it.
"""

import math
import os
import sys
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.error import DependencyNotInstalled

from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Picture, Rows
from diffclone.tasks.processes import Processes
from diffclone.tasks.single import SingleEnv

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame greets on standard output
try:
    from gymnasium.envs.box2d import car_racing
except (ImportError, DependencyNotInstalled):
    raise MissingPackage(
        "the task 'car-racing' needs Box2D and pygame, which are not installed. Try: pip install 'diffclone[tasks]'."
    ) from None

SIZE = 64
"""Pixels along a side of a frame."""
LUMA = np.array([299, 587, 114])
SEEN = math.hypot(car_racing.WINDOW_W / 2, car_racing.WINDOW_H * 3 / 4)
"""Pixels of Gymnasium's canvas between the car and the farthest corner."""
LARGEST = car_racing.GRASS_DIM * math.sqrt(2)
"""The longest line within a patch of grass; a tile of road has none longer."""
PICTURE = (car_racing.STATE_H, car_racing.STATE_W, 3)
GRASS = car_racing.GRASS_DIM * np.array(
    [[(x + 1, y), (x, y), (x, y + 1), (x + 1, y + 1)] for x in range(-20, 20, 2) for y in range(-20, 20, 2)]
)
"""The lighter patches of the field, by their corners."""


def shrink(pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Frames (rows, 64, 64) of pictures (rows, 96, 96, 3)."""
    y = pictures.astype(np.int64) @ LUMA
    for axis in (1, 2):
        # Three pixels a, b, c become two: of areas a + b / 2 and b / 2 + c.
        a, b, c = (y.take(range(k, y.shape[axis], 3), axis) for k in range(3))
        halves = np.stack([2 * a + b, b + 2 * c], axis + 1)
        y = halves.reshape(*y.shape[:axis], SIZE, *y.shape[axis + 1 :])
    whole = 9 * int(LUMA.sum())
    return ((y + whole // 2) // whole).astype(np.uint8)


@final
class Race(car_racing.CarRacing):
    """Gymnasium's environment, which spends most of its time on what is not seen; this does not."""

    seen = True

    def hold(self, action: npt.NDArray[np.float64], repeat: int) -> tuple[Picture, float, bool, bool]:
        """Some steps with one action: what is seen after the last, the reward, whether it ended, and with a lap."""
        total, ended, info = 0.0, False, dict[str, Any]()
        for left in reversed(range(repeat)):
            self.seen = left == 0
            _, reward, ended, _, info = self.step(action)
            total += reward
            if ended:
                break
        if not self.seen:
            self.seen = True
            self.state = self._render("state_pixels")
        return _picture(self.state), total, ended, info.get("lap_finished", False)

    def _render(self, mode: str) -> Any:
        return super()._render(mode) if self.seen else None

    def _create_track(self) -> bool:
        made = super()._create_track()
        self.corners = np.array([polygon[0] for polygon, _ in self.road_poly])
        return made

    def _render_road(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        centre, reach = np.array(self.hull.position), SEEN / zoom + LARGEST
        end = car_racing.PLAYFIELD
        field = [(end, end), (end, -end), (-end, -end), (-end, end)]
        self._draw_colored_polygon(self.surf, field, self.bg_color, zoom, translation, angle, clip=False)
        for k in np.flatnonzero(np.linalg.norm(GRASS[:, 0] - centre, axis=1) < reach):
            self._draw_colored_polygon(self.surf, GRASS[k], self.grass_color, zoom, translation, angle)
        for k in np.flatnonzero(np.linalg.norm(self.corners - centre, axis=1) < reach):
            polygon, colour = self.road_poly[k]
            self._draw_colored_polygon(self.surf, polygon, [int(c) for c in colour], zoom, translation, angle)

    @property
    def hull(self) -> Any:
        """The car's body."""
        assert self.car is not None
        return self.car.hull

    def picture(self) -> Picture:
        """The episode as Gymnasium would show it in a film, with skid marks."""
        return _picture(self._render("rgb_array"))


def _picture(rendered: Any) -> Picture:
    """Gymnasium's types allow for a renderer that gives no array."""
    return rendered


@final
class Races:
    """The worlds of some rows."""

    def __init__(self, repeat: int):
        self.repeat = repeat
        self.of: dict[int, Race] = {}

    def reset(self, rows: Rows, seeds: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], ...]:
        """First frames. A new world each, so that nothing of an earlier episode can matter."""
        pictures = np.zeros((len(rows), *PICTURE), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            self.of[row] = Race()
            pictures[place] = _picture(self.of[row].reset(seed=int(seeds[place]))[0])
        return (shrink(pictures),)

    def step(self, rows: Rows, act: Doubles) -> tuple[npt.NDArray[Any], ...]:
        """Frames, rewards, ends and laps."""
        pictures, reward = np.zeros((len(rows), *PICTURE), dtype=np.uint8), np.zeros(len(rows))
        ended, lap = np.zeros((2, len(rows)), dtype=np.bool_)
        for place, row in enumerate(rows.tolist()):
            pictures[place], reward[place], ended[place], lap[place] = self.of[row].hold(act[place], self.repeat)
        return shrink(pictures), reward, ended, lap

    def render(self, rows: Rows) -> tuple[npt.NDArray[Any], ...]:
        """Larger pictures."""
        shape = (len(rows), car_racing.VIDEO_H, car_racing.VIDEO_W, 3)
        return (np.array([self.of[row].picture() for row in rows.tolist()], dtype=np.uint8).reshape(shape),)


@final
class CarRacingBatch(BatchEnv):
    """Many cars, each on a track of its own."""

    def __init__(self, count: int, *, repeat: int = 2, processes: int | None = None):
        """Make `count` rows; a row's world is made when the row is reset.

        Args:
            count: rows.
            repeat: steps of Gymnasium's environment that an action is held for.
            processes: that share the rows; by default as many as there are cores, and one for few rows.
        """
        if repeat < 1:
            raise InvalidSettings(f"an action must be held for at least one step; repeat is {repeat}.")
        self.count = count
        self.act_low, self.act_high = np.array([-1.0, 0.0, 0.0]), np.ones(3)
        self.races = Races(repeat)
        self.pool = Processes(self.races, sensible_processes(count) if processes is None else processes)
        self.frames = np.zeros((count, 2, SIZE, SIZE), dtype=np.uint8)
        self.solved, self.returns = np.zeros(count, dtype=np.bool_), np.zeros(count)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """A new track each; there is no previous frame yet, so both are the first."""
        seeds = np.array([rng.integers(2**31) for rng in rngs], dtype=np.int64)
        (first,) = self.pool.call("reset", rows, seeds)
        self.frames[rows] = first[:, None]
        self.solved[rows], self.returns[rows] = False, 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Drive on; each row's world moves by itself."""
        chosen = np.clip(act, self.act_low, self.act_high).astype(np.float64)
        frames, reward, ended, lap = self.pool.call("step", rows, chosen)
        self.frames[rows] = np.stack([self.frames[rows, 1], frames], 1)
        self.solved[rows] |= lap
        self.returns[rows] += reward
        return Outcome(reward, self.solved[rows], ended)

    def observe(self, rows: Rows) -> Doubles:
        """Both frames, the previous one first."""
        return self.frames[rows].reshape(len(rows), 2 * SIZE**2).astype(np.float64)

    def track(self, row: int) -> Doubles:
        """The centre line of a row's track, (tiles, 2), closed, in the order of driving. (Only in one process.)"""
        return np.array(self.races.of[row].track)[:, 2:]

    def car(self, row: int) -> tuple[Doubles, float, float, float]:
        """Where a row's car is and points to (0 along x), its speed and how fast it turns. (Only in one process.)"""
        hull = self.races.of[row].hull
        return np.array(hull.position), hull.angle + math.pi / 2, math.hypot(*hull.linearVelocity), hull.angularVelocity

    def render(self, row: int) -> Picture:
        """A larger picture of an episode, (400, 600, 3); no display is needed."""
        return self.pool.call("render", np.array([row]))[0][0]

    def close(self) -> None:
        """End the processes, and let the worlds go."""
        self.pool.close()
        self.races.of.clear()


def sensible_processes(count: int) -> int:
    """One for few rows, and where forking is not the custom; else as many as there are cores for eight rows each."""
    return max(1, min(count // 8, len(os.sched_getaffinity(0)))) if sys.platform == "linux" else 1


make_batch = CarRacingBatch


@final
class CarRacingEnv(SingleEnv):
    """One car with Gymnasium's interface."""

    batch_type = CarRacingBatch
    obs_size = 8192
