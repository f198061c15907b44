"""What a measurement can use, and what it returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.nn.diffusion import Diffusion
from diffclone.policy import Policy


@final
@dataclass(frozen=True, eq=False)
class MeasureInput:
    """What a measurement can use."""

    task: str
    settings: Mapping[str, Any]
    """Settings of the measurement."""
    demos: Demonstrations
    """The training data, or the task's demonstrations."""
    clean_demos: Demonstrations
    """The same without action noise and generated pairs."""
    selected: Policy | None = None
    """The selected members of the trained policy, if there is one."""
    metrics: Path | None = None
    """The file with the losses of all members during training."""
    members: Sequence[int] = ()
    """The indices of the selected members in that file."""
    quick: bool = False
    progress: Callable[[int, int], None] = lambda done, total: None

    @property
    def policy(self) -> Policy:
        """The selected members; an error if nothing was trained."""
        if self.selected is None:
            raise InvalidSettings(f"this measurement on {self.task} needs a trained policy; it has no variant.")
        return self.selected

    def diffusion_model(self, member: int) -> Diffusion:
        """Return the trained diffusion model of a member, or raise an error if there is none."""
        guide = self.policy[member].guide
        if guide is None or not isinstance(guide.weights, Diffusion):
            method = type(self.policy.method).__name__
            raise InvalidSettings(f"this measurement needs a diffusion model; {method} was trained without one.")
        return guide.weights


@final
@dataclass(frozen=True)
class MeasureOutput:
    """What a measurement adds to its Record."""

    results: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Details of the measurement that are not in its specification."""
    device: str | None = None
    """The device, if it is not the policy's."""


def round_values(values: npt.ArrayLike, digits: int = 4) -> list[Any]:
    """Return rounded values as lists."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()
