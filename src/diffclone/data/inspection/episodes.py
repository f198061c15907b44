"""Checks of whole episodes: too few, too short, copied, without movement, or with an unmarked end inside."""

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.inspection.findings import (
    Finding,
    Flags,
    Indices,
    Matrix,
    distance_scale,
    format_count,
    get_episodes,
    has_images,
    is_varying,
    list_indices,
    measure_movement,
    sample_rows,
)
from diffclone.data.inspection.ranking import compute_outlines

FEW_STEPS_PER_DIMENSION, FEW_EPISODES, FEW_STEPS = 20, 5, 500
"""Less than this is too little data: steps per dimension of the observations, episodes, and steps."""
SHORT = 0.1
"""Share of the median length below which an episode is tiny."""
NEARLY_EQUAL = 1e-3
"""Distance in standard deviations below which two episodes are nearly copies."""
STILL, MIN_STRETCH = 1e-3, 5
"""A step is still if it moves less than this share of the median movement; steps that make up a stretch."""
STEADY = 0.1
"""Standard deviations by which the actions of a stretch may differ if the expert holds the state."""
MUCH_REST = 0.2
"""Share of the steps at rest from which they are mentioned."""
JUMP, FAST, FAR = 8.0, 2.0, 0.3
"""A step is a jump if it moves more than JUMP times the median, FAST times the 95th percentile, and FAR standard
deviations. (Two random states are about 1.4 standard deviations apart.)"""


def find_too_little_data(demos: Demonstrations) -> list[Finding]:
    """Compare the numbers of steps and episodes with the size of the observations."""
    found: list[Finding] = []
    size = demos.obs.shape[1]
    if not has_images(demos) and demos.num_steps < FEW_STEPS_PER_DIMENSION * size:
        severity = "problem" if demos.num_steps < 2 * size else "warning"
        what = f"only {format_count(demos.num_steps, 'step')} for {format_count(size, 'observation dimension')}"
        found.append(Finding(severity, what, "Record more, or leave out dimensions that do not matter.", "obs"))
    elif demos.num_steps < FEW_STEPS:
        found.append(Finding("warning", f"only {format_count(demos.num_steps, 'step')} in total", "Record more."))
    if demos.num_episodes < FEW_EPISODES:
        what = f"only {format_count(demos.num_episodes, 'episode')}"
        advice = (
            "Record more initial states. If there were more episodes, their ends were lost: give episode_ends or done."
        )
        found.append(Finding("warning", what, advice, "episode"))
    return found


def find_tiny_episodes(demos: Demonstrations) -> list[Finding]:
    """Find episodes that are far shorter than the median, or have one step."""
    median = float(np.median(demos.lengths))
    if median < 2:
        advice = "Give the steps at which episodes end. A flag that is set at every step is not that."
        return [Finding("problem", "most episodes have a single step", advice, "episode")]
    tiny = demos.lengths < max(2.0, SHORT * median)
    if not tiny.any():
        return []
    what = f"{format_count(tiny.sum(), 'episode')} shorter than a tenth of the median length ({median:.0f} steps)"
    return [Finding("warning", what, "Look at them, and leave out broken recordings.", "episode", list_indices(tiny))]


def find_duplicate_episodes(demos: Demonstrations) -> list[Finding]:
    """Find episodes that are exact or near copies of others."""
    exact = np.ones(demos.num_episodes, dtype=bool)
    exact[np.unique(demos.episode_fingerprints, return_index=True)[1]] = False
    near = np.zeros_like(exact)
    distinct = np.flatnonzero(~exact)
    chosen = distinct[sample_rows(len(distinct), 4000)]
    if len(chosen) > 1:
        outlines = compute_outlines(demos, chosen)
        length = np.square(outlines).sum(1)
        gap = np.sqrt((length[:, None] + length - 2 * outlines @ outlines.T).clip(0) / outlines.shape[1])
        near[chosen] = np.tril(gap < NEARLY_EQUAL, -1).any(1)
    copies = exact | near
    if not copies.any():
        return []
    what = f"{exact.sum()} exact and {near.sum()} near copies of other episodes"
    advice = "Leave them out: they add nothing, and a copy in the held-out part makes validation look too good."
    return [Finding("problem" if copies.mean() >= 0.5 else "warning", what, advice, "episode", list_indices(copies))]


