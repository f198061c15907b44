"""Statistics of a matrix that is read in blocks, in one pass.

The numbers of two sets of rows, with n rows, mean m and sum of squared deviations q each, are those of both together:

    δ = m₂ − m₁        n = n₁ + n₂        m = m₁ + δ n₂ / n        q = q₁ + q₂ + δ² n₁ n₂ / n

(Chan, Golub and LeVeque, 1979). The results differ from those of two passes over all rows by rounding in float64 only.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from diffclone.shapes import Seen

Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """Statistics of each column of some rows."""

    count: int
    """n"""
    mean: Numbers
    """m"""
    squares: Numbers
    """q"""
    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, rows: Seen) -> "Moments":
        """Return the statistics of some rows, at least one."""
        numbers = rows.astype(np.float64)
        mean = numbers.mean(0)
        low, high = numbers.min(0), numbers.max(0)
        numbers -= mean
        return cls(len(rows), mean, np.einsum("ij,ij->j", numbers, numbers), low, high)

    def join(self, other: "Moments") -> "Moments":
        """Return the statistics of both sets of rows."""
        count = self.count + other.count
        shift = other.mean - self.mean
        return Moments(
            count,
            self.mean + shift * (other.count / count),
            self.squares + other.squares + shift**2 * (self.count * other.count / count),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def pool(self) -> "Moments":
        """Return the statistics of all columns together, as if they were one: the pixels of images."""
        columns, mean = len(self.mean), self.mean.mean(keepdims=True)
        squares = self.squares.sum(keepdims=True) + self.count * np.square(self.mean - mean).sum(keepdims=True)
        return Moments(self.count * columns, mean, squares, self.low.min(keepdims=True), self.high.max(keepdims=True))
