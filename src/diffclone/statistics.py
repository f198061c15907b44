"""Confidence intervals (95 %) and comparisons, in NumPy.

A contrast of the means of several tables (seeds, starts) on the same starts, with one weight w per table; x̄_i is the
mean of a seed, x̄_j of a start:

    D        = Σ w x̄                                  for example +1 and −1: a difference
    V_seed   = Σ w² var_i(x̄_i) / n                    n seeds of a table
    V_start  = var_j(Σ w x̄_j) / m                     m starts, the same for all tables
    V_rest   = Σ w² var_ij(x_ij − x̄_i − x̄_j) / (n m)  what is left; both of the above contain it
    s²       = max(V_seed + V_start − V_rest, V_seed, V_start)
    (D − E D) / s  ~  Student's t, with Satterthwaite's degrees of freedom ν

Tables with the same seeds are paired: they are combined per seed and start first, into one table of weight 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""
RESAMPLES = 4000
"""Samples of a bootstrap."""
PERMUTATIONS = 20_000
"""Random permutations of a permutation test."""

MOST_FREEDOM = 500.0
"""With more degrees of freedom, Student's t is hardly different from a normal distribution."""
ROUNDING = 1e-9
"""A smaller relative error is that of the arithmetic."""
QUADRATURE = np.polynomial.legendre.leggauss(160)
"""Nodes and weights of Gauss-Legendre quadrature."""

Interval = tuple[float, float]
"""The lower and the upper end."""
Table = npt.NDArray[np.floating] | npt.NDArray[np.bool_]
"""(seeds, starts): the outcome of each member from each start state."""


def wilson(successes: int, trials: int) -> Interval:
    """Return Wilson's score interval of a rate."""
    rate, z2 = successes / trials, Z_95**2
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def constant_interval(rate: float, trials: int) -> Interval:
    """Return the exact interval (Clopper and Pearson) of a rate of 0 or 1 in independent trials."""
    bound = 0.025 ** (1 / trials)
    return (bound, 1.0) if rate == 1 else (0.0, 1 - bound)


def mean_interval(outcomes: Table) -> Interval:
    """Return a bootstrap interval of the mean that resamples both seeds and starts.

    Where every episode succeeds, or every one fails, a bootstrap has no width: the interval is then exact, with as many
    trials as seeds or starts, whichever are fewer. A rate of a single seed has Wilson's interval over its starts, which
    says nothing about other seeds.
    """
    seeds, starts = outcomes.shape
    if outcomes.dtype == np.bool_ and seeds == 1:
        return wilson(int(outcomes.sum()), starts)
    if outcomes.dtype == np.bool_ and outcomes.min() == outcomes.max():
        return constant_interval(float(outcomes.mean()), min(seeds, starts))
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
    return float((1 + (gaps >= observed * (1 - 1e-9)).sum()) / (1 + PERMUTATIONS))


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


