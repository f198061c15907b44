"""FetchPick, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

FETCH_PICK = Task(
    name="fetch-pick",
    gymnasium_id="diffclone/FetchPick-v0",
    summary="An arm picks up a block and carries it to a goal in the air.",
    obs_size=16,
    act_size=4,
    horizon=50,
    metric="success",
    module="diffclone.tasks.fetch_pick",
    env_class="FetchPickEnv",
    expert_module="diffclone.tasks.fetch_pick_expert",
    episodes=303,
)
