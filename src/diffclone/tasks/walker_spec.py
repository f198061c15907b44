"""Walker, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

WALKER = Task(
    name="walker",
    gymnasium_id="diffclone/Walker-v0",
    summary="A flat body on two legs walks.",
    obs_size=17,
    act_size=6,
    horizon=1000,
    metric="return",
    module="diffclone.tasks.walker",
    env_class="WalkerEnv",
    expert_module="diffclone.tasks.walker_expert",
    episodes=5,
)
