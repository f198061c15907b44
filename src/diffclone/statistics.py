"""Confidence intervals (95 %) and comparisons, in NumPy."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
RESAMPLES = 4000
PERMUTATIONS = 20_000
"""Random permutations of a permutation test."""

Interval = tuple[float, float]
Table = npt.NDArray[np.floating] | npt.NDArray[np.bool_]
"""(seeds, starts): the outcome of each member from each start state."""


def wilson(successes: int, trials: int) -> Interval:
    """Return Wilson's score interval of a rate."""
    rate, z2 = successes / trials, Z_95**2
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(outcomes: Table) -> Interval:
    """Return a bootstrap interval of the mean that resamples both seeds and starts.

    A rate of a single seed, and a rate of 0 or 1, has Wilson's interval over the starts instead.
    """
    seeds, starts = outcomes.shape
    if outcomes.dtype == np.bool_ and (seeds == 1 or outcomes.min() == outcomes.max()):
        return wilson(round(float(outcomes.mean()) * starts), starts)
    low, high = np.quantile(_resampled_means(outcomes), (0.025, 0.975))
    return float(low), float(high)


def difference_interval(ours: Table, theirs: Table) -> Interval:
    """Return the interval of the difference of two means on the same starts and seeds."""
    return mean_interval(ours.astype(np.float64) - theirs.astype(np.float64))


def permutation_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p-value of a permutation test: how often random groups differ at least as much in means."""
    pooled = np.array([*ours, *theirs], dtype=np.float64)
    rng, count = np.random.default_rng(0), len(ours)
    permuted = pooled[rng.permuted(np.tile(np.arange(len(pooled)), (PERMUTATIONS, 1)), axis=1)]
    gaps = np.abs(permuted[:, :count].mean(1) - permuted[:, count:].mean(1))
    observed = abs(pooled[:count].mean() - pooled[count:].mean())
    # The observed grouping is one of them; without it p could be 0. Rounding must not turn a tie into a smaller gap.
    return float((1 + (gaps >= observed - 1e-12).sum()) / (1 + PERMUTATIONS))


def paired_permutation_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of paired differences, one per seed, from a permutation test of their signs.

    All signs are tried if there are few, otherwise a random sample of them. The smallest p of n seeds is 2 / 2ⁿ.
    """
    observed, count = np.asarray(differences, dtype=np.float64), len(differences)
    exact = 2**count <= PERMUTATIONS
    if exact:
        signs = 1 - 2 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
    else:
        signs = np.random.default_rng(0).choice((-1, 1), (PERMUTATIONS, count))
    reached = (np.abs(signs @ observed) >= abs(observed.sum()) * (1 - 1e-12)).sum()
    # The observed signs are among all signs; a sample must count them too, or p could be 0.
    return float(reached / len(signs)) if exact else float((1 + reached) / (1 + PERMUTATIONS))


def _resampled_means(outcomes: Table) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(0)
    seeds, starts = outcomes.shape
    # Weights of a bootstrap are multinomial counts, so a resampled mean is a bilinear form.
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    by_start = rng.multinomial(starts, np.full(starts, 1 / starts), RESAMPLES) / starts
    return np.einsum("rs,st,rt->r", by_seed, outcomes.astype(np.float64), by_start, optimize=True)
