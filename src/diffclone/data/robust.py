"""Scales of observations that do not amplify nearly constant dimensions.

A z-score divides by the standard deviation. Where a dimension hardly varies in the demonstrations, a deviation that is
small by any other measure becomes a huge number, which the policy has never seen. So small scales are raised:

    floor = min(median of the standard deviations that are not 0, 0.5)
    scale = max(std, floor)

A dimension changes only if it is small among the others, as at most half of them are, and small in itself: below half a
metre, half a radian or half of a unit per second. An angle beside pixels is not small in itself, and a length in metres
is not small among others of its kind.
"""

import numpy as np
import numpy.typing as npt

Scales = npt.NDArray[np.float64]

LARGEST_FLOOR = 0.5
"""Standard deviations from here on are never raised. The value suits metres, radians and seconds."""


def find_floor(std: Scales) -> float:
    """Return the floor of these standard deviations; 0 if all are 0."""
    return min(float(np.median(std[std > 0])), LARGEST_FLOOR) if (std > 0).any() else 0.0


def raise_small(std: Scales) -> Scales:
    """Return the scales; a dimension that never varies keeps 0."""
    return np.where(std > 0, np.maximum(std, find_floor(std)), 0.0)
