"""Checks of single dimensions: constant, copied, equal to the action, or in another unit."""

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.inspection.findings import (
    Finding,
    Flags,
    Matrix,
    Part,
    Values,
    format_count,
    get_episodes,
    has_images,
    is_varying,
    list_indices,
    sample_rows,
)
from diffclone.data.robust import find_floor

SAME = 1 - 1e-6
"""Correlation above which two dimensions are the same."""
ODD_RATIO, WRONG_RATIO = 1e4, 1e6
"""Ratios of standard deviations above which units are reported as a note, and as a warning."""


def find_constant_observations(demos: Demonstrations) -> list[Finding]:
    """Find dimensions of observations that never vary."""
    constant = ~is_varying(demos.obs)
    if constant.all():
        advice = "Record what the expert observes: from these observations only one average action can be learned."
        return [Finding("problem", "no observation ever varies", advice, "obs")]
    if has_images(demos) or not constant.any():
        return []
    what = f"{format_count(constant.sum(), 'dimension')} without any variation"
    advice = "Harmless if the value is the same in deployment. Leave out dimensions that may vary there."
    return [Finding("note", what, advice, "obs", list_indices(constant))]


def find_hardly_varying_observations(demos: Demonstrations) -> list[Finding]:
    """Find dimensions of observations that hardly vary relative to the others."""
    if has_images(demos):
        return []
    std = np.where(is_varying(demos.obs), demos.obs[sample_rows(demos.num_steps)].std(0, dtype=np.float64), 0.0)
    floor = find_floor(std)
    small = (std > 0) & (std < floor)
    if not small.any():
        return []
    verb = "varies" if small.sum() == 1 else "vary"
    what = f"{format_count(small.sum(), 'dimension')} that hardly {verb}: standard deviation below {floor:.2g}"
    advice = (
        f"z-scores turn a small deviation there into a large number; the default, robust, divides by {floor:.2g} "
        "instead. Leave them out if they carry no information, or scale them up if they do."
    )
    return [Finding("note", what, advice, "obs", list_indices(small))]


def find_blank_images(demos: Demonstrations) -> list[Finding]:
    """Find images in which all pixels are equal, as from a camera that is off."""
    if not has_images(demos):
        return []
    blank = demos.obs.min(1) == demos.obs.max(1)
    if not blank.any():
        return []
    what = f"{format_count(blank.sum(), 'image')} with all pixels equal"
    episodes = np.unique(get_episodes(demos, np.flatnonzero(blank)))
    return [Finding("warning", what, "Remove those steps.", "episode", tuple(episodes.tolist()))]


def find_duplicated_observations(demos: Demonstrations) -> list[Finding]:
    """Find dimensions of observations that are copies of others, perhaps scaled or shifted."""
    if has_images(demos):
        return []
    copies = find_copies(demos.obs)
    if not copies:
        return []
    pairs = ", ".join(f"{copy} = {original}" for copy, original in list(copies.items())[:4])
    what = f"dimensions are copies of others, scaled or shifted: {pairs}{' …' if len(copies) > 4 else ''}"
    advice = "Leave one of each pair out: a guide counts the same information twice."
    return [Finding("warning", what, advice, "obs", tuple(copies))]


def find_leaked_actions(demos: Demonstrations) -> list[Finding]:
    """Find observations that contain the action to be learned, or the one before it."""
    if has_images(demos):
        return []
    found: list[Finding] = []
    steps = sample_rows(demos.num_steps)
    leaks = np.asarray((correlate(demos.obs[steps], demos.act[steps]) > SAME).any(1))
    if leaks.any():
        what = f"{format_count(leaks.sum(), 'observation dimension')} equal to the action of the same step"
        advice = (
            "Leave them out: they are not known before the policy acts. "
            "If they are the current target, the action that set it belongs to the row before."
        )
        found.append(Finding("problem", what, advice, "obs", list_indices(leaks)))
    inner = np.setdiff1d(steps, np.append(0, demos.episode_ends[:-1]))
    if len(inner) > 2:
        last = np.asarray((correlate(demos.obs[inner], demos.act[inner - 1]) > SAME).any(1)) & ~leaks
        if last.any():
            what = f"{format_count(last.sum(), 'observation dimension')} equal to the action of the step before"
            advice = (
                "Fine if actions are targets that are reached in one step. "
                "Otherwise leave them out: policies learn to repeat the last action."
            )
            found.append(Finding("note", what, advice, "obs", list_indices(last)))
    return found


