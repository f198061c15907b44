"""Environments of other packages, one per row, shared between processes."""

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import MissingPackage, install_command
from diffclone.tasks.batch import BatchEnv, Doubles, Image, Outcome, Rows
from diffclone.tasks.mujoco import load_mujoco, make_renderer
from diffclone.tasks.processes import Processes, default_processes

INSTALL = (
    "Meta-World needs MuJoCo 3.3.0, and so an environment of its own: `make external` in the repository, or "
    "pip install 'diffclone[external]' in a new environment."
)


class ExternalEnv(ABC):
    """One environment of another package."""

    @abstractmethod
    def reset(self, seed: int) -> Doubles:
        """Start an episode and return the observation. The same seed gives the same start, whatever came before."""

    @abstractmethod
    def step(self, act: Doubles) -> tuple[Doubles, float, bool]:
        """Apply an action and return the observation, the reward, and whether the task is solved."""

    @abstractmethod
    def scene(self) -> tuple[Any, Any, str]:
        """Return MuJoCo's model and data, and the name of a camera."""

    @abstractmethod
    def close(self) -> None:
        """Release what the environment holds."""


@final
class ExternalBatch(BatchEnv):
    """Environments of another package. An episode ends when its task is solved. Actions are in [−1, 1]."""

    def __init__(
        self, make_env: Callable[[], ExternalEnv], count: int, obs_size: int, act_size: int, processes: int | None
    ):
        """Prepare `count` rows; a row's environment is made when the row is reset for the first time.

        Args:
            make_env: makes one environment.
            count: number of rows.
            obs_size: number of values in an observation.
            act_size: number of values in an action.
            processes: number of processes that share the rows; by default one per eight rows, at most one per core.
        """
        self.count = count
        self.act_low, self.act_high = -np.ones(act_size), np.ones(act_size)
        self.envs = ExternalEnvs(make_env)
        self.pool = Processes(self.envs, default_processes(count) if processes is None else processes)
        self.obs = np.zeros((count, obs_size))

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start an episode in each row, from a seed drawn from the row's generator."""
        seeds = np.array([rng.integers(2**31) for rng in rngs], dtype=np.int64)
        self.obs[rows] = self.pool.call("reset", rows, seeds)[0] if len(rows) else 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Step each row's environment."""
        if not len(rows):
            return Outcome(np.zeros(0), *np.zeros((2, 0), dtype=np.bool_))
        clipped = np.clip(act.astype(np.float64), self.act_low, self.act_high)
        self.obs[rows], reward, solved = self.pool.call("step", rows, clipped)
        return Outcome(reward, solved, solved.copy())

    def observe(self, rows: Rows) -> Doubles:
        """Return the environments' own observations."""
        return self.obs[rows]

    def render(self, row: int) -> Image:
        """Return an image."""
        return self.pool.call("render", np.array([row]))[0][0]

    def close(self) -> None:
        """End the processes and close the environments."""
        self.pool.close()
        self.envs.close()


@final
class ExternalEnvs:
    """The environments of some rows, which `Processes` serves."""

    def __init__(self, make_env: Callable[[], ExternalEnv]):
        self.make_env = make_env
        self.by_row: dict[int, ExternalEnv] = {}
        self.renderers: dict[int, Any] = {}

    def reset(self, rows: Rows, seeds: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], ...]:
        """Start episodes and return the observations."""
        for row in rows.tolist():
            if row not in self.by_row:
                self.by_row[row] = self.make_env()
        pairs = zip(rows.tolist(), seeds.tolist(), strict=True)
        return (np.array([self.by_row[row].reset(seed) for row, seed in pairs]).reshape(len(rows), -1),)

    def step(self, rows: Rows, act: Doubles) -> tuple[npt.NDArray[Any], ...]:
        """Return observations, rewards, and whether tasks are solved."""
        results = [self.by_row[row].step(act[k]) for k, row in enumerate(rows.tolist())]
        obs = np.array([result[0] for result in results]).reshape(len(rows), -1)
        return obs, np.array([result[1] for result in results]), np.array([r[2] for r in results], dtype=np.bool_)

    def render(self, rows: Rows) -> tuple[npt.NDArray[Any], ...]:
        """Return images."""
        images: list[Image] = []
        for row in rows.tolist():
            model, data, camera = self.by_row[row].scene()
            if row not in self.renderers:
                self.renderers[row] = make_renderer(model)
            self.renderers[row].update_scene(data, camera)
            images.append(self.renderers[row].render())
        return (np.array(images),)

    def close(self) -> None:
        """Close all environments of this process."""
        while self.renderers:
            self.renderers.popitem()[1].close()
        while self.by_row:
            self.by_row.popitem()[1].close()


def import_external(module: str) -> Any:
    """Import a module of another package, or raise one line that says how to install it."""
    package = module.partition(".")[0].replace("_", "-")
    try:
        load_mujoco()  # chooses the renderer, which MuJoCo reads when it is imported
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"this task needs the package {package} ({str(error).splitlines()[0]}). {how_to_install(package)}"
        ) from None


def how_to_install(package: str) -> str:
    """Return the sentence that says how to install a package that has tasks."""
    return f"Try: {install_command('tasks')}." if package == "gymnasium-robotics" else INSTALL


def is_installed(package: str) -> bool:
    """Return whether a package that has tasks is installed."""
    return importlib.util.find_spec(package.replace("-", "_")) is not None
