"""Checks of actions: cut off, out of bounds, out of step with the observations, or in contradiction."""

import numpy as np

from diffclone.data import Demonstrations
from diffclone.data.inspection.dimensions import SAME, correlation
from diffclone.data.inspection.findings import (
    SEED,
    Finding,
    Flags,
    Matrix,
    Values,
    bounds_of,
    episode_of,
    nearest,
    pictures,
    places,
    some_rows,
    standard,
    varies,
)

AT_BOUND, CUT = 0.2, 0.05
"""Shares of steps, at a bound and at an extreme that is none, from which an action counts as cut off."""
LEVELS = 8
"""Values of an action up to which it is a switch."""
FAR = 5.0
"""Times the width of the bounds from which an action has another unit."""
LITTLE = 0.02
"""Share of the bounds' width; actions that use less have another unit."""
BETTER = 0.6
"""Of the error at lag 0, that the error at another lag must stay below."""
EXPLAINED = 0.5
"""Share of the changes' variance that the best lag may leave unexplained; above it the regression says little."""
RIDGE, BENT = 1e-10, 1e-3
"""Of the regression: hardly any on the inputs, since an action that is a target differs little from where the robot is;
more on their bends."""
ANSWERED, ANSWERED_MORE = 0.02, 0.1
"""An action is an answer to its own observation if that leaves less than this of its variance, and less than this share
of what the observation before leaves."""
ALIKE, SPREAD = 0.1, 0.3
"""Neighbouring states this near (standard deviations) are one; actions there this far apart, of what actions at random
are, contradict each other."""


def constant_actions(demos: Demonstrations) -> list[Finding]:
    """Dimensions of actions that are never used, or repeat another."""
    fixed = ~varies(demos.act)
    if fixed.all():
        advice = "Check which array was taken for the actions: the policy would always do the same."
        return [Finding("problem", "constant_actions", "no action ever varies", advice, "act")]
    found: list[Finding] = []
    if fixed.any():
        what = "dimensions never vary: the policy will always give their one value"
        advice = "Check that the expert was to leave them alone."
        found.append(Finding("note", "constant_actions", what, advice, "act", places(fixed)))
    chosen = demos.act[some_rows(demos.num_steps)]
    repeats = np.asarray(np.tril(correlation(chosen, chosen) > SAME, -1).any(1))
    if repeats.any():
        what, advice = "dimensions repeat others, scaled or shifted", "Check the order and the number of the columns."
        found.append(Finding("note", "constant_actions", what, advice, "act", places(repeats)))
    return found


