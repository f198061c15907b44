"""Cheetah, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

CHEETAH = Task(
    name="cheetah",
    gymnasium_id="diffclone/Cheetah-v0",
    summary="Half a cheetah runs.",
    obs_size=17,
    act_size=6,
    horizon=1000,
    metric="return",
    module="diffclone.tasks.cheetah",
    env_class="CheetahEnv",
    expert_module="diffclone.tasks.cheetah_expert",
    episodes=5,
)
