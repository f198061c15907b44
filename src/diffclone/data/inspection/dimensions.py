"""Checks of single dimensions: those that say nothing, say the same, say too much, or have another unit."""

import numpy as np

from diffclone.data import Demonstrations
from diffclone.data.inspection.findings import Finding, Flags, Matrix, Part, Values, pictures, places, some_rows, varies

SAME = 1 - 1e-6
"""Correlation from which two dimensions are one."""
SCALES, WRONG = 1e4, 1e6
"""Ratios of standard deviations from which units look odd, and wrong."""


def constant_observations(demos: Demonstrations) -> list[Finding]:
    """Dimensions of observations that never vary."""
    fixed = ~varies(demos.obs)
    if fixed.all():
        advice = "Record what the expert sees; from these nothing but one average action can be learned."
        return [Finding("problem", "constant_observations", "no observation ever varies", advice, "obs")]
    if pictures(demos) or not fixed.any():
        return []
    advice = "Harmless here; in the world they must keep the same value. Leave them out if they may vary there."
    return [Finding("note", "constant_observations", "dimensions never vary", advice, "obs", places(fixed))]


def blank_pictures(demos: Demonstrations) -> list[Finding]:
    """Pictures of one grey: a camera that was off."""
    if not pictures(demos):
        return []
    blank = demos.obs.min(1) == demos.obs.max(1)
    if not blank.any():
        return []
    what = f"{blank.sum()} pictures are of one grey"
    episodes = np.unique(np.searchsorted(demos.episode_ends, np.flatnonzero(blank), side="right"))
    return [Finding("warning", "blank_pictures", what, "Cut those steps.", "episode", tuple(episodes.tolist()))]


def duplicated_observations(demos: Demonstrations) -> list[Finding]:
    """Dimensions of observations that repeat another, be it scaled or shifted."""
    if pictures(demos):
        return []
    chosen = demos.obs[some_rows(demos.num_steps)]
    repeats = _repeats(correlation(chosen, chosen))
    if not repeats:
        return []
    pairs = ", ".join(f"{first} = {second}" for first, second in list(repeats.items())[:4])
    what = f"dimensions repeat others, scaled or shifted: {pairs}{' …' if len(repeats) > 4 else ''}"
    advice = "Leave one of each pair out: a guide counts what is said twice twice."
    return [Finding("warning", "duplicated_observations", what, advice, "obs", tuple(repeats))]


def leaked_actions(demos: Demonstrations) -> list[Finding]:
    """Observations that hold the action to be learned, or the one before it."""
    if pictures(demos):
        return []
    found: list[Finding] = []
    steps = some_rows(demos.num_steps)
    leaks = np.asarray((correlation(demos.obs[steps], demos.act[steps]) > SAME).any(1))
    if leaks.any():
        what = "observations hold the very action of their step"
        advice = "Leave these out: they are not known before the policy acts. A target belongs to the row before it."
        found.append(Finding("problem", "leaked_actions", what, advice, "obs", places(leaks)))
    inner = np.setdiff1d(steps, np.append(0, demos.episode_ends[:-1]))
    if len(inner) > 2:
        last = np.asarray((correlation(demos.obs[inner], demos.act[inner - 1]) > SAME).any(1)) & ~leaks
        if last.any():
            what = "observations hold the action of the step before"
            advice = "Fine if actions are targets that are met in one step. Else leave these out: policies repeat them."
            found.append(Finding("note", "leaked_actions", what, advice, "obs", places(last)))
    return found


def different_scales(demos: Demonstrations) -> list[Finding]:
    """Dimensions whose spread is far from that of the others."""
    found: list[Finding] = []
    both: tuple[tuple[Part, Values], ...] = (("obs", demos.obs), ("act", demos.act))
    for part, values in both:
        if values.dtype == np.uint8:
            continue
        std = values[some_rows(len(values))].std(0, dtype=np.float64)
        spread = np.where(varies(values), std, 0)
        if not (spread > 0).any():
            continue
        middle = float(np.median(spread[spread > 0]))
        if spread.max() < SCALES * spread[spread > 0].min():
            continue
        # Away from the middle by half of the ratio (in decades) or more: on one side there is always one.
        odd = (spread > 0) & (np.abs(np.log10(np.where(spread > 0, spread, 1) / middle)) >= np.log10(SCALES) / 2)
        what = f"standard deviations run from {spread[spread > 0].min():.1e} to {spread.max():.1e}"
        advice = "Check the units, and for counters, times or noise around a constant; training does the scaling."
        severity = "note" if spread.max() < WRONG * spread[spread > 0].min() else "warning"
        found.append(Finding(severity, "different_scales", what, advice, part, places(odd)))
    return found


def degrees(demos: Demonstrations) -> list[Finding]:
    """Dimensions that look like degrees beside others that look like radians."""
    if pictures(demos):
        return []
    farthest = np.abs(demos.obs).max(0)
    large = (farthest > 60) & (farthest <= 361) & ~_whole(demos)
    radians = (farthest > 0.5) & (farthest <= np.pi + 0.01) & varies(demos.obs)
    if not large.any() or not radians.any():
        return []
    what = "values reach as far as degrees do, beside others that stay within ±π"
    advice = "If these are angles, give all in radians, or better as sine and cosine."
    return [Finding("note", "degrees", what, advice, "obs", places(large))]


def wrapping_angles(demos: Demonstrations) -> list[Finding]:
    """Angles that leap by a full turn between two steps."""
    if pictures(demos) or demos.num_steps < 2:
        return []
    inner = np.setdiff1d(some_rows(demos.num_steps - 1, 200_000), demos.episode_ends - 1)
    if not len(inner):
        return []
    change = np.abs(demos.obs[inner + 1] - demos.obs[inner])
    usual = np.quantile(change, 0.9, axis=0)
    width = demos.obs.max(0) - demos.obs.min(0)
    wraps = np.zeros(len(width), bool)
    for turn in (2 * np.pi, 360.0):
        # A range of one turn, hardly ever a long way in one step, and then nearly the whole range.
        leaps = ((change > 0.9 * turn) & (change < 1.01 * turn)).any(0)
        wraps |= leaps & (np.abs(width / turn - 1) < 0.02) & (usual < 0.2 * turn)
    if not wraps.any():
        return []
    what = "angles leap by a full turn from one step to the next"
    advice = "Give sine and cosine instead: to a network both ends of the leap are far apart."
    return [Finding("warning", "wrapping_angles", what, advice, "obs", places(wraps))]


def correlation(left: Values, right: Values) -> Matrix:
    """(left columns, right columns): absolute correlations; 0 where a column does not vary."""
    scores: list[Matrix] = []
    for values in (left, right):
        x = values.astype(np.float64)
        x -= x.mean(0)
        length = np.linalg.norm(x, axis=0)
        moves = varies(values) & (length > 0)
        scores.append(np.where(moves, x / np.where(moves, length, 1), 0))
    return np.abs(scores[0].T @ scores[1])


def _repeats(correlated: Matrix) -> dict[int, int]:
    later, first = np.nonzero(np.tril(correlated > SAME, -1))
    known: dict[int, int] = {}
    for one, other in zip(later.tolist(), first.tolist(), strict=True):
        known.setdefault(one, other)
    return known


def _whole(demos: Demonstrations) -> Flags:
    chosen = demos.obs[some_rows(demos.num_steps)]
    return (chosen == np.round(chosen)).all(0)
