"""Spiral, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

SPIRAL = Task(
    name="spiral",
    gymnasium_id="diffclone/Spiral-v0",
    summary="A point mass is driven along a spiral, the paper's toy.",
    obs_size=6,
    act_size=2,
    horizon=160,
    metric="success",
    module="diffclone.tasks.spiral",
    env_class="SpiralEnv",
    expert_module="diffclone.tasks.spiral_expert",
    episodes=10,
)
