"""What an expert is, and how its demonstrations are collected."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.tasks.batch import BatchEnv

PATIENCE = 100
"""Episodes tried for each one shown, after which an expert is given up."""
COLLECT_SEEDS = 3_000_000
"""Starts of demonstrations are numbered from here, apart from those of evaluation and validation."""


class Expert(ABC):
    """Plays one episode at a time."""

    horizon: int
    """Steps after which it gives up."""
    env_options: dict[str, Any]
    """Options of the environments it demonstrates in."""
    obs_kind: npt.DTypeLike = np.float32
    """The kind of number that observations are kept as; bytes where they are pictures."""

    def attach(self, env: BatchEnv) -> None:  # noqa: B027 (most experts see no more than a policy)
        """See more of the environment than a policy does: the row is 0."""

    @abstractmethod
    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """An episode starts at this observation."""

    @abstractmethod
    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """What to do, or nothing when the episode is over."""

    @abstractmethod
    def keeps(self, steps: int, *, success: bool) -> bool:
        """Whether an episode is good enough to be shown."""


@final
@dataclass(frozen=True, eq=False)
class Episode:
    """What an expert saw and did."""

    obs: list[npt.NDArray[np.float64]]
    act: list[npt.NDArray[np.float64]]
    returns: float
    success: bool


def play(
    env: BatchEnv,
    expert: Expert,
    rng: np.random.Generator,
    steps: int,
    watch: Callable[[BatchEnv], None] = lambda env: None,
) -> Episode:
    """One episode in row 0, of `steps` at most; `watch` is called before each step and after the last."""
    row = np.zeros(1, dtype=np.int64)
    env.reset(row, [rng])
    expert.begin(env.observe(row)[0], rng)
    obs: list[npt.NDArray[np.float64]] = []
    act: list[npt.NDArray[np.float64]] = []
    returns, success, ended = 0.0, False, False
    while len(act) < steps and not ended:
        watch(env)
        seen = env.observe(row)[0]
        chosen = expert.act(seen)
        if chosen is None:
            break
        chosen = chosen.astype(np.float32).astype(np.float64)  # what is kept is what was done
        obs.append(seen)
        act.append(chosen)
        outcome = env.step(row, chosen[None])
        returns += float(outcome.reward[0])
        success, ended = bool(outcome.success[0]), bool(outcome.ended[0])
    watch(env)
    return Episode(obs, act, returns, success)


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
    kept: list[Episode] = []
    tried = 0
    expert.attach(env)
    while len(kept) < episodes:
        if tried >= PATIENCE * (len(kept) + 1):
            raise InvalidSettings(
                f"of {tried} episodes the expert would show {len(kept)}; {episodes} were asked for. "
                "Its options make the task too hard for it."
            )
        rng = np.random.default_rng([COLLECT_SEEDS, seed, tried])
        tried += 1
        episode = play(env, expert, rng, expert.horizon)
        if expert.keeps(len(episode.act), success=episode.success):
            kept.append(episode)
            progress(len(kept), episodes)
    bounds = [env.act_low.tolist(), env.act_high.tolist()]
    about = {**(meta or {}), "episodes_tried": tried, "seed": seed, "action_bounds": bounds}
    return Demonstrations.from_arrays(
        np.array([obs for episode in kept for obs in episode.obs], dtype=expert.obs_kind),
        np.array([act for episode in kept for act in episode.act]),
        episode_ends=np.cumsum([len(episode.act) for episode in kept]),
        meta=about,
    )
