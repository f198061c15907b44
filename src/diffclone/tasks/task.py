"""The description of a task: sizes, environments, expert and demonstrations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.tasks.batch import BatchEnv
from diffclone.tasks.experts import Expert
from diffclone.tasks.options import check_options

if TYPE_CHECKING:
    import diffclone.data.demonstrations


@final
@dataclass(frozen=True)
class Task:
    """A task by name. Making one imports neither MuJoCo nor Gymnasium; `make` does.

    To add a task, subclass `BatchEnv` and describe it:

        DOOR = Task(
            name="door", summary="An arm opens a door.", obs_size=12, act_size=4, horizon=200, metric="success",
            make_batch=DoorBatch,
        )
        diffclone.evaluate(policy, DOOR)

    For an environment with Gymnasium's interface pass `make_batch=partial(GymnasiumBatch, "Door-v1")`
    (`diffclone.tasks.gymnasium_batch`) and `environments_per_member=10`. `TASKS.register("door")(DOOR)`, or an entry
    point in the group "diffclone.tasks", makes it known by name to `evaluate` and to the command line.
    `diffclone.testing.check_task(DOOR)` tests it.
    """

    name: str
    """Name on the command line, e.g. "maze"."""
    summary: str
    """One line for the list of tasks."""
    obs_size: int
    """Number of values in an observation."""
    act_size: int
    """Number of values in an action."""
    horizon: int
    """Number of steps after which an episode ends."""
    metric: Literal["success", "return"]
    """What scores are reported as."""
    make_batch: Callable[..., BatchEnv]
    """A `BatchEnv` class, or a function: takes the number of environments, then options as keywords with defaults."""
    make_expert: Callable[..., Expert] | None = None
    """An `Expert` class, or a function: takes options as keywords with defaults."""
    episodes: int = 100
    """Number of episodes in the demonstrations."""
    data: Path | None = None
    """File of the demonstrations (.npz); by default the one bundled for a task of this name."""
    gymnasium_id: str | None = None
    """Id for `gymnasium.make`, e.g. "diffclone/Maze-v0"; None: not registered with Gymnasium."""
    package: str | None = None
    """Package with the environment and the expert, if it is not one of those in the extra `tasks`. Demonstrations are
    then not bundled, but collected with the expert on first use (`tasks/collected.py`)."""
    environments_per_member: int | None = None
    """Number of environments per policy member that an evaluation steps together; None: one for each episode."""

    @property
    def collected_on_first_use(self) -> bool:
        """Whether demonstrations are collected with the expert when they are first needed, which takes minutes."""
        return self.package is not None and self.data is None

    def make(self, count: int, **options: Any) -> BatchEnv:
        """Make `count` environments that are stepped together."""
        checked = self.check_options(options)
        try:
            return self.make_batch(count, **checked)
        except MissingPackage:
            raise
        except ImportError as error:
            raise MissingPackage(
                f"the task {self.name!r} cannot be made ({str(error).splitlines()[0]}). The bundled tasks need: "
                f"{install_command('tasks')}."
            ) from None

    def check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options if the environments have them."""
        return check_options(f"the task {self.name!r}", self.make_batch, options)

    def expert(self, **options: Any) -> Expert:
        """Make the task's expert."""
        if self.make_expert is None:
            raise InvalidSettings(f"the task {self.name!r} has no expert.")
        return self.make_expert(**check_options(f"the expert of {self.name!r}", self.make_expert, options))

    def demonstrations(self) -> "diffclone.data.demonstrations.Demonstrations":
        """Read the task's demonstrations. Those of a task of another package are collected on first use."""
        from diffclone.data import Demonstrations

        if self.collected_on_first_use:
            from diffclone.tasks.collected import collect_once

            return Demonstrations.load(collect_once(self))
        path = self.data or Path(str(resources.files("diffclone.assets") / f"{self.name}.npz"))
        if not path.exists():
            raise InvalidSettings(f"the task {self.name!r} has no demonstrations ({path} does not exist).")
        return Demonstrations.load(path)
