"""What a page shows of demonstrations: a map of their states, and unusual episodes beside all others.

map        PCA of the standardised observations (of random projections of images), or UMAP where it is installed
profiles   one dimension over the share of the episode, from 0 to 1: 5 %, median and 95 % over the other episodes
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, final

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.inspection.findings import SEED, Indices, Matrix, compute_features, has_images

PROFILE_POINTS = 50
"""Points along an episode."""
PROFILE_EPISODES = 400
"""Episodes that stand for the others."""
MOST_PROFILES = 6
"""Dimensions in which an unusual episode differs most from the others."""


@final
@dataclass(frozen=True)
class Profile:
    """One dimension of unusual episodes beside the others."""

    name: str
    low: Matrix
    median: Matrix
    high: Matrix
    lines: dict[int, Matrix]
    """By the number of the episode."""


def map_states(demos: Demonstrations, steps: Indices) -> tuple[Matrix, str]:
    """Return the places (steps, 2) of states on a map, and how it was made."""
    features = compute_features(demos, steps)
    if features.shape[1] > 2 and find_spec("umap") is not None:
        umap: Any = importlib.import_module("umap")
        return np.asarray(umap.UMAP(random_state=SEED).fit_transform(features), dtype=np.float64), "UMAP"
    if not features.shape[1]:
        return np.zeros((len(steps), 2)), "no dimension varies"
    features = features - features.mean(0)
    variance, axes = np.linalg.eigh(features.T @ features)
    axes = axes[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])  # eigenvectors have no sign
    share = 100 * variance[::-1][:2].sum() / max(1e-12, variance.sum())
    places = features @ axes
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1]))), f"PCA, {share:.0f} % of the variance"


def compare_profiles(demos: Demonstrations, unusual: Sequence[int]) -> list[Profile]:
    """Return the dimensions in which unusual episodes differ most from the others; none if there are no others."""
    others = [e for e in range(demos.num_episodes) if e not in unusual]
    if not others or not unusual:
        return []
    if len(others) > PROFILE_EPISODES:
        others = np.random.default_rng(SEED).choice(others, PROFILE_EPISODES, replace=False).tolist()
    rest, own = _along(demos, others), _along(demos, unusual)
    low, median, high = np.quantile(rest, (0.05, 0.5, 0.95), axis=0)
    spread = (high - low).mean(0)
    apart = np.abs(own[0] - median).mean(0) / np.where(spread > 0, spread, np.inf)
    names = [*_names(demos)]
    return [
        Profile(names[k], low[:, k], median[:, k], high[:, k], dict(zip(unusual, own[:, :, k], strict=True)))
        for k in np.argsort(-apart, kind="stable")[:MOST_PROFILES]
        if spread[k] > 0
    ]


def _names(demos: Demonstrations) -> list[str]:
    obs = ["mean brightness"] if has_images(demos) else [f"obs {k}" for k in range(demos.obs.shape[1])]
    return [*obs, *(f"act {k}" for k in range(demos.act.shape[1]))]


def _along(demos: Demonstrations, episodes: Sequence[int]) -> Matrix:
    """Return observations and actions (episodes, points, dimensions) at evenly spaced steps."""
    begins, lengths = demos.episode_ends - demos.lengths, demos.lengths
    share = np.linspace(0, 1, PROFILE_POINTS)
    steps = np.stack([begins[e] + np.round(share * (lengths[e] - 1)).astype(np.int64) for e in episodes])
    if has_images(demos):  # one episode at a time: all images of many episodes would fill the memory
        obs = np.stack([demos.obs[own].mean(-1, keepdims=True) for own in steps])
    else:
        obs = demos.obs[steps].astype(np.float64)
    return np.concatenate([obs, demos.act[steps].astype(np.float64)], -1)
