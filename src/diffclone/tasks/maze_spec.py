"""Maze, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

MAZE = Task(
    name="maze",
    gymnasium_id="diffclone/Maze-v0",
    summary="A point mass is driven to a goal through a medium-sized maze.",
    obs_size=6,
    act_size=2,
    horizon=400,
    metric="success",
    module="diffclone.tasks.maze",
    env_class="MazeEnv",
    expert_module="diffclone.tasks.maze_expert",
    episodes=100,
)
