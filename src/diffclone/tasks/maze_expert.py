"""Maze's expert: the shortest way through the cells, followed by a spring and a damper, with noise in its hand.

    a = clip(clip(10 (w − x) − ẋ, ±1) + 0.5 ε, ±1)          w the next way-point, ε ~ N(0, I)

A way-point is a cell's point pulled towards its middle by U(0, 0.2) on each axis; the last one is the goal's cell.
The noise is in the demonstrations that the original release ships, though the paper does not mention it.
"""

from collections import deque
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.expert import Expert
from diffclone.tasks.maze import CELLS

Cell = tuple[int, int]

STIFFNESS, DAMPING = 10.0, 1.0
ARRIVED = 0.1
"""Distance at which a way-point is done with."""
SHORTEST, LONGEST = 75, 600
"""Episodes are shown if their length lies between these."""
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
"""Neighbours, in the order that decides between equally short ways."""


def distances_to(goal: Cell) -> dict[Cell, int]:
    """Moves from every cell to the goal."""
    distance, waiting = {goal: 0}, deque([goal])
    while waiting:
        i, j = waiting.popleft()
        for di, dj in MOVES:
            cell = (i + di, j + dj)
            if cell in CELLS and cell not in distance:
                distance[cell] = distance[i, j] + 1
                waiting.append(cell)
    return distance


def shortest_way(start: Cell, goal: Cell) -> list[Cell]:
    """Cells after the start, up to the goal."""
    distance, way = distances_to(goal), [start]
    while way[-1] != goal:
        i, j = way[-1]
        way.append(min(((i + di, j + dj) for di, dj in MOVES), key=lambda c: distance.get(c, len(CELLS))))
    return way[1:]


@final
class WaypointExpert(Expert):
    """Knows the layout, sees what a policy sees."""

    horizon = LONGEST
    env_options: dict[str, Any] = {"end_on_success": False}  # noqa: RUF012

    def __init__(self, noise: float = 0.5):
        self.noise = noise
        self.waypoints: list[npt.NDArray[np.float64]] = []
        self.rng = np.random.default_rng(0)
        self.arrived = self.moved = False

    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """Plan."""
        start, goal = (_nearest_cell(obs[k : k + 2]) for k in (0, 4))
        way = shortest_way(start, goal) or [goal]
        self.rng = rng
        self.waypoints = [np.array(cell) - rng.uniform(0, 0.2, 2) for cell in way[:-1]]
        self.waypoints.append(np.array(way[-1], dtype=np.float64))
        self.arrived = self.moved = False

    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """Push towards the way-point; nothing once the goal's cell is reached, which takes a step at least."""
        position, velocity = obs[0:2], obs[2:4]
        if np.linalg.norm(position - self.waypoints[0]) < ARRIVED:
            if len(self.waypoints) > 1:
                del self.waypoints[0]
            elif self.moved:
                self.arrived = True
                return None
        self.moved = True
        push = np.clip(STIFFNESS * (self.waypoints[0] - position) - DAMPING * velocity, -1, 1)
        return np.clip(push + self.noise * self.rng.standard_normal(2), -1, 1)

    def keeps(self, steps: int, *, success: bool) -> bool:
        """Arrived, in neither too few steps nor too many."""
        return self.arrived and success and SHORTEST < steps < LONGEST


def _nearest_cell(point: npt.NDArray[np.float64]) -> Cell:
    return min(CELLS, key=lambda cell: float(np.square(point - cell).sum()))


make_expert = WaypointExpert