@final
@dataclass(frozen=True)
class Estimate:
    """An estimated contrast, with Student's t distribution of its error."""

    mean: float
    """D, the contrast of the means."""
    error: float
    """s, the standard error of D."""
    freedom: float
    """ν, the degrees of freedom."""
    seeds: int
    """The least number of seeds of a table."""
    starts: int = 1
    """The number of starts."""

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value of D ≤ bound: small if D is above it.

        Where all outcomes are equal, s = 0 and p is that of a sign test over the seeds.
        """
        if self.error == 0:
            return 2.0**-self.seeds if self.mean > bound else 1.0
        return student_tail((self.mean - bound) / self.error, self.freedom)

    def p_below(self, bound: float) -> float:
        """Return the one-sided p-value of D ≥ bound: small if D is below it."""
        return replace(self, mean=-self.mean).p_above(-bound)

    def interval(self) -> Interval:
        """Return the two-sided confidence interval.

        Where all outcomes are equal, s = 0 and the interval agrees with the sign test: the rate of this difference, and
        not of the opposite one, has an exact interval over the seeds, or over the starts of a single seed. That of a
        difference of 0 has no width: nothing says how large another one would be.
        """
        if self.error == 0 and self.mean != 0:
            rate = constant_interval(1.0, self.seeds if self.seeds > 1 else self.starts)[0]
            low, high = sorted((self.mean, (2 * rate - 1) * self.mean))
            return low, high
        half = student_quantile(0.975, self.freedom) * self.error
        return self.mean - half, self.mean + half


def estimate_contrast(tables: Sequence[Table], weights: Sequence[float], *, paired: bool) -> Estimate:
    """Estimate a contrast of the means of tables (seeds, starts) with the same starts.

    Args:
        tables: outcomes, one table per method.
        weights: the weight of each table, for example +1 and −1 for a difference.
        paired: whether all tables have the same seeds, in the same order.
    """
    values: list[npt.NDArray[np.float64]] = [np.asarray(table, dtype=np.float64) for table in tables]
    seeds, starts = min(len(table) for table in values), values[0].shape[-1]
    if paired:
        values, weights = [np.tensordot(np.array(weights), np.stack(values), 1)], [1.0]
    mean = sum(w * table.mean() for w, table in zip(weights, values, strict=True))
    parts = [w**2 * _variance(table.mean(1)) / len(table) for w, table in zip(weights, values, strict=True)]
    by_seed = sum(parts)
    by_start = _variance(np.array(weights) @ np.stack([table.mean(0) for table in values])) / starts
    rest = sum(w**2 * _rest(table) / table.size for w, table in zip(weights, values, strict=True))
    variance = max(by_seed + by_start - rest, by_seed, by_start)
    sizes = [*(len(table) for table in values), starts]
    spread = sum(part**2 / (size - 1) for part, size in zip([*parts, by_start], sizes, strict=True) if size > 1)
    freedom = variance**2 / spread if spread > 0 else 1.0
    error = math.sqrt(variance)
    error = 0.0 if error < ROUNDING * (1 + abs(mean)) else error
    return Estimate(float(mean), error, float(np.clip(freedom, 1.0, MOST_FREEDOM)), seeds, starts)


def student_tail(t: float, freedom: float) -> float:
    """Return P(T > t) of Student's t distribution, with t = √ν tan θ: an integral of cos^(ν − 1) θ."""
    if t < 0:
        return 1 - student_tail(-t, freedom)
    angle = math.atan(t / math.sqrt(freedom))
    nodes, weights = QUADRATURE
    half = (math.pi / 2 - angle) / 2
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return scale * half * float(weights @ np.cos(angle + half * (nodes + 1)) ** (freedom - 1))


def student_quantile(level: float, freedom: float) -> float:
    """Return t with P(T ≤ t) = level, for a level of at least one half."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > 1 - level else (low, middle)
    return (low + high) / 2


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for the number of tests: reject those up to α, and at most a share α errs at all."""
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[k]))
        adjusted[k] = largest
    return adjusted


def _variance(values: npt.NDArray[np.float64]) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def _rest(table: npt.NDArray[np.float64]) -> float:
    """The variance of what seeds and starts leave unexplained."""
    seeds, starts = table.shape
    if seeds == 1 or starts == 1:
        return 0.0
    left = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
    return float(np.square(left).sum() / ((seeds - 1) * (starts - 1)))


def _resampled_means(outcomes: Table) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(0)
    seeds, starts = outcomes.shape
    # Weights of a bootstrap are multinomial counts, so a resampled mean is a bilinear form. Sums of integers are exact:
    # rates are the same on every machine, in whatever order a processor adds them.
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES).astype(np.float64)
    by_start = rng.multinomial(starts, np.full(starts, 1 / starts), RESAMPLES).astype(np.float64)
    total = np.einsum("rs,st,rt->r", by_seed, outcomes.astype(np.float64), by_start, optimize=True)
    return total / (seeds * starts)