def find_frozen_stretches(demos: Demonstrations) -> list[Finding]:
    """Find stretches in which nothing moves because the expert waits or the recording hangs.

    Stretches in which the expert holds a state, as a balancing expert does, are no problem (`is_held`).
    """
    if demos.num_steps < 2:
        return []
    moved = measure_movement(demos)
    inside = ~np.isnan(moved)
    median = float(np.median(moved[inside & (moved > 0)])) if (inside & (moved > 0)).any() else 0.0
    still = inside & (np.nan_to_num(moved, nan=np.inf) <= STILL * median)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], still, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    long = ends - begins >= MIN_STRETCH
    begins, ends = begins[long], ends[long]
    held = is_held(demos, begins, ends, moved, median)
    found: list[Finding] = []
    if share := float((ends - begins)[~held].sum()) / demos.num_steps:
        what = f"nothing moves during {format_count((~held).sum(), 'period')}, {100 * share:.1f} % of the steps"
        advice = "Remove these steps: where the expert waits, the policy learns to wait forever."
        severity = "problem" if share > 0.5 else "warning" if share > 0.05 else "note"
        found.append(Finding(severity, what, advice, "episode", _episodes_of(demos, begins[~held])))
    if (share := float((ends - begins)[held].sum()) / demos.num_steps) > MUCH_REST:
        what = f"the expert holds a state without moving, {100 * share:.1f} % of the steps"
        advice = "Fine if the task is to hold it, as in balancing. If the recording only ran on, end it earlier."
        found.append(Finding("note", what, advice, "episode", _episodes_of(demos, begins[held])))
    return found


def is_held(demos: Demonstrations, begins: Indices, ends: Indices, moved: Matrix, median: float) -> Flags:
    """Return in which stretches a policy that repeats the expert's action does what the expert does.

    In a stretch the state is the same at all steps, the last one included. A policy learns one action there. That is
    right if the expert's action is the same at all of them, and the state then

        stays within a median movement until the episode ends (balancing, holding a grasp), or
        jumps with that same action (a push, a new goal).

    If the actions differ, or slowly lead away, the expert decided to move on, and nothing in the state tells when.
    """
    scale, std = distance_scale(demos), demos.act.std(0, dtype=np.float64)
    varying = is_varying(demos.act)
    held = np.zeros(len(begins), dtype=np.bool_)
    last = demos.episode_ends[get_episodes(demos, begins)]
    for k, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        act = demos.act[begin : end + 1, varying]
        if act.size and (np.ptp(act, axis=0) > STEADY * std[varying]).any():
            continue
        rest = demos.obs[end : last[k]].astype(np.float32)
        stays = bool((np.linalg.norm((rest - rest[0]) * scale, axis=1) <= median).all())
        held[k] = stays or moved[end] >= median
    return held


def _episodes_of(demos: Demonstrations, steps: Indices) -> tuple[int, ...]:
    return tuple(np.unique(get_episodes(demos, steps)).tolist())


def find_jumps(demos: Demonstrations) -> list[Finding]:
    """Find steps inside an episode that move very far, as at an end that was not marked."""
    if demos.num_steps < 20:
        return []
    moved = measure_movement(demos)
    inside = np.flatnonzero(~np.isnan(moved))
    if not len(inside):
        return []
    median = float(np.median(moved[inside]))
    limit = max(JUMP * median, FAST * float(np.quantile(moved[inside], 0.95)), 0 if has_images(demos) else FAR)
    jumps = np.flatnonzero(np.nan_to_num(moved, nan=0.0) > limit)
    if len(jumps) and not has_images(demos):
        # An impact changes some dimensions a lot; a new episode changes most of them more than usual.
        some = inside[sample_rows(len(inside))]
        common = np.quantile(np.abs(demos.obs[some + 1] - demos.obs[some]), 0.9, axis=0)
        large = np.abs(demos.obs[jumps + 1] - demos.obs[jumps]) > FAST * common
        jumps = jumps[large[:, is_varying(demos.obs)].mean(1) >= 0.5]
    if not len(jumps):
        return []
    size = f"up to {moved[jumps].max():.2g}, the median is {median:.2g}"
    what = f"{format_count(len(jumps), 'step')} with a much larger change than usual ({size})"
    advice = "Check whether an episode ends there unmarked, or steps are missing; then split the episode there."
    return [Finding("warning", what, advice, "episode", tuple(np.unique(get_episodes(demos, jumps)).tolist()))]
