"""The paper's tasks, blind to learning. One file each, one line here. MuJoCo is imported when a task is made."""

from diffclone.registry import Registry
from diffclone.tasks.maze_spec import MAZE
from diffclone.tasks.spec import Task, register_with_gymnasium

TASKS: Registry[Task] = Registry("task", {"maze": MAZE})

register_with_gymnasium(TASKS)

__all__ = ["TASKS", "Task"]
