"""What an expert is, and how its demonstrations are collected."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv

COLLECT_SEEDS = 3_000_000
"""Starts of demonstrations are numbered from here, apart from those of evaluation and validation."""


class Expert(ABC):
    """Plays one episode at a time."""

    horizon: int
    """Steps after which it gives up."""
    env_options: dict[str, Any]
    """Options of the environments it demonstrates in."""

    @abstractmethod
    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """An episode starts at this observation."""

    @abstractmethod
    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """What to do, or nothing when the episode is over."""

    @abstractmethod
    def keeps(self, steps: int, *, success: bool) -> bool:
        """Whether an episode is good enough to be shown."""


def collect(
    env: BatchEnv,
    expert: Expert,
    episodes: int,
    *,
    seed: int = 0,
    meta: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Demonstrations:
    """Episodes of the expert that it would show, from starts numbered from `seed` on."""
    if episodes < 1:
        raise InvalidSettings(f"at least one episode must be collected; {episodes} were asked for.")
    observations: list[npt.NDArray[np.float64]] = []
    actions: list[npt.NDArray[np.float64]] = []
    ends: list[int] = []
    row = np.zeros(1, dtype=np.int64)
    tried = 0
    while len(ends) < episodes:
        start = np.random.default_rng([COLLECT_SEEDS, seed, tried])
        tried += 1
        env.reset(row, [start])
        expert.begin(env.observe(row)[0], start)
        obs: list[npt.NDArray[np.float64]] = []
        act: list[npt.NDArray[np.float64]] = []
        success = False
        while len(act) < expert.horizon:
            seen = env.observe(row)[0]
            chosen = expert.act(seen)
            if chosen is None:
                break
            chosen = chosen.astype(np.float32).astype(np.float64)  # what is kept is what was done
            obs.append(seen)
            act.append(chosen)
            success = bool(env.step(row, chosen[None]).success[0])
        if expert.keeps(len(act), success=success):
            observations += obs
            actions += act
            ends.append(len(actions))
            progress(len(ends), episodes)
    bounds = [env.act_low.tolist(), env.act_high.tolist()]
    about = {**(meta or {}), "episodes_tried": tried, "seed": seed, "action_bounds": bounds}
    return Demonstrations.from_arrays(
        np.array(observations), np.array(actions), episode_ends=np.array(ends), meta=about
    )
