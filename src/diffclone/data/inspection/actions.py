"""Checks of actions: clipped, out of bounds, shifted against the observations, or contradictory."""

import numpy as np

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.inspection.dimensions import find_copies
from diffclone.data.inspection.findings import (
    SEED,
    Finding,
    Flags,
    Matrix,
    Values,
    find_nearest,
    format_count,
    get_action_bounds,
    get_episodes,
    has_images,
    is_varying,
    list_indices,
    sample_rows,
    standardise,
)

AT_BOUND, CLIPPED = 0.2, 0.05
"""Shares of steps at a bound, and at an extreme value that is not a bound, from which actions are reported."""
LEVELS = 8
"""Largest number of distinct values of an action that is a switch."""
FAR = 5.0
"""Distance from the bounds, in widths of the bounds, above which actions must have another unit."""
UNUSED = 0.02
"""Share of the bounds' width; actions that use less probably have another unit."""
BETTER = 0.6
"""Another lag must have less than this share of the error at lag 0."""
EXPLAINED = 0.5
"""Largest share of variance that the best lag may leave unexplained; above it the regression is not reliable."""
RIDGE, RIDGE_NONLINEAR = 1e-10, 1e-3
"""Ridge penalties on the inputs and on the random features. The first is small because an action that is a target
differs little from the robot's position."""
PREDICTED, PREDICTED_BETTER = 0.02, 0.1
"""An action is a function of its own observation if that observation leaves less than this share of its variance
unexplained, and less than this share of what the observation before leaves unexplained."""
NEAR, SPREAD = 0.1, 0.3
"""Distance (standard deviations) below which states are the same; and the difference of actions there, relative to
random pairs of actions, above which they contradict each other."""


def find_constant_actions(demos: Demonstrations) -> list[Finding]:
    """Find dimensions of actions that never vary, or are copies of others."""
    constant = ~is_varying(demos.act)
    if constant.all():
        advice = "Check which array was used for the actions: the policy would always do the same."
        return [Finding("problem", "no action ever varies", advice, "act")]
    found: list[Finding] = []
    if constant.any():
        what = f"{format_count(constant.sum(), 'dimension')} without any variation: the policy always outputs one value"
        found.append(Finding("note", what, "Check that the expert does not use them.", "act", list_indices(constant)))
    if copies := find_copies(demos.act):
        what = f"{format_count(len(copies), 'dimension')} equal to others, scaled or shifted"
        found.append(Finding("note", what, "Check the order and the number of the columns.", "act", tuple(copies)))
    return found


