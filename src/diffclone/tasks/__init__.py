"""The paper's tasks, blind to learning. One file each, one line here. MuJoCo is imported when a task is made."""

from diffclone.registry import Registry
from diffclone.tasks.ant_reach_spec import ANT_REACH
from diffclone.tasks.car_racing_spec import CAR_RACING
from diffclone.tasks.cheetah_spec import CHEETAH
from diffclone.tasks.fetch_pick_spec import FETCH_PICK
from diffclone.tasks.hand_rotate_spec import HAND_ROTATE
from diffclone.tasks.maze_spec import MAZE
from diffclone.tasks.spec import Task, register_with_gymnasium
from diffclone.tasks.spiral_spec import SPIRAL
from diffclone.tasks.walker_spec import WALKER

TASKS: Registry[Task] = Registry(
    "task",
    {task.name: task for task in (MAZE, FETCH_PICK, HAND_ROTATE, CHEETAH, WALKER, ANT_REACH, CAR_RACING, SPIRAL)},
    group="diffclone.tasks",
    instance_of=Task,
)

register_with_gymnasium(TASKS)

__all__ = ["TASKS", "Task"]
