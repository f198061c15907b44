"""Monitor a policy while it acts: calibrate on held-out episodes, then follow an episode step by step.

python examples/monitor.py
"""

import numpy as np

from diffclone import BC, Demonstrations, Network, Training, fit
from diffclone.deploy.calibration import Rule, calibrate
from diffclone.deploy.monitor import EpisodeMonitor

rng = np.random.default_rng(0)
obs = rng.uniform(-1, 1, (4000, 4))
act = np.tanh(obs[:, :2] - obs[:, 2:])
demos = Demonstrations.from_arrays(obs, act, episode_ends=range(40, 4001, 40))
train, held_out = demos.split(0.4)

method = BC(training=Training(updates=800, lr=1e-3), network=Network(width=64, depth=2))
policy = fit(method, train, device="cpu")

# At most one good episode in twenty raises an alarm. This needs at least 19 episodes that are not in the training data,
# and 5 more for the shape of a band.
policy = calibrate(policy, held_out, alpha=0.05, rule=Rule("nearest", threshold="band"), training=train)

watch = EpisodeMonitor(policy.calibrated_monitor)
for step in range(40):
    observation = obs[step] if step < 20 else 3 * obs[step]  # after 20 steps the robot leaves its training data
    score = watch(observation, policy(observation))
    if score.alarm is not None and score.alarm.both:
        print(f"step {step}: score {score.both:.2f}, alarm")
        break
