"""A ranking of episodes by how unusual they are, from cheap statistics of the episodes and their states."""

from dataclasses import dataclass
from typing import final

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.inspection.findings import (
    SEED,
    Indices,
    Matrix,
    compute_features,
    find_nearest,
    format_count,
    get_episodes,
    sample_rows,
    standardise,
)
from diffclone.data.notebook import html_table

SHOWN, SHOWN_IN_TEXT = 10, 3
"""Episodes that a notebook and a terminal show of a ranking."""
OUTLINE_POINTS = 8
"""Steps of an episode that its outline consists of."""
QUERIES, REFERENCES = 16_384, 4096
"""States whose nearest neighbours are searched, and states among which they are searched."""
SHRINKAGE = 0.1
"""Share of the mean variance that is added to the covariance, because few episodes give a poor estimate of it."""


@final
@dataclass(frozen=True, repr=False)
class EpisodeRanking:
    """How unusual each episode is. Every array has one number per episode; larger is more unusual."""

    score: Matrix
    """The mean of the two numbers below, each in robust standard deviations from the median episode."""
    summary: Matrix
    """Mahalanobis distance of the episode's length, means and standard deviations from those of all episodes."""
    distance: Matrix
    """Mean distance of the episode's states to the nearest states of other episodes, in standard deviations."""

    @property
    def order(self) -> Indices:
        """Indices of the episodes, the most unusual first."""
        return np.argsort(-self.score, kind="stable")

    def __repr__(self) -> str:
        first = ", ".join(f"{k} (score {self.score[k]:.2f})" for k in self.order[:SHOWN_IN_TEXT])
        return f"EpisodeRanking({format_count(len(self.score), 'episode')}, the most unusual first: {first})"

    def _repr_html_(self) -> str:
        columns = (self.score, self.summary, self.distance)
        rows = [(str(k), *(f"{column[k]:.2f}" for column in columns)) for k in self.order[:SHOWN]]
        title = f"The most unusual of {format_count(len(self.score), 'episode')}"
        return html_table(title, rows, ("episode", "score", "summary", "distance"))


def rank_episodes(demos: Demonstrations) -> EpisodeRanking:
    """Compare each episode with the others. The same data give the same numbers.

    Args:
        demos: the demonstrations. Of images with numbers, pass one part (`split_parts`).

    Returns:
        How unusual each episode is, by its summary and by its states.
    """
    summary, distance = _mahalanobis(_summarise_episodes(demos)), _measure_neighbour_distance(demos)
    return EpisodeRanking((_scale_robustly(summary) + _scale_robustly(distance)) / 2, summary, distance)


def compute_outlines(demos: Demonstrations, episodes: Indices) -> Matrix:
    """Return one row per episode: observations and actions at evenly spaced steps, and the length."""
    begins = (demos.episode_ends - demos.lengths)[episodes]
    along = np.linspace(0, 1, OUTLINE_POINTS)[None] * (demos.lengths[episodes] - 1)[:, None]
    steps = (begins[:, None] + np.round(along).astype(np.int64)).reshape(-1)
    values = np.hstack([compute_features(demos, steps), standardise(demos.act[steps])]).reshape(len(episodes), -1)
    # The length is not scaled: episodes that differ by one step are not copies.
    return np.hstack([values, demos.lengths[episodes][:, None].astype(np.float64)])


def _summarise_episodes(demos: Demonstrations) -> Matrix:
    """Return one row per episode: its length, and means and standard deviations of observations and actions."""
    steps = _sample_steps(demos, max(2, 4 * QUERIES // demos.num_episodes))
    values = np.hstack([compute_features(demos, steps), standardise(demos.act[steps])])
    groups = get_episodes(demos, steps)
    count = np.bincount(groups, minlength=demos.num_episodes)[:, None]
    begins = np.searchsorted(groups, np.arange(demos.num_episodes))
    mean = np.add.reduceat(values, begins) / count
    std = np.sqrt((np.add.reduceat(np.square(values), begins) / count - np.square(mean)).clip(0))
    return np.hstack([np.log(demos.lengths)[:, None], mean, std])


def _measure_neighbour_distance(demos: Demonstrations) -> Matrix:
    if demos.num_episodes == 1:
        return np.zeros(1)
    steps = _sample_steps(demos, max(1, QUERIES // demos.num_episodes))
    states, groups = compute_features(demos, steps), get_episodes(demos, steps)
    among = sample_rows(len(steps), REFERENCES)
    distance, _ = find_nearest(states, states[among], groups, groups[among])
    distance = np.where(np.isfinite(distance), distance, 0)
    return np.bincount(groups, distance, demos.num_episodes) / np.bincount(groups, minlength=demos.num_episodes)


def _sample_steps(demos: Demonstrations, most: int) -> Indices:
    """Return at most this many random steps of every episode, in order."""
    rng = np.random.default_rng(SEED)
    begins = demos.episode_ends - demos.lengths
    chosen = [
        begin + (np.arange(length) if length <= most else np.sort(rng.choice(length, most, replace=False)))
        for begin, length in zip(begins, demos.lengths, strict=True)
    ]
    return np.concatenate(chosen)


def _mahalanobis(rows: Matrix) -> Matrix:
    """Return each row's distance from the mean, in the rows' own covariance with shrinkage."""
    x = standardise(rows)
    if not x.shape[1]:
        return np.zeros(len(rows))
    covariance = x.T @ x / len(x) + SHRINKAGE * np.eye(x.shape[1])
    return np.sqrt((x * np.linalg.solve(covariance, x.T).T).sum(1) / x.shape[1])


def _scale_robustly(values: Matrix) -> Matrix:
    """Return deviations from the median in units of the median absolute deviation, scaled as for a normal.

    The median is 0 if more than half of the values are alike; the mean absolute deviation then takes its place.
    """
    deviations = values - np.median(values)
    unit = 1.4826 * np.median(np.abs(deviations)) or 1.2533 * np.mean(np.abs(deviations))
    return deviations / unit if unit > 0 else np.zeros_like(deviations)
