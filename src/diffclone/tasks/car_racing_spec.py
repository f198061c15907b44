"""CarRacing, as the rest of the library knows it."""

from diffclone.tasks.spec import Task

CAR_RACING = Task(
    name="car-racing",
    gymnasium_id="diffclone/CarRacing-v0",
    summary="A car is driven round a track seen from above, as a picture.",
    obs_size=8192,
    act_size=3,
    horizon=500,
    metric="return",
    module="diffclone.tasks.car_racing",
    env_class="CarRacingEnv",
    expert_module="diffclone.tasks.car_racing_expert",
    episodes=5,
    pictures=True,
)
