"""Spiral's expert: the script, with noise in its hand where that is asked for."""

from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.expert import Expert
from diffclone.tasks.spiral import SCRIPT, STEPS, STEPS_EACH


@final
class SpiralExpert(Expert):
    """Looks at nothing but the clock."""

    horizon = STEPS

    def __init__(self, noise: float = 0.0, start_noise: float = 0.01):
        """Make it.

        Args:
            noise: standard deviation of what its hand adds to the script.
            start_noise: standard deviation of where demonstrations begin; without it they are all the same.
        """
        self.noise, self.env_options = noise, dict[str, Any](start_noise=start_noise)
        self.steps, self.rng = 0, np.random.default_rng(0)

    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """Start the clock."""
        self.steps, self.rng = 0, rng

    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """The script's next force."""
        force = np.array(SCRIPT[self.steps // STEPS_EACH])
        self.steps += 1
        return force + (self.noise * self.rng.standard_normal(2) if self.noise else 0.0)

    def keeps(self, steps: int, *, success: bool) -> bool:
        """Ended where the script ends."""
        return success


make_expert = SpiralExpert
