"""A calibration: the thresholds of a monitor, and what they come from. Stored as calibration.json."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, final

from diffclone.deploy.monitors.thresholds import MOST_STEPS, Kind, Threshold, false_alarm_interval
from diffclone.errors import InvalidFile

FORMAT = 2
"""Version of the two saved files."""
FORMATS = (1, FORMAT)
"""Versions that can be read. Version 1 has one score, "guide", with constant thresholds."""
AGAIN = "Calibrate again: diffclone calibrate RUN --again."


@final
@dataclass(frozen=True)
class Calibration:
    """Thresholds of a monitor, and the episodes they come from.

    A new episode of the calibrated distribution exceeds each threshold with probability at most α. The probability that
    it exceeds any of several thresholds is larger. The calibration gives no bound on missed failures.
    """

    alpha: float
    """α, the share of good episodes that may raise an alarm."""
    episodes: int
    """n, the number of calibration episodes that give the thresholds."""
    single: Mapping[str, float]
    """Constant thresholds of single steps, for callers that do not know where in an episode they are."""
    thresholds: Mapping[str, Threshold]
    """Thresholds of episodes that are followed from their first step."""
    fingerprint: str
    """Hash of the monitor's weights."""
    member: int = 0
    """Index of the member that the monitor belongs to."""
    kind: Kind = "constant"
    """Whether the thresholds of episodes are constant, or a band that varies with the step."""
    window: int = 1
    """Steps over which scores are averaged."""
    shape_episodes: int = 0
    """Calibration episodes that give the shape of the band, and the units if two scores must agree."""
    units: tuple[tuple[float, float], ...] = ()
    """(c, u) of each score if several must agree."""
    precision: str = "float32"
    """Data type in which scores are computed. Their sums and the thresholds are float64."""
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Origin of the calibration episodes."""

    @property
    def false_alarms(self) -> tuple[float, float]:
        """95 % interval of the false-alarm rate that this calibration has, given that its episodes are exchangeable."""
        return false_alarm_interval(self.episodes, self.alpha)

    def describe(self) -> str:
        """Return how precise the calibration is, in one sentence each."""
        low, high = self.false_alarms
        shape = f" and {self.shape_episodes} for the shape" if self.shape_episodes else ""
        return (
            f"{self.episodes} calibration episodes{shape}, alpha {self.alpha:g}. False alarms: at most "
            f"{100 * self.alpha:g} % of good episodes on average over calibrations; this one has between "
            f"{100 * low:.1f} and {100 * high:.1f} % with probability 95 %. Scores are {self.precision}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of calibration.json, without the settings of the scores."""
        return {
            "format": FORMAT,
            "alpha": self.alpha,
            "episodes": self.episodes,
            "false_alarms": list(self.false_alarms),
            "kind": self.kind,
            "window": self.window,
            "single": dict(self.single),
            "thresholds": {
                name: {"q": t.q, "centre": list(t.centre), "width": list(t.width)}
                for name, t in self.thresholds.items()
            },
            "units": [list(unit) for unit in self.units],
            "shape_episodes": self.shape_episodes,
            "precision": self.precision,
            "member": self.member,
            "fingerprint": self.fingerprint,
            "source": dict(self.source),
        }

    @classmethod
    def from_dict(cls, values: Any, *, where: str = "the calibration") -> "Calibration":
        """Return the calibration of a dictionary made by `to_dict`, or by versions before 0.4."""
        found = cast(dict[str, Any], values).get("format") if isinstance(values, dict) else None
        if found not in FORMATS or type(found) is not int:
            raise InvalidFile(f"{where} has format {found}; this version of diffclone reads formats 1 and 2.")
        values = cast(dict[str, Any], values)
        if found == 1:
            parts = {name: values.get(name) for name in ("state", "action", "both")}
            constant = {name: {"q": q, "centre": [], "width": []} for name, q in parts.items()}
            new = {"kind": "constant", "window": 1, "shape_episodes": 0, "precision": "float32", "units": []}
            values = {**values, **new, "single": parts, "thresholds": constant, "fingerprint": values.get("guide")}
        if wrong := [name for name, check in CHECKS.items() if not check(values.get(name))]:
            raise InvalidFile(f"{where}: {', '.join(wrong)} missing or invalid. {AGAIN}")
        kept: dict[str, Any] = {name: values[name] for name in CHECKS}
        kept["thresholds"] = {
            name: Threshold(t["q"], tuple(t["centre"]), tuple(t["width"])) for name, t in values["thresholds"].items()
        }
        kept["units"] = tuple((c, u) for c, u in values["units"])
        return cls(**kept)


def _is_probability(value: Any) -> bool:
    return type(value) is float and 0 < value < 1


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_STEPS


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)  # JSON files may contain NaN and Infinity


def _is_floats(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_finite, cast(list[Any], value)))


def _is_threshold(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    q, centre, width = (cast(dict[str, Any], value).get(name) for name in ("q", "centre", "width"))
    if not _is_finite(q) or not _is_floats(centre) or not _is_floats(width):
        return False
    widths = cast(list[float], width)
    return len(cast(list[float], centre)) == len(widths) <= MOST_STEPS and all(w > 0 for w in widths)


def _is_single(value: Any) -> bool:
    return isinstance(value, dict) and "both" in value and _is_floats([*cast(dict[str, Any], value).values()])


def _are_thresholds(value: Any) -> bool:
    return isinstance(value, dict) and "both" in value and all(map(_is_threshold, cast(dict[str, Any], value).values()))


def _are_units(value: Any) -> bool:
    return isinstance(value, list) and all(
        _is_floats(unit) and len(unit) == 2 and unit[1] > 0 for unit in cast(list[Any], value)
    )


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


CHECKS: dict[str, Callable[[Any], bool]] = {
    "alpha": _is_probability,
    "episodes": _is_count,
    "kind": lambda value: value in ("constant", "band"),
    "window": lambda value: _is_count(value) and value >= 1,
    "single": _is_single,
    "thresholds": _are_thresholds,
    "units": _are_units,
    "shape_episodes": _is_count,
    "precision": _is(str),
    "member": _is(int),
    "fingerprint": _is(str),
    "source": _is(dict),
}
"""The fields of the file, and whether a value is valid."""