def saturated_actions(demos: Demonstrations) -> list[Finding]:
    """Actions that were cut off: at the bounds, or where no bound is."""
    low, high = demos.act.min(0), demos.act.max(0)
    used = varies(demos.act)
    share = np.maximum(_share_at(demos, low), _share_at(demos, high))
    chosen = demos.act[some_rows(demos.num_steps)]
    levels = np.array([len(np.unique(column)) for column in chosen.T])
    switch = used & (levels <= min(LEVELS, len(chosen) // 10))
    least, most = bounds_of(demos)
    slack = np.where(np.isfinite(most - least), 1e-3 * (most - least), 0)
    # An end at which values pile up must be a bound.
    lower = (low <= least + slack) | (_share_at(demos, low) < CUT)
    upper = (high >= most - slack) | (_share_at(demos, high) < CUT)
    bounded = lower & upper
    found: list[Finding] = []
    if switch.any():
        what = f"dimensions have {levels[switch].max()} values at most, like a switch"
        advice = "Nothing; but a policy that is unsure will answer in between. Round its answer if the world minds."
        found.append(Finding("note", "saturated_actions", what, advice, "act", places(switch)))
    if (cut := used & ~switch & ~bounded & (share >= CUT)).any():
        what = f"up to {100 * share[cut].max():.0f} % of the actions have the extreme value of their dimension"
        advice = "Look whether the recording cut them off. If that is the world's bound, say so in action_bounds."
        found.append(Finding("warning", "saturated_actions", what, advice, "act", places(cut)))
    if (full := used & ~switch & bounded & (share >= AT_BOUND)).any():
        what = f"up to {100 * share[full].max():.0f} % of the actions are at a bound"
        advice = "Fine if the expert wanted that; else give it wider bounds: what lies beyond cannot be learned."
        found.append(Finding("note", "saturated_actions", what, advice, "act", places(full)))
    return found


def actions_and_bounds(demos: Demonstrations) -> list[Finding]:
    """Actions beyond the bounds, or that hardly use them."""
    low, high = bounds_of(demos)
    known = np.isfinite(low) & np.isfinite(high) & (low < high)
    width = np.where(known, high - low, np.inf)
    beyond = np.where(known, np.maximum(low - demos.act.min(0), demos.act.max(0) - high), 0) / width
    wide = np.where(known, (demos.act.max(0) - demos.act.min(0)) / width, 1)
    found: list[Finding] = []
    if (far := beyond > FAR).any():
        what = f"actions lie up to {beyond.max():.3g} times the bounds' width outside of them"
        advice = "Bring actions and action_bounds to one unit."
        found.append(Finding("problem", "actions_and_bounds", what, advice, "act", places(far)))
    if (near := (beyond > 1e-3) & ~far).any():
        share = ((demos.act < low) | (demos.act > high))[:, near].any(1).mean()
        reach = f"by up to {beyond[near].max():.2g} times their width"
        what = f"{100 * share:.1f} % of the steps have actions outside the bounds, {reach}"
        advice = "Fine if the world cuts them itself. The policy may go as far as the expert did."
        found.append(Finding("note", "actions_and_bounds", what, advice, "act", places(near)))
    if (idle := varies(demos.act) & (wide < LITTLE)).any():
        what = f"actions use less than {100 * LITTLE:.0f} % of the bounds' width"
        advice = "Check that both are in one unit."
        found.append(Finding("warning", "actions_and_bounds", what, advice, "act", places(idle)))
    return found


def misaligned(demos: Demonstrations) -> list[Finding]:
    """Whether the change from a step to the next fits the action of another step better than its own.

    A ridge regression on held-out steps, of obs[t+1] − obs[t] on obs[t] and act[t + lag], for lags −1, 0, 1.
    """
    if pictures(demos) or not varies(demos.act).any() or not varies(demos.obs).any():
        return []
    starts = np.append(0, demos.episode_ends[:-1])
    steps = np.setdiff1d(np.arange(demos.num_steps), np.concatenate([starts, demos.episode_ends - 1]))
    if len(steps) < 200:
        return []
    steps = steps[some_rows(len(steps), 8000)]
    # Whole episodes are held out where there are enough of them: neighbours in time know too much of each other.
    even = episode_of(demos, steps) % 2 == 0
    train = even if 0.25 < even.mean() < 0.75 else np.arange(len(steps)) < len(steps) // 2
    around = np.concatenate([steps - 1, steps, steps + 1])
    _, obs, following = np.split(standard(demos.obs[around]), 3)
    act = dict(zip((-1, 0, 1), np.split(standard(demos.act[around]), 3), strict=True))
    change = standard(following - obs)
    if not change.shape[1]:
        return []
    error = {lag: _unexplained(np.hstack([obs, act[lag]]), change, train) for lag in act}
    best = min((1, -1), key=lambda lag: error[lag])
    if error[best] > min(EXPLAINED, BETTER * error[0]):
        return []
    # If an action is all but an answer to its own observation, and no answer to the one before, then the next action
    # knows where chance has moved the world: the change fits it better though nothing is shifted.
    own, last = (_unexplained(obs, act[lag], train) for lag in (0, 1))
    if best == 1 and own < ANSWERED and own < ANSWERED_MORE * last:
        return []
    when = "after" if best == 1 else "before"
    what = (
        f"changes of the observation fit the action one row {when} them better than their own "
        f"({100 * error[best]:.2g} % unexplained, against {100 * error[0]:.2g} %)"
    )
    if best == 1:
        advice = "Row t must hold what the expert saw and then did. Here actions seem one row late: shift them up."
    else:
        advice = "Here actions seem one row early: shift them down. Leave them if your robot answers a step late."
    return [Finding("warning", "misaligned", what, advice)]


def contradictory_actions(demos: Demonstrations) -> list[Finding]:
    """Different actions at states that are nearly the same: behavioural cloning averages them."""
    if pictures(demos) or demos.num_episodes < 2 or not varies(demos.act).any() or not varies(demos.obs).any():
        return []
    steps = some_rows(demos.num_steps, 6000)
    obs, act, episodes = standard(demos.obs[steps]), standard(demos.act[steps]), episode_of(demos, steps)
    if len(np.unique(episodes)) < 2 or not act.shape[1]:
        return []
    distance, other = nearest(obs, obs, episodes, episodes)
    alike = distance < ALIKE
    if alike.sum() < 50:
        return []
    # Two actions at random differ by 2 in mean square; a standard score has variance 1.
    spread = float(np.square(act[alike] - act[other[alike]]).mean() / 2)
    if spread < SPREAD:
        return []
    much = f"{100 * spread:.0f} % of what" if spread < 1 else "at least what"
    what = f"where episodes come to nearly the same state, actions differ by {much} any two do"
    advice = "BC will average them. Record what the expert decides by (speeds, say); or train dbc or diffusion-policy."
    return [Finding("warning" if spread > 2 * SPREAD else "note", "contradictory_actions", what, advice, "act")]


def _share_at(demos: Demonstrations, value: Values) -> Matrix:
    width = demos.act.max(0) - demos.act.min(0)
    return (np.abs(demos.act - value) <= 1e-6 * np.maximum(width, np.abs(value))).mean(0)


def _unexplained(inputs: Matrix, targets: Matrix, train: Flags) -> float:
    """Share of the held-out variance that a ridge regression with some random bends leaves."""
    rng = np.random.default_rng(SEED)
    weights = rng.standard_normal((inputs.shape[1], 128)) / np.sqrt(inputs.shape[1])
    bends = np.maximum(inputs @ weights + rng.standard_normal(128), 0)
    x = np.hstack([inputs, bends, np.ones((len(inputs), 1))])
    seen = x[train]
    penalty = np.where(np.arange(x.shape[1]) < inputs.shape[1], RIDGE, BENT)
    ridge = seen.T @ seen + len(seen) * np.diag(penalty)
    left = targets[~train] - x[~train] @ np.linalg.solve(ridge, seen.T @ targets[train])
    return float(np.square(left).mean() / max(1e-12, np.square(targets[~train] - targets[train].mean(0)).mean()))
