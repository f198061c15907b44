"""Checks of episodes: too few, too short, told twice, standing still, or two in one."""

import hashlib

import numpy as np

from diffclone.data import Demonstrations
from diffclone.data.inspection.findings import Finding, episode_of, movement, pictures, places, some_rows, varies
from diffclone.data.inspection.ranking import outlines

FEW_PAIRS, FEW_EPISODES, FEW_STEPS = 20, 5, 500
"""Pairs for each dimension of the observations, episodes, and steps, below which there is too little."""
SHORT = 0.1
"""Of the usual length, below which an episode is tiny."""
NEARLY = 1e-3
"""Standard deviations between two episodes that are nearly one."""
STILL, STRETCH = 1e-3, 5
"""Of the usual movement, below which a step stands still; and steps that make a stretch."""
LEAP, FAST, ELSEWHERE = 8.0, 2.0, 0.3
"""A step leads elsewhere if it is this many times the usual one, this many times a fast one (the 95th percentile), and
this far in standard deviations: two states at random are some 1.4 apart."""


def too_little_data(demos: Demonstrations) -> list[Finding]:
    """Pairs and episodes, against the size of the observations."""
    found: list[Finding] = []
    varied = f"{demos.num_steps} pairs for {demos.obs.shape[1]} dimensions"
    more = "Record more, or leave dimensions out that do not matter."
    if not pictures(demos) and demos.num_steps < FEW_PAIRS * demos.obs.shape[1]:
        fewer = demos.num_steps < 2 * demos.obs.shape[1]
        found.append(Finding("problem" if fewer else "warning", "too_little_data", varied, more, "obs"))
    elif demos.num_steps < FEW_STEPS:
        found.append(Finding("warning", "too_little_data", f"{demos.num_steps} pairs in all", "Record more."))
    if demos.num_episodes < FEW_EPISODES:
        what = f"{demos.num_episodes} episode{'s' * (demos.num_episodes > 1)}"
        advice = "Record more starts; if there were more, the ends of episodes were lost: give episode_ends or done."
        found.append(Finding("warning", "too_little_data", what, advice, "episode"))
    return found


def tiny_episodes(demos: Demonstrations) -> list[Finding]:
    """Episodes far shorter than usual, or of one step."""
    usual = float(np.median(demos.lengths))
    if usual < 2:
        what = "most episodes have a single step"
        advice = "Give the steps at which episodes end; a flag at every step is not that."
        return [Finding("problem", "tiny_episodes", what, advice, "episode")]
    tiny = demos.lengths < max(2.0, SHORT * usual)
    if not tiny.any():
        return []
    what = f"episodes have less than a tenth of the usual {usual:.0f} steps"
    advice = "Look at them: broken recordings are best left out."
    return [Finding("warning", "tiny_episodes", what, advice, "episode", places(tiny))]


def duplicate_episodes(demos: Demonstrations) -> list[Finding]:
    """Episodes that are another once more, or nearly."""
    first: dict[bytes, int] = {}
    exact = np.zeros(demos.num_episodes, bool)
    for k, (obs, act) in enumerate(demos.episodes()):
        key = hashlib.sha256(obs.tobytes() + act.tobytes()).digest()
        exact[k] = first.setdefault(key, k) != k
    nearly = np.zeros_like(exact)
    known = np.flatnonzero(~exact)
    chosen = known[some_rows(len(known), 4000)]
    if len(chosen) > 1:
        shape = outlines(demos, chosen)
        length = np.square(shape).sum(1)
        gap = np.sqrt((length[:, None] + length - 2 * shape @ shape.T).clip(0) / shape.shape[1])
        nearly[chosen] = np.tril(gap < NEARLY, -1).any(1)
    if not (exact | nearly).any():
        return []
    half = (exact | nearly).mean() >= 0.5
    what = f"{exact.sum()} episodes repeat another exactly, {nearly.sum()} nearly"
    advice = "Leave them out: they add nothing, and a held-out copy makes validation look better than it is."
    severity = "problem" if half else "warning"
    return [Finding(severity, "duplicate_episodes", what, advice, "episode", places(exact | nearly))]


def frozen_stretches(demos: Demonstrations) -> list[Finding]:
    """Stretches in which nothing moves: the expert waits, or the recording hangs."""
    if demos.num_steps < 2:
        return []
    moved = movement(demos)
    inner = ~np.isnan(moved)
    usual = float(np.median(moved[inner & (moved > 0)])) if (inner & (moved > 0)).any() else 0.0
    still = inner & (np.nan_to_num(moved, nan=np.inf) <= STILL * usual)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], still, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    long = ends - begins >= STRETCH
    frozen = int((ends - begins)[long].sum())
    if not frozen:
        return []
    share = frozen / demos.num_steps
    what = f"nothing moves in {len(begins[long])} stretches, {100 * share:.1f} % of the steps"
    advice = "Cut them off: from a state in which the expert waits, the policy learns to wait for ever."
    severity = "problem" if share > 0.5 else "warning" if share > 0.05 else "note"
    episodes = np.unique(episode_of(demos, begins[long]))
    return [Finding(severity, "frozen_stretches", what, advice, "episode", tuple(episodes.tolist()))]


def jumps(demos: Demonstrations) -> list[Finding]:
    """Steps inside an episode that lead far away at once: an end that was not marked."""
    if demos.num_steps < 20:
        return []
    moved = movement(demos)
    inner = np.flatnonzero(~np.isnan(moved))
    if not len(inner):
        return []
    usual = float(np.median(moved[inner]))
    limit = max(LEAP * usual, FAST * float(np.quantile(moved[inner], 0.95)), 0 if pictures(demos) else ELSEWHERE)
    leaps = np.flatnonzero(np.nan_to_num(moved, nan=0.0) > limit)
    if len(leaps) and not pictures(demos):
        # An impact moves some dimensions a long way; a new episode moves most of them far more than is common.
        some = inner[some_rows(len(inner))]
        common = np.quantile(np.abs(demos.obs[some + 1] - demos.obs[some]), 0.9, axis=0)
        moves = varies(demos.obs)
        most = (np.abs(demos.obs[leaps + 1] - demos.obs[leaps]) > FAST * common)[:, moves].mean(1) >= 0.5
        leaps = leaps[most]
    if not len(leaps):
        return []
    what = f"{len(leaps)} steps lead far away at once, one by {moved[leaps].max():.2g} where {usual:.2g} is usual"
    advice = "Look whether an episode ends there unmarked, or steps were lost; split the episode there."
    episodes = np.unique(episode_of(demos, leaps))
    return [Finding("warning", "jumps", what, advice, "episode", tuple(episodes.tolist()))]
