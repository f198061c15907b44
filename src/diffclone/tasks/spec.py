"""What a task is to the rest of the library, known without making one."""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, final

from diffclone.data import Demonstrations
from diffclone.errors import MissingPackage
from diffclone.tasks.batch import BatchEnv
from diffclone.tasks.expert import Expert
from diffclone.tasks.options import check_options


@final
@dataclass(frozen=True)
class Task:
    """A task by name, with its sizes; `make` and `expert` import what they need."""

    name: str
    """On the command line."""
    gymnasium_id: str
    """For `gymnasium.make`, after `import diffclone.tasks`."""
    summary: str
    """One line."""
    obs_size: int
    act_size: int
    horizon: int
    """Steps after which an episode ends."""
    metric: Literal["success", "return"]
    """What is reported."""
    module: str
    """Where the environments are: `make_batch(count)` and the class named in `env_class`."""
    env_class: str
    """The Gymnasium environment."""
    expert_module: str
    """Where `make_expert()` is."""
    episodes: int
    """Of the bundled demonstrations."""
    pictures: bool = False
    """Whether observations are pictures."""

    def make(self, count: int, **options: Any) -> BatchEnv:
        """`count` environments stepped together."""
        return self._import(self.module).make_batch(count, **self.check(options))

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, if the environments have them."""
        return check_options(f"the task {self.name!r}", self._import(self.module).make_batch, options)

    def expert(self, **options: Any) -> Expert:
        """The bundled expert."""
        make_expert = self._import(self.expert_module).make_expert
        return make_expert(**check_options(f"the expert of {self.name!r}", make_expert, options))

    def demonstrations(self) -> Demonstrations:
        """The bundled demonstrations."""
        return Demonstrations.load(Path(str(resources.files("diffclone.assets") / f"{self.name}.npz")))

    def _import(self, module: str) -> Any:
        for package in ("gymnasium", "mujoco"):
            if importlib.util.find_spec(package) is None:
                raise MissingPackage(
                    f"the task {self.name!r} needs {package}, which is not installed. "
                    "Try: pip install 'diffclone[tasks]'."
                )
        try:
            return importlib.import_module(module)
        except MissingPackage:
            raise
        except ImportError as fault:
            raise MissingPackage(
                f"the task {self.name!r} cannot be loaded ({str(fault).splitlines()[0]}). "
                "Try: pip install --force-reinstall 'diffclone[tasks]'."
            ) from None


def register_with_gymnasium(tasks: Mapping[str, Task]) -> None:
    """Make the tasks known to `gymnasium.make`, where Gymnasium is installed."""
    if importlib.util.find_spec("gymnasium") is None:
        return
    from gymnasium.envs.registration import register

    for task in tasks.values():
        register(task.gymnasium_id, entry_point=f"{task.module}:{task.env_class}", max_episode_steps=task.horizon)