def find_different_scales(demos: Demonstrations) -> list[Finding]:
    """Find dimensions whose standard deviation is far from that of the others."""
    found: list[Finding] = []
    both: tuple[tuple[Part, Values], ...] = (("obs", demos.obs), ("act", demos.act))
    for part, values in both:
        if values.dtype == np.uint8:
            continue
        std = values[sample_rows(len(values))].std(0, dtype=np.float64)
        used = is_varying(values) & (std > 0)
        if not used.any() or std[used].max() < ODD_RATIO * std[used].min():
            continue
        # Half of the ratio (in decades) or more away from the median; this is true at one end at least.
        decades = np.abs(np.log10(np.where(used, std, 1) / float(np.median(std[used]))))
        odd = used & (decades >= np.log10(ODD_RATIO) / 2)
        what = f"standard deviations range from {std[used].min():.1e} to {std[used].max():.1e}"
        advice = "Check the units, and look for counters, times, or noise around a constant. Training rescales them."
        severity = "note" if std[used].max() < WRONG_RATIO * std[used].min() else "warning"
        found.append(Finding(severity, what, advice, part, list_indices(odd)))
    return found


def find_degrees(demos: Demonstrations) -> list[Finding]:
    """Find dimensions that look like degrees next to others that look like radians."""
    if has_images(demos):
        return []
    largest = np.abs(demos.obs).max(0)
    degrees = (largest > 60) & (largest <= 361) & ~_is_integer(demos)
    radians = (largest > 0.5) & (largest <= np.pi + 0.01) & is_varying(demos.obs)
    if not degrees.any() or not radians.any():
        return []
    what = f"{format_count(degrees.sum(), 'dimension')} as large as degrees, while others stay within ±π"
    advice = "If these are angles, use radians everywhere, or better sine and cosine."
    return [Finding("note", what, advice, "obs", list_indices(degrees))]


def find_wrapping_angles(demos: Demonstrations) -> list[Finding]:
    """Find angles that jump by a full turn between two steps."""
    if has_images(demos) or demos.num_steps < 2:
        return []
    inner = np.setdiff1d(sample_rows(demos.num_steps - 1, 200_000), demos.episode_ends - 1)
    if not len(inner):
        return []
    change = np.abs(demos.obs[inner + 1] - demos.obs[inner])
    common = np.quantile(change, 0.9, axis=0)
    width = demos.obs.max(0) - demos.obs.min(0)
    wraps = np.zeros(len(width), bool)
    for turn in (2 * np.pi, 360.0):
        # The range is one turn; most steps are short, and some are nearly as long as the range.
        jumps = ((change > 0.9 * turn) & (change < 1.01 * turn)).any(0)
        wraps |= jumps & (np.abs(width / turn - 1) < 0.02) & (common < 0.2 * turn)
    if not wraps.any():
        return []
    what = f"{format_count(wraps.sum(), 'angle')} with jumps of a full turn from one step to the next"
    advice = "Use sine and cosine instead: to a network, both ends of the jump are far apart."
    return [Finding("warning", what, advice, "obs", list_indices(wraps))]


def correlate(left: Values, right: Values) -> Matrix:
    """Return absolute correlations (left columns, right columns), with 0 where a column does not vary."""
    scores: list[Matrix] = []
    for values in (left, right):
        x = values.astype(np.float64)
        x -= x.mean(0)
        length = np.linalg.norm(x, axis=0)
        moves = is_varying(values) & (length > 0)
        scores.append(np.where(moves, x / np.where(moves, length, 1), 0))
    return np.abs(scores[0].T @ scores[1])


def find_copies(values: Values) -> dict[int, int]:
    """Return each column that is a copy of an earlier one, perhaps scaled or shifted, with the first such column."""
    rows = values[sample_rows(len(values))]
    copies, originals = np.nonzero(np.tril(correlate(rows, rows) > SAME, -1))
    # Reversed, so that the first of several originals stays.
    return dict(sorted(dict(zip(copies[::-1].tolist(), originals[::-1].tolist(), strict=True)).items()))


def _is_integer(demos: Demonstrations) -> Flags:
    rows = demos.obs[sample_rows(demos.num_steps)]
    return (rows == np.round(rows)).all(0)
