"""Thresholds of a monitor, by split conformal prediction over whole episodes.

y_i(t)   = score of episode i at step t, or the mean of its last w scores               w: window
constant   M_i = max over t of y_i(t)                                                   i = 1 … n
           q   = the ⌈(n + 1)(1 − α)⌉-th smallest M_i                                   exists if α ≥ 1/(n + 1)
           alarm at step t if y(t) > q
band       M_i = max over t of (y_i(t) − μ_t) / S_t,   q as above
           alarm at step t if y(t) > μ_t + q S_t
           μ_t and S_t are mean and standard deviation over steps around t of other episodes, the shape episodes
several    y   = min over scores j of (y_j − c_j) / u_j: it is high only if all scores are
           c_j and u_j are mean and standard deviation of score j in the shape episodes

P(an alarm at any step of a new episode of the same distribution) ≤ α                   over calibrations and episodes
P(the same | these n episodes) ~ Beta(⌊(n + 1) α⌋, ⌈(n + 1)(1 − α)⌉)                    if scores have no ties

The band is functional conformal prediction (Diquigiovanni et al. 2022; FAIL-Detect) with an upper side only. Episodes
are exchangeable, the steps of one episode are not. The shape may be anything that does not depend on the n episodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidData, InvalidSettings

Numbers = npt.NDArray[np.float64]
Kind = Literal["constant", "band"]

SHAPE_SHARE = 1 / 3
"""Share of the calibration episodes that give the shape, where one is needed."""
SHAPE_EPISODES = 5
"""The least number of shape episodes."""
RUNNING_EPISODES = 3
"""A step that fewer shape episodes reach has the shape of the last step that they do reach."""
SMOOTHING = 50
"""Steps around t: a share 1/50 of the longest episode on each side, at least one."""
MOST_STEPS = 100_000
"""The longest window and band."""
LEAST_UNIT = 1e-12
"""u_j is at least this: a score may be constant."""
LEAST_WIDTH = 0.1
"""S_t is at least this share of the standard deviation over all steps."""


@final
@dataclass(frozen=True)
class Threshold:
    """q, and the shape of a band."""

    q: float
    """The largest excess without an alarm."""
    centre: tuple[float, ...] = ()
    """μ_t from the first step on; empty for a constant threshold. Later steps have the last value."""
    width: tuple[float, ...] = ()
    """S_t."""

    def excess(self, y: Numbers, step: npt.NDArray[np.int64] | int) -> Numbers:
        """Return what is compared with q: y itself, or (y − μ_t) / S_t with t = step, counted from 0."""
        if not self.centre:
            return y
        k = np.minimum(step, len(self.centre) - 1)
        return np.asarray((y - np.asarray(self.centre)[k]) / np.asarray(self.width)[k])

    def exceeded(self, y: Numbers, step: npt.NDArray[np.int64] | int) -> npt.NDArray[np.bool_]:
        """Return whether there is an alarm. `~(y <= q)` instead of `y > q`: NaN raises an alarm."""
        return np.asarray(~(self.excess(y, step) <= self.q))


def episodes_needed(alpha: float) -> int:
    """Return the smallest n with α ≥ 1/(n + 1)."""
    if not 0 < alpha < 1:
        raise InvalidSettings(f"alpha must be a probability between 0 and 1; it is {alpha:g}.")
    return math.ceil(1 / alpha - 1 - 1e-9)


def conformal_rank(n: int, alpha: float) -> int:
    """Return ⌈(n + 1)(1 − α)⌉, tolerant of rounding errors in (n + 1) α. Too few episodes are refused."""
    if n < (needed := episodes_needed(alpha)):
        raise InvalidData(
            f"alpha {alpha:g} needs at least {needed} calibration episodes; there are {n}. Add episodes, or choose "
            f"an alpha of at least 1/{n + 1} = {math.ceil(1e4 / (n + 1)) / 1e4:g}."
        )
    return n + 1 - math.floor((n + 1) * alpha + 1e-9)


def conformal_threshold(maxima: npt.ArrayLike, alpha: float) -> float:
    """Return q. A new episode of the same distribution exceeds it with probability at most α.

    Calibrated on successes, α bounds the share of successful episodes that raise a false alarm, on average over
    calibrations. There is no bound on missed failures or on episodes of another distribution.
    """
    m = np.sort(np.asarray(maxima, dtype=np.float64).reshape(-1))
    rank = conformal_rank(len(m), alpha)
    if not np.isfinite(m).all():
        raise InvalidData(f"{int((~np.isfinite(m)).sum())} of {len(m)} episodes have scores that are NaN or infinite.")
    return float(m[rank - 1])


def false_alarm_interval(n: int, alpha: float) -> tuple[float, float]:
    """Return the 95 % interval of the false-alarm rate that one calibration on n episodes has."""
    return _beta_quantile(0.025, n, alpha), _beta_quantile(0.975, n, alpha)


def _beta_quantile(level: float, n: int, alpha: float) -> float:
    """Return the quantile of Beta(k, n + 1 − k), k = ⌊(n + 1) α⌋: where P(Binomial(n, x) ≥ k) is `level`."""
    k, low, high = n + 1 - conformal_rank(n, alpha), 0.0, 1.0
    i = np.arange(k, n + 1)
    choices = math.lgamma(n + 1) - np.array([math.lgamma(j + 1) + math.lgamma(n - j + 1) for j in i.tolist()])
    for _ in range(50):
        x = (low + high) / 2
        below = float(np.exp(choices + i * math.log(x) + (n - i) * math.log1p(-x)).sum())
        low, high = (x, high) if below < level else (low, x)
    return (low + high) / 2


def moving_average(scores: Numbers, window: int) -> Numbers:
    """Return the mean of the last `window` scores of one episode at each step, or of all so far at its beginning."""
    if window == 1:
        return scores
    # Sums of windows, not differences of sums from the start: one NaN must not reach every later step.
    padded = np.concatenate([np.zeros(window - 1), scores])
    sums = np.lib.stride_tricks.sliding_window_view(padded, window).sum(-1)
    return sums / np.minimum(np.arange(1, len(scores) + 1), window)


def find_unit(shape: Sequence[Numbers]) -> tuple[float, float]:
    """Return (c, u) of one score in the shape episodes."""
    y = np.concatenate(shape)
    return float(y.mean()), max(float(y.std()), LEAST_UNIT)


def agree(scores: Sequence[Numbers], units: Sequence[tuple[float, float]]) -> Numbers:
    """Return min over scores j of (y_j − c_j) / u_j. `minimum` keeps NaN."""
    return np.asarray(np.minimum.reduce([(y - c) / u for y, (c, u) in zip(scores, units, strict=True)]))


def split_shape(n: int, alpha: float) -> tuple[list[int], list[int]]:
    """Return the indices of the shape episodes and of those for q. The choice is random and always the same."""
    needed = episodes_needed(alpha)
    if n < needed + SHAPE_EPISODES:
        raise InvalidData(
            f"alpha {alpha:g} needs at least {needed} calibration episodes, and {SHAPE_EPISODES} more for the shape of "
            f"a band or the units of several scores; there are {n}. Add episodes, choose a larger alpha, or use one "
            "score with --threshold constant."
        )
    shape = min(max(SHAPE_EPISODES, round(SHAPE_SHARE * n)), n - needed)
    order = np.random.default_rng(0).permutation(n)
    return sorted(order[:shape].tolist()), sorted(order[shape:].tolist())


def fit_shape(episodes: Sequence[Numbers]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return μ_t and S_t of shape episodes."""
    lengths = np.sort([len(y) for y in episodes])
    steps = min(MOST_STEPS, int(lengths[-min(RUNNING_EPISODES, len(lengths))]))
    around = max(1, int(lengths[-1]) // SMOOTHING)
    floor = LEAST_WIDTH * float(np.concatenate(episodes).std()) + 1e-12
    near = [np.concatenate([y[max(0, t - around) : t + around + 1] for y in episodes]) for t in range(steps)]
    return tuple(float(y.mean()) for y in near), tuple(max(floor, float(y.std())) for y in near)


def calibrate_threshold(
    quantile: Sequence[Numbers], alpha: float, kind: Kind = "constant", shape: Sequence[Numbers] = ()
) -> Threshold:
    """Return the threshold of episodes' scores y_i(t); `shape` has the shape episodes of a band."""
    plain = Threshold(math.inf, *(fit_shape(shape) if kind == "band" else ()))
    maxima = [float(plain.excess(y, np.arange(len(y))).max()) for y in quantile]
    return Threshold(conformal_threshold(maxima, alpha), plain.centre, plain.width)
