"""Gymnasium's CarRacing, made faster. A file of its own because a subclass imports Gymnasium, Box2D and pygame.

A frame is Gymnasium's image of 96 × 96 pixels, converted to grey and resized to 64 × 64:

    y = (299 R + 587 G + 114 B) / 1000          luma
    p = mean of y over the pixel's area         1.5 × 1.5 pixels of the image

Both are computed in integers and rounded once, so a row's frame does not depend on the other rows.
"""

import math
import os
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.error import DependencyNotInstalled

from diffclone.errors import MissingPackage, install_command
from diffclone.tasks.batch import Doubles, Image, Rows

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame prints a greeting on standard output
try:
    from gymnasium.envs.box2d import car_racing
except (ImportError, DependencyNotInstalled):
    raise MissingPackage(
        f"the task 'car-racing' needs Box2D and pygame, which are not installed. Try: {install_command('tasks')}."
    ) from None

FRAME_SIZE = 64
"""Width and height of a frame in pixels."""
LUMA = np.array([299, 587, 114])
VISIBLE = math.hypot(car_racing.WINDOW_W / 2, car_racing.WINDOW_H * 3 / 4)
"""Pixels of Gymnasium's canvas between the car and the farthest corner."""
LONGEST = car_racing.GRASS_DIM * math.sqrt(2)
"""Length of the diagonal of a patch of grass, the largest polygon drawn."""
IMAGE_SHAPE = (car_racing.STATE_H, car_racing.STATE_W, 3)
GRASS = car_racing.GRASS_DIM * np.array(
    [[(x + 1, y), (x, y), (x, y + 1), (x + 1, y + 1)] for x in range(-20, 20, 2) for y in range(-20, 20, 2)]
)
"""Corners of the lighter patches of grass."""


def shrink(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return frames (rows, 64, 64) of images (rows, 96, 96, 3)."""
    y = images.astype(np.int64) @ LUMA
    for axis in (1, 2):
        # Three pixels a, b, c become two: of areas a + b / 2 and b / 2 + c.
        a, b, c = (y.take(range(k, y.shape[axis], 3), axis) for k in range(3))
        halves = np.stack([2 * a + b, b + 2 * c], axis + 1)
        y = halves.reshape(*y.shape[:axis], FRAME_SIZE, *y.shape[axis + 1 :])
    total = 9 * int(LUMA.sum())
    return ((y + total // 2) // total).astype(np.uint8)


@final
class Race(car_racing.CarRacing):
    """Gymnasium's environment, without rendering what is not observed or not visible."""

    visible = True

    def hold(self, action: npt.NDArray[np.float64], repeat: int) -> tuple[Image, float, bool, bool]:
        """Repeat an action; return the last image, the reward, whether the episode ended, and whether with a lap."""
        total, ended, info = 0.0, False, dict[str, Any]()
        for left in reversed(range(repeat)):
            self.visible = left == 0
            _, reward, ended, _, info = self.step(action)
            total += reward
            if ended:
                break
        if not self.visible:
            self.visible = True
            self.state = self._render("state_pixels")
        return as_image(self.state), total, ended, info.get("lap_finished", False)

    def _render(self, mode: str) -> Any:
        return super()._render(mode) if self.visible else None

    def _create_track(self) -> bool:
        made = super()._create_track()
        self.corners = np.array([polygon[0] for polygon, _ in self.road_poly])
        return made

    def _render_road(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        centre, reach = np.array(self.hull.position), VISIBLE / zoom + LONGEST
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

    def image(self) -> Image:
        """Return Gymnasium's large image, with skid marks."""
        return as_image(self._render("rgb_array"))


def as_image(rendered: Any) -> Image:
    """Narrow the type: Gymnasium's annotations allow a renderer that returns no array."""
    return rendered


@final
class Races:
    """The races of some rows."""

    def __init__(self, repeat: int):
        self.repeat = repeat
        self.by_row: dict[int, Race] = {}

    def reset(self, rows: Rows, seeds: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], ...]:
        """Start a new race per row, so that nothing of an earlier episode remains; return the first frames."""
        images = np.zeros((len(rows), *IMAGE_SHAPE), dtype=np.uint8)
        for k, row in enumerate(rows.tolist()):
            self.by_row[row] = Race()
            images[k] = as_image(self.by_row[row].reset(seed=int(seeds[k]))[0])
        return (shrink(images),)

    def step(self, rows: Rows, act: Doubles) -> tuple[npt.NDArray[Any], ...]:
        """Return frames, rewards, ends and laps."""
        images, reward = np.zeros((len(rows), *IMAGE_SHAPE), dtype=np.uint8), np.zeros(len(rows))
        ended, lap = np.zeros((2, len(rows)), dtype=np.bool_)
        for k, row in enumerate(rows.tolist()):
            images[k], reward[k], ended[k], lap[k] = self.by_row[row].hold(act[k], self.repeat)
        return shrink(images), reward, ended, lap

    def render(self, rows: Rows) -> tuple[npt.NDArray[Any], ...]:
        """Return large images."""
        shape = (len(rows), car_racing.VIDEO_H, car_racing.VIDEO_W, 3)
        return (np.array([self.by_row[row].image() for row in rows.tolist()], dtype=np.uint8).reshape(shape),)
