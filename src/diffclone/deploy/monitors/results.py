"""What a monitor returns: scores by name and their alarms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def _find(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise InvalidSettings(f"this monitor has no {name!r}; it has {', '.join(values)}. The score 'guide' has it.")
    return values[name]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Alarm:
    """Whether each number is above its threshold. Arrays have the shape of the scores."""

    values: Mapping[str, Flags]
    """By name, as in `Score.values`."""

    @property
    def both(self) -> Flags:
        """The pair is out of distribution."""
        return _find(self.values, "both")

    @property
    def state(self) -> Flags:
        """The state is out of distribution. Only the score "guide" has it."""
        return _find(self.values, "state")

    @property
    def action(self) -> Flags:
        """The action is unusual; in a familiar state, it is unusual for that state. Only "guide" has it."""
        return _find(self.values, "action")

    def __repr__(self) -> str:
        shown = [f"{name} {v if v.ndim == 0 else f'{v.sum()} of {v.size}'}" for name, v in self.values.items()]
        return f"Alarm({', '.join(shown)})"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """Scores of pairs. Out-of-distribution pairs usually have larger scores than the demonstrations."""

    values: Mapping[str, Numbers]
    """By name: "both" is the score of the whole pair. The score "guide" also has "state" and "action"; if two scores
    must agree, each of them is also here by its own name."""
    alarm: Alarm | None = None
    """None if the monitor is not calibrated."""

    @property
    def both(self) -> Numbers:
        """The score of the pair."""
        return _find(self.values, "both")

    @property
    def state(self) -> Numbers:
        """The score of the state. Only the score "guide" has it."""
        return _find(self.values, "state")

    @property
    def action(self) -> Numbers:
        """The score of the action. Only the score "guide" has it."""
        return _find(self.values, "action")

    def arrays(self) -> dict[str, Any]:
        """Return all arrays by name; those of alarms are in a dictionary under "alarm"."""
        return {**self.values, "alarm": None if self.alarm is None else dict(self.alarm.values)}

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON: numbers for one pair, lists for a batch, None instead of NaN."""
        none: Any = None
        values = {n: np.where(np.isfinite(v), v.astype(object), none).tolist() for n, v in self.values.items()}
        alarm = None if self.alarm is None else {name: flags.tolist() for name, flags in self.alarm.values.items()}
        return {**values, "alarm": alarm}

    def __repr__(self) -> str:
        shown = [
            f"{name} {v:.4g}"
            if v.ndim == 0
            else f"{name} of {v.size} pairs, mean {v.mean():.4g}, largest {v.max():.4g}"
            for name, v in self.values.items()
        ]
        return f"Score({'; '.join([*shown, *([] if self.alarm is None else [repr(self.alarm)])])})"