def find_saturated_actions(demos: Demonstrations) -> list[Finding]:
    """Find actions that often have an extreme value: at the bounds, or where no bound is."""
    low, high = demos.act.min(0), demos.act.max(0)
    at_low, at_high = _share_equal(demos, low), _share_equal(demos, high)
    share = np.maximum(at_low, at_high)
    rows = demos.act[sample_rows(demos.num_steps)]
    levels = np.array([len(np.unique(column)) for column in rows.T])
    used = is_varying(demos.act)
    switch = used & (levels <= min(LEVELS, len(rows) // 10))
    least, most = get_action_bounds(demos)
    tolerance = np.where(np.isfinite(most - least), 1e-3 * (most - least), 0)
    # An extreme value that many actions have must be a bound.
    bounded = ((low <= least + tolerance) | (at_low < CLIPPED)) & ((high >= most - tolerance) | (at_high < CLIPPED))
    found: list[Finding] = []
    if switch.any():
        what = f"{format_count(switch.sum(), 'dimension')} with at most {levels[switch].max()} values, like a switch"
        advice = "Nothing needs to change. An uncertain policy outputs values in between: round them if necessary."
        found.append(Finding("note", what, advice, "act", list_indices(switch)))
    if (clipped := used & ~switch & ~bounded & (share >= CLIPPED)).any():
        what = f"up to {100 * share[clipped].max():.0f} % of the actions have the extreme value of their dimension"
        advice = "Check whether the recording clipped them. If it is the environment's bound, set action_bounds."
        found.append(Finding("warning", what, advice, "act", list_indices(clipped)))
    if (at_bound := used & ~switch & bounded & (share >= AT_BOUND)).any():
        what = f"up to {100 * share[at_bound].max():.0f} % of the actions are at a bound"
        advice = "Fine if the expert intended it. Otherwise record with wider bounds: the policy cannot exceed them."
        found.append(Finding("note", what, advice, "act", list_indices(at_bound)))
    return found


def find_actions_outside_bounds(demos: Demonstrations) -> list[Finding]:
    """Find actions outside the bounds, or that use only a small part of the range."""
    low, high = get_action_bounds(demos)
    known = np.isfinite(low) & np.isfinite(high) & (low < high)
    width = np.where(known, high - low, np.inf)
    beyond = np.where(known, np.maximum(low - demos.act.min(0), demos.act.max(0) - high), 0) / width
    range_used = np.where(known, (demos.act.max(0) - demos.act.min(0)) / width, 1)
    found: list[Finding] = []
    if (far := beyond > FAR).any():
        what = f"actions outside the bounds by up to {beyond.max():.3g} times the width of the bounds"
        advice = "Use the same unit for actions and action_bounds."
        found.append(Finding("problem", what, advice, "act", list_indices(far)))
    if (near := (beyond > 1e-3) & ~far).any():
        share = ((demos.act < low) | (demos.act > high))[:, near].any(1).mean()
        reach = f"by up to {beyond[near].max():.2g} times the width of the bounds"
        what = f"{100 * share:.1f} % of the steps have actions outside the bounds, {reach}"
        advice = "Fine if the environment clips actions. The policy may go as far as the expert did."
        found.append(Finding("note", what, advice, "act", list_indices(near)))
    if (unused := is_varying(demos.act) & (range_used < UNUSED)).any():
        what = f"actions use less than {100 * UNUSED:.0f} % of the width of the bounds"
        advice = "Check that actions and action_bounds have the same unit."
        found.append(Finding("warning", what, advice, "act", list_indices(unused)))
    return found


def find_misaligned_actions(demos: Demonstrations) -> list[Finding]:
    """Test whether the change to the next observation fits the action of another step better than its own.

    A ridge regression predicts obs[t+1] − obs[t] from obs[t] and act[t + lag] on held-out steps, for lags −1, 0, 1.
    """
    if has_images(demos) or not is_varying(demos.act).any() or not is_varying(demos.obs).any():
        return []
    starts = np.append(0, demos.episode_ends[:-1])
    steps = np.setdiff1d(np.arange(demos.num_steps), np.concatenate([starts, demos.episode_ends - 1]))
    if len(steps) < 200:
        return []
    steps = steps[sample_rows(len(steps), 8000)]
    # Whole episodes are held out if there are enough of them, because neighbouring steps are alike.
    even = get_episodes(demos, steps) % 2 == 0
    train = even if 0.25 < even.mean() < 0.75 else np.arange(len(steps)) < len(steps) // 2
    around = np.concatenate([steps - 1, steps, steps + 1])
    _, obs, following = np.split(standardise(demos.obs[around]), 3)
    act = dict(zip((-1, 0, 1), np.split(standardise(demos.act[around]), 3), strict=True))
    change = standardise(following - obs)
    if not change.shape[1]:
        return []
    error = {lag: _unexplained_variance(np.hstack([obs, act[lag]]), change, train) for lag in act}
    best = min((1, -1), key=lambda lag: error[lag])
    if error[best] > min(EXPLAINED, BETTER * error[0]):
        return []
    # If actions are functions of their own observation but not of the one before, the next action contains the next
    # observation and so the noise in it. The change then fits the next action better although nothing is shifted.
    own, before = (_unexplained_variance(obs, act[lag], train) for lag in (0, 1))
    if best == 1 and own < PREDICTED and own < PREDICTED_BETTER * before:
        return []
    unexplained = f"{100 * error[best]:.2g} % of the variance unexplained instead of {100 * error[0]:.2g} %"
    row = "after" if best == 1 else "before"
    what = f"changes of the observation fit the action one row {row} better than their own ({unexplained})"
    if best == 1:
        advice = (
            "Row t must hold an observation and the action that follows it. Actions seem one row late: shift them up."
        )
    else:
        advice = "Actions seem one row early: shift them down. Leave them if your robot reacts one step late."
    return [Finding("warning", what, advice)]


def find_contradictory_actions(demos: Demonstrations) -> list[Finding]:
    """Find different actions in states that are nearly the same: behavioural cloning averages them."""
    if (
        has_images(demos)
        or demos.num_episodes < 2
        or not is_varying(demos.act).any()
        or not is_varying(demos.obs).any()
    ):
        return []
    steps = sample_rows(demos.num_steps, 6000)
    obs, act, episodes = standardise(demos.obs[steps]), standardise(demos.act[steps]), get_episodes(demos, steps)
    if len(np.unique(episodes)) < 2 or not act.shape[1]:
        return []
    distance, other = find_nearest(obs, obs, episodes, episodes)
    near = distance < NEAR
    if near.sum() < 50:
        return []
    # The mean square difference of two random standardised actions is 2.
    spread = float(np.square(act[near] - act[other[near]]).mean() / 2)
    if spread < SPREAD:
        return []
    much = f"{100 * spread:.0f} % as much as" if spread < 1 else "as much as"
    what = f"in nearly the same state, actions of different episodes differ {much} random actions"
    advice = "BC averages them. Record what the expert's decision depends on, or train dbc or diffusion-policy."
    return [Finding("warning" if spread > 2 * SPREAD else "note", what, advice, "act")]


def _share_equal(demos: Demonstrations, value: Values) -> Matrix:
    """Return the share of actions that are equal to `value`, for each dimension."""
    width = demos.act.max(0) - demos.act.min(0)
    return (np.abs(demos.act - value) <= 1e-6 * np.maximum(width, np.abs(value))).mean(0)


def _unexplained_variance(inputs: Matrix, targets: Matrix, train: Flags) -> float:
    """Return the share of held-out variance that a ridge regression on inputs and random ReLU features leaves."""
    rng = np.random.default_rng(SEED)
    weights = rng.standard_normal((inputs.shape[1], 128)) / np.sqrt(inputs.shape[1])
    features = np.maximum(inputs @ weights + rng.standard_normal(128), 0)
    x = np.hstack([inputs, features, np.ones((len(inputs), 1))])
    fitted = x[train]
    penalty = np.where(np.arange(x.shape[1]) < inputs.shape[1], RIDGE, RIDGE_NONLINEAR)
    gram = fitted.T @ fitted + len(fitted) * np.diag(penalty)
    residual = targets[~train] - x[~train] @ np.linalg.solve(gram, fitted.T @ targets[train])
    return float(np.square(residual).mean() / max(1e-12, np.square(targets[~train] - targets[train].mean(0)).mean()))
