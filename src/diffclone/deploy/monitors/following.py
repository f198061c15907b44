"""Scores and alarms of an episode, from the scores of its single steps.

y(t) = mean of the last w scores            w: window
alarm at step t if y(t) > μ_t + q S_t       or y(t) > q without a band (thresholds.py)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from diffclone.deploy.monitors.calibrated import Calibration
from diffclone.deploy.monitors.results import Alarm, Numbers, Score

Recent: TypeAlias = Mapping[str, Numbers]
"""The last scores by name, at most w of them along the first axis. Empty before the first step. Never changed."""


@final
@dataclass(frozen=True)
class Follower:
    """Follows episodes with the window and the thresholds of a calibration. It remembers nothing itself."""

    calibration: Calibration
    parts: tuple[str, ...]
    """The scores that have thresholds."""
    names: tuple[str, ...]
    """All scores of a step."""

    def __call__(self, recent: Recent, values: Mapping[str, Numbers], step: int) -> tuple[Score, Recent]:
        """Return scores and alarms of a step, counted from 0, and the last scores after it."""
        q = self.calibration
        recent = {
            name: np.concatenate([recent[name][-q.window + 1 :], y[None]]) if recent and q.window > 1 else y[None]
            for name, y in values.items()
        }
        means = {name: np.asarray(y.mean(0)) for name, y in recent.items()}
        alarm = {name: q.thresholds[name].exceeded(means[name], step) for name in self.parts}
        return Score(means, Alarm(alarm)), recent
