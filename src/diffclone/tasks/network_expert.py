"""An expert that was trained by reinforcement (`diffclone expert train`): a small network, kept as plain matrices.

μ(s) = W₂ elu(W₁ elu(W₀ ŝ + b₀) + b₁) + b₂        ŝ = clip((s − mean) / std, ±10)
a    = μ(s) + noise · σ ε                          σ as it was when training ended
"""

from importlib import resources
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidFile
from diffclone.tasks.expert import Expert

LIMIT = 10.0


@final
class NetworkExpert(Expert):
    """Sees what a policy sees."""

    def __init__(
        self,
        task: str,
        *,
        horizon: int,
        env_options: dict[str, Any],
        noise: float,
        successful: bool,
        weights: Path | None,
    ):
        """Make it.

        Args:
            task: whose bundled weights are read.
            horizon: steps of an episode.
            env_options: of the environments it demonstrates in.
            noise: times σ, what its hand adds.
            successful: whether only successful episodes are shown; otherwise only those that last.
            weights: another file.
        """
        self.horizon, self.env_options, self.noise, self.successful = horizon, env_options, noise, successful
        path = weights or Path(str(resources.files("diffclone.assets") / "experts" / f"{task}.safetensors"))
        self.layers, self.mean, self.std, self.spread = read_weights(path)
        self.rng = np.random.default_rng(0)

    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """Nothing is remembered of the last episode."""
        self.rng = rng

    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """μ(s), and a little noise."""
        x = ((obs - self.mean) / self.std).clip(-LIMIT, LIMIT)
        for weight, bias in self.layers[:-1]:
            x = x @ weight + bias
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
        weight, bias = self.layers[-1]
        shake = self.noise * self.spread * self.rng.standard_normal(len(bias)) if self.noise else 0.0
        return x @ weight + bias + shake

    def keeps(self, steps: int, *, success: bool) -> bool:
        """Solved, or, where there is nothing to solve, to the end."""
        return success if self.successful else steps == self.horizon


Layers = list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]


def read_weights(path: Path) -> tuple[Layers, *tuple[npt.NDArray[np.float64], ...]]:
    """Layers, mean and scale of observations, σ."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise InvalidFile(f"no such file: {path}. Make one with: diffclone expert train.")
    try:
        named = {name: array.astype(np.float64) for name, array in load_file(path).items()}
        layers = [(named[f"weight.{k}"], named[f"bias.{k}"]) for k in range(sum(n.startswith("bias.") for n in named))]
        return layers, named["obs_mean"], named["obs_std"], named["act_std"]
    except (SafetensorError, KeyError) as fault:
        raise InvalidFile(f"{path} does not hold an expert's weights ({fault}).") from None
