"""The outcomes of episodes that the members of a policy have played."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from diffclone.data.notebook import html_table
from diffclone.statistics import Interval, mean_interval
from diffclone.tasks.batch import Doubles, Flags, Starts

Protocol = Literal["fixed", "paper"]
"""How episodes are counted; `diffclone.evaluate` explains both."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Outcomes, (members, episodes). With the protocol "fixed", a column is the same start for every member."""

    success: Flags
    """(members, episodes): whether each episode succeeded."""
    length: npt.NDArray[np.int64]
    """(members, episodes): the number of steps of each episode."""
    returns: Doubles
    """(members, episodes): the sum of the rewards of each episode."""
    task: str
    """The name of the task, or the id of the Gymnasium environment."""
    protocol: Protocol
    """How episodes were counted: "fixed" or "paper"."""
    starts: Starts
    """The list of starts: "evaluation" or "validation"."""
    options: Mapping[str, Any]
    """Options that were passed to the environment."""
    seconds: float
    """Wall-clock time of all episodes."""
    reports_success: bool = True
    """Whether the environment reports success; if not, only returns are known."""

    @property
    def success_rate(self) -> float:
        """Success rate over all members and episodes."""
        return float(self.success.mean())

    @property
    def success_interval(self) -> Interval:
        """95 % interval over seeds and starts."""
        return mean_interval(self.success)

    @property
    def member_success(self) -> Doubles:
        """Success rate of each member."""
        return self.success.mean(1)

    def summary(self) -> dict[str, Any]:
        """Return what a Record stores. `outcomes` has every episode, so that evaluations can be compared in pairs."""
        known = self.reports_success
        sd = float(self.member_success.std(ddof=1)) if len(self.success) > 1 else None
        return {
            "task": self.task,
            "protocol": self.protocol,
            "starts": self.starts,
            "options": dict(self.options),
            "members": len(self.success),
            "episodes": int(self.success.shape[1]),
            "success_rate": self.success_rate if known else None,
            "success_interval": list(self.success_interval) if known else None,
            "success_sd_over_members": sd if known else None,
            "member_success": self.member_success.tolist() if known else None,
            "mean_length": float(self.length.mean()),
            "mean_return": float(self.returns.mean()),
            "return_interval": list(mean_interval(self.returns)),
            "member_return": self.returns.mean(1).tolist(),
            "episodes_per_second": self.success.size / self.seconds,
            "outcomes": {
                "success": ["".join("01"[s] for s in member) for member in self.success.tolist()] if known else None,
                "returns": [[float(f"{value:.6g}") for value in member] for member in self.returns.tolist()],
            },
        }

    def __repr__(self) -> str:
        (members, episodes), plural = self.success.shape, "s"
        sizes = f"{members} member{plural * (members > 1)} × {episodes} episode{plural * (episodes > 1)}"
        parts = [self.task, sizes]
        if self.reports_success:
            parts.append(f"success {self._percent(self.success_rate, self.success_interval)}")
        low, high = mean_interval(self.returns)
        return f"Scores({', '.join(parts)}, return {self.returns.mean():.4g} ({low:.4g} … {high:.4g}))"

    def _repr_html_(self) -> str:
        low, high = mean_interval(self.returns)
        names = [*(f"member {m}" for m in range(len(self.success))), "all (95 % interval)"]
        columns = {
            "success": [
                *(self._percent(rate) for rate in self.member_success),
                self._percent(self.success_rate, self.success_interval),
            ],
            "return": [
                *(f"{value:.4g}" for value in self.returns.mean(1)),
                f"{self.returns.mean():.4g} ({low:.4g} … {high:.4g})",
            ],
            "steps": [f"{value:.4g}" for value in (*self.length.mean(1), self.length.mean())],
        }
        if not self.reports_success:
            del columns["success"]
        title = f"{self.task}: means over {self.success.shape[1]} episodes, {self.starts} starts"
        return html_table(title, list(zip(names, *columns.values(), strict=True)), ("", *columns))

    @staticmethod
    def _percent(rate: float, interval: Interval | None = None) -> str:
        bounds = "" if interval is None else f" ({100 * interval[0]:.1f} … {100 * interval[1]:.1f})"
        return f"{100 * rate:.1f} %{bounds}"
