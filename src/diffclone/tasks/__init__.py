"""The paper's tasks, one file each, and tasks of other packages. MuJoCo is imported when environments are made."""

import importlib.util
from collections.abc import Iterable

from diffclone.registry import Registry
from diffclone.tasks.adroit import PEN
from diffclone.tasks.ant_reach import ANT_REACH
from diffclone.tasks.car_racing import CAR_RACING
from diffclone.tasks.cheetah import CHEETAH
from diffclone.tasks.fetch_pick import FETCH_PICK
from diffclone.tasks.hand_rotate import HAND_ROTATE
from diffclone.tasks.maze import MAZE
from diffclone.tasks.metaworld import METAWORLD
from diffclone.tasks.metaworld_pixels import BUTTON_PIXELS
from diffclone.tasks.ogbench import OGBENCH
from diffclone.tasks.spiral import SPIRAL
from diffclone.tasks.task import Task
from diffclone.tasks.walker import WALKER

BUNDLED = (MAZE, FETCH_PICK, HAND_ROTATE, CHEETAH, WALKER, ANT_REACH, CAR_RACING, SPIRAL)
EXTERNAL = (*METAWORLD, *OGBENCH, PEN)
"""Tasks of other packages (`pip install 'diffclone[external]'`; for Adroit `tasks` will do). Their demonstrations are
collected on first use."""
EXTERNAL_PIXELS = (BUTTON_PIXELS,)
"""The same, seen by a camera."""
TASKS: Registry[Task] = Registry(
    "task",
    {task.name: task for task in (*BUNDLED, *EXTERNAL, *EXTERNAL_PIXELS)},
    group="diffclone.tasks",
    instance_of=Task,
)


def register_with_gymnasium(tasks: Iterable[Task]) -> None:
    """Make registered tasks available to `gymnasium.make`, if Gymnasium is installed."""
    if importlib.util.find_spec("gymnasium") is None:
        return
    from gymnasium.envs.registration import register

    for task in tasks:
        if task.gymnasium_id is not None:
            entry_point, arguments = "diffclone.tasks.environment:TaskEnv", {"task": task.name}
            register(task.gymnasium_id, entry_point, max_episode_steps=task.horizon, kwargs=arguments)


register_with_gymnasium(BUNDLED)

__all__ = ["BUNDLED", "EXTERNAL", "EXTERNAL_PIXELS", "TASKS", "Task", "register_with_gymnasium"]
