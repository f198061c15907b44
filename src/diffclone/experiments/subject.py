"""What a measure is given, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.guides import DiffusionGuide
from diffclone.methods import DBC
from diffclone.policy import Policy
from diffclone.training.runs import Run


@final
@dataclass(frozen=True, eq=False)
class Subject:
    """What is looked at."""

    task: str
    settings: Mapping[str, Any]
    """Of the measure, in the spec."""
    demos: Demonstrations
    """What was learned from."""
    clean: Demonstrations
    """The same without noise or generated pairs."""
    run: Run | None
    policy: Policy | None
    members: list[int]
    """Of the policy."""
    quick: bool
    progress: Callable[[int, int], None] = lambda done, total: None

    def trained(self) -> tuple[Run, Policy]:
        """Where there must be a training."""
        if self.run is None or self.policy is None:
            raise InvalidSettings(f"this looks at trained policies of {self.task}; the spec names none.")
        return self.run, self.policy

    def guide(self) -> DiffusionGuide:
        """Where there must be a diffusion model."""
        method = self.trained()[1].method
        if not isinstance(method, DBC) or not isinstance(method.guide, DiffusionGuide):
            raise InvalidSettings(f"this looks at a diffusion model; {type(method).__name__} was trained without one.")
        return method.guide


@final
@dataclass(frozen=True)
class Measured:
    """What was found."""

    results: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How, beside the spec's."""
    device: str | None = None
    """Where it is not the policy's."""


def rounded(values: npt.ArrayLike, digits: int = 4) -> list[Any]:
    """Plain lists, with digits that can be seen."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()
