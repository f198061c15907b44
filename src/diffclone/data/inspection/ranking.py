"""How unlike the others each episode is, by cheap statistics: its outline, and how near its states are to others'."""

from dataclasses import dataclass
from typing import final

import numpy as np

from diffclone.data import Demonstrations
from diffclone.data.inspection.findings import SEED, Matrix, Numbers, episode_of, features, nearest, some_rows, standard

POINTS = 8
"""Steps of an episode that its outline is made of."""
QUERIES, REFERENCES = 16_384, 4096
"""States whose nearest neighbours are looked for, and states among which."""
SHRINK = 0.1
"""Of the mean variance, added to every direction: with few episodes a covariance is mostly chance."""


@final
@dataclass(frozen=True)
class Unlikeness:
    """One number an episode in each; the more, the more unlike the others."""

    score: Matrix
    """Both below, each in robust deviations from the usual episode, averaged."""
    summary: Matrix
    """Mahalanobis distance of the episode's length, means and spreads from those of all."""
    distance: Matrix
    """Mean distance of its states to the nearest states of other episodes, in standard deviations."""

    @property
    def order(self) -> Numbers:
        """Episodes, the most unlike first."""
        return np.argsort(-self.score, kind="stable")


def rank_episodes(demos: Demonstrations) -> Unlikeness:
    """Compare each episode with the rest. The same data give the same numbers."""
    summary, distance = _mahalanobis(summaries(demos)), neighbour_distance(demos)
    return Unlikeness((_robust(summary) + _robust(distance)) / 2, summary, distance)


def summaries(demos: Demonstrations) -> Matrix:
    """(episodes, numbers): length, and means and spreads of observations and actions."""
    steps = _steps_of_each(demos, max(2, 4 * QUERIES // demos.num_episodes))
    values = np.hstack([features(demos, steps), standard(demos.act[steps])])
    groups = episode_of(demos, steps)
    count = np.bincount(groups, minlength=demos.num_episodes)[:, None]
    begins = np.searchsorted(groups, np.arange(demos.num_episodes))
    mean = np.add.reduceat(values, begins) / count
    spread = np.sqrt((np.add.reduceat(np.square(values), begins) / count - np.square(mean)).clip(0))
    return np.hstack([np.log(demos.lengths)[:, None], mean, spread])


def neighbour_distance(demos: Demonstrations) -> Matrix:
    """Of each episode's states to the nearest states of others, on average."""
    if demos.num_episodes == 1:
        return np.zeros(1)
    steps = _steps_of_each(demos, max(1, QUERIES // demos.num_episodes))
    states, groups = features(demos, steps), episode_of(demos, steps)
    among = some_rows(len(steps), REFERENCES)
    distance, _ = nearest(states, states[among], groups, groups[among])
    distance = np.where(np.isfinite(distance), distance, 0)
    return np.bincount(groups, distance, demos.num_episodes) / np.bincount(groups, minlength=demos.num_episodes)


def outlines(demos: Demonstrations, episodes: Numbers) -> Matrix:
    """(episodes, numbers): some steps evenly along each episode, observations and actions, and the length."""
    begins = (demos.episode_ends - demos.lengths)[episodes]
    along = np.linspace(0, 1, POINTS)[None] * (demos.lengths[episodes] - 1)[:, None]
    steps = (begins[:, None] + np.round(along).astype(np.int64)).reshape(-1)
    values = np.hstack([features(demos, steps), standard(demos.act[steps])]).reshape(len(episodes), -1)
    # A difference of one step makes two episodes different.
    return np.hstack([values, demos.lengths[episodes][:, None].astype(np.float64)])


def _steps_of_each(demos: Demonstrations, most: int) -> Numbers:
    """At most so many steps of every episode, at random, in order."""
    rng = np.random.default_rng(SEED)
    begins = demos.episode_ends - demos.lengths
    chosen = [
        begin + (np.arange(length) if length <= most else np.sort(rng.choice(length, most, replace=False)))
        for begin, length in zip(begins, demos.lengths, strict=True)
    ]
    return np.concatenate(chosen)


def _mahalanobis(rows: Matrix) -> Matrix:
    """Distance from the mean in the rows' own covariance, shrunk."""
    x = standard(rows)
    if not x.shape[1]:
        return np.zeros(len(rows))
    covariance = x.T @ x / len(x) + SHRINK * np.eye(x.shape[1])
    return np.sqrt((x * np.linalg.solve(covariance, x.T).T).sum(1) / x.shape[1])


def _robust(values: Matrix) -> Matrix:
    """Deviations from the median, in median deviations scaled as a normal distribution's."""
    away = values - np.median(values)
    usual = 1.4826 * np.median(np.abs(away))
    return away / usual if usual > 0 else np.zeros_like(away)
