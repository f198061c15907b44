"""How high is too high: split conformal prediction over whole episodes.

Steps of one episode depend on each other, episodes do not:

M_i    = max over the steps of episode i of a score                  i = 1 … n, none of them trained on
q      = the ⌈(n + 1)(1 − α)⌉-th smallest M_i                        there is one if n ≥ 1/α − 1
alarm  = score > q

P(an alarm in a new episode of the same distribution) ≤ α            over calibrations and episodes
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidData, InvalidFile, InvalidSettings

FORMAT = 1
"""Of a saved calibration."""
PARTS = ("state", "action", "both")
"""What is scored, and has a threshold of its own."""


def conformal_threshold(maxima: npt.ArrayLike, alpha: float) -> float:
    """q: a new episode of the same distribution exceeds it with probability at most α.

    This bounds false alarms, if the calibration episodes are successes: one in 1/α successful episodes, on average
    over calibrations. It says nothing about failures that are missed, nor about episodes of another distribution.
    """
    m = np.sort(np.asarray(maxima, dtype=np.float64).reshape(-1))
    n = len(m)
    if not 0 < alpha < 1:
        raise InvalidSettings(f"alpha is a probability between 0 and 1; it is {alpha:g}.")
    needed = episodes_needed(alpha)
    if n < needed:
        raise InvalidData(
            f"{n} episodes are too few to be wrong in at most {100 * alpha:g} % of them: {needed} are needed. "
            "Give more episodes, or a larger alpha."
        )
    if not np.isfinite(m).all():
        raise InvalidData(f"{int((~np.isfinite(m)).sum())} of {n} episodes have a score that is NaN or infinite.")
    # ⌈(n + 1)(1 − α)⌉; the least surplus of a float must not cost a rank.
    rank = n + 1 - math.floor((n + 1) * alpha + 1e-9)
    return float(m[rank - 1])


def episodes_needed(alpha: float) -> int:
    """The least n ≥ 1/α − 1."""
    return math.ceil(1 / alpha - 1 - 1e-9)


@final
@dataclass(frozen=True)
class Calibration:
    """Thresholds, and what they are worth.

    An episode of the distribution that was calibrated on raises an alarm of one part with probability at most α.
    Nothing is said about failures that are missed.
    """

    alpha: float
    episodes: int
    """n, that were calibrated on."""
    state: float
    action: float
    both: float
    member: int
    """Whose guide judges."""
    guide: str
    """Fingerprint of the weights that the thresholds belong to."""
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was calibrated on."""

    def to_dict(self) -> dict[str, Any]:
        """As it is saved."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Any, *, where: str = "a calibration") -> "Calibration":
        """What `to_dict` made; a fault names what is missing."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            found = values.get("format") if isinstance(values, dict) else None
            raise InvalidFile(f"{where} has format {found}; this version of diffclone reads format {FORMAT}.")
        kinds = {"alpha": float, "episodes": int, "member": int, "guide": str, "source": dict}
        kinds |= dict.fromkeys(PARTS, float)
        if wrong := [name for name, kind in kinds.items() if type(values.get(name)) is not kind]:
            raise InvalidFile(f"{where} lacks {', '.join(wrong)}. Make it anew: diffclone calibrate RUN --again.")
        return cls(**{name: values[name] for name in kinds})
