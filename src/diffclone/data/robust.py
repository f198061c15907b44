"""Scales of observations that do not amplify nearly constant dimensions.

A z-score divides by the standard deviation. Where a dimension hardly varies in the demonstrations, a deviation that is
small by any other measure becomes a huge number, which the policy has never seen. So small scales are raised, and
normalised observations are clipped closer to the demonstrations than those of z-scores:

    floor = min(median of the standard deviations that are not 0, 0.5) / 10
    scale = max(std, floor)
    z(s)  = clip((s − mean) / scale, ±3)

A scale changes only if it is small among the others, a tenth of their median, and small in itself: below five
centimetres, 0.05 radians or 0.05 of a unit per second. An angle beside pixels is not small in itself, and a length in
metres is not small among others of its kind.
"""

import numpy as np
import numpy.typing as npt

Scales = npt.NDArray[np.float64]

LARGEST_MEDIAN = 0.5
"""Larger medians count as this. The value suits metres, radians and seconds."""
SHARE = 0.1
"""The floor, relative to the median."""
LIMIT = 3.0
"""Standard deviations that normalised observations are clipped to."""


def find_floor(std: Scales) -> float:
    """Return the floor of these standard deviations; 0 if all are 0."""
    return SHARE * min(float(np.median(std[std > 0])), LARGEST_MEDIAN) if (std > 0).any() else 0.0


def raise_small(std: Scales) -> Scales:
    """Return the scales; a dimension that never varies keeps 0."""
    return np.where(std > 0, np.maximum(std, find_floor(std)), 0.0)
