"""Monitor a policy while it acts: calibrate on held-out episodes, then score every step.

python examples/monitor.py
"""

import numpy as np

from diffclone import DBC, Demonstrations, DiffusionGuide, Network, Training, fit
from diffclone.deploy.calibration import calibrate

rng = np.random.default_rng(0)
obs = rng.uniform(-1, 1, (4000, 4))
act = np.tanh(obs[:, :2] - obs[:, 2:])
demos = Demonstrations.from_arrays(obs, act, episode_ends=range(40, 4001, 40))
train, held_out = demos.split(0.4)

guide = DiffusionGuide(training=Training(updates=1500, lr=2e-3), width=64)
method = DBC(training=Training(updates=800, lr=1e-3), network=Network(width=64, depth=2), guide=guide)
policy = fit(method, train, device="cpu")

# At most one good episode in twenty raises an alarm. This needs at least 19 episodes that are not in the training data.
policy = calibrate(policy, held_out, alpha=0.05)

for name, observation in (("in the demonstrations", obs[0]), ("far from the demonstrations", 6 * obs[0])):
    score = policy.monitor(observation, policy(observation))
    assert score.alarm is not None
    print(f"{name}: state {score.state:.2f}, action {score.action:.2f}, alarm: {bool(score.alarm.both)}")
