"""AntReach, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

ANT_REACH = Task(
    name="ant-reach",
    gymnasium_id="diffclone/AntReach-v0",
    summary="A four-legged ant walks to a goal on a half circle.",
    obs_size=42,
    act_size=8,
    horizon=50,
    metric="success",
    module="diffclone.tasks.ant_reach",
    env_class="AntReachEnv",
    expert_module="diffclone.tasks.ant_reach_expert",
    episodes=500,
)
