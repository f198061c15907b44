"""HandRotate, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

HAND_ROTATE = Task(
    name="hand-rotate",
    gymnasium_id="diffclone/HandRotate-v0",
    summary="A hand of 24 joints turns a block to a goal angle.",
    obs_size=68,
    act_size=20,
    horizon=50,
    metric="success",
    module="diffclone.tasks.hand_rotate",
    env_class="HandRotateEnv",
    expert_module="diffclone.tasks.hand_rotate_expert",
    episodes=515,
)
