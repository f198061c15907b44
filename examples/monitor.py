"""A policy that is watched while it acts: calibrate on held-out episodes, then ask at every step.

python examples/monitor.py
"""

import numpy as np

from diffclone import DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.deploy.calibration import calibrate
from diffclone.deploy.monitor import Monitor
from diffclone.fit import FitOptions, fit_with_options

rng = np.random.default_rng(0)
obs = rng.uniform(-1, 1, (4000, 4))
act = np.tanh(obs[:, :2] - obs[:, 2:])
demos = Demonstrations.from_arrays(obs, act, episode_ends=range(40, 4001, 40))
train, held_out = demos.split(0.4)

guide = DiffusionGuide(training=Training(updates=1500, lr=2e-3), width=64)
method = DBC(training=Training(updates=800, lr=1e-3), network=Network(width=64, depth=2), guide=guide)
fitted = fit_with_options(method, train, FitOptions(device="cpu"))
policy = fitted.policy

# At most one good episode in twenty raises an alarm: that takes 19 episodes that nothing was trained on.
monitor = Monitor.of(method, fitted.trained.parts, policy.normaliser)
monitor = calibrate(monitor, held_out, 0.05, member=0, source={"what": "held-out episodes"})

for name, seen in (("as in the demonstrations", obs[0]), ("far from them", 6 * obs[0])):
    score = monitor.score(seen, policy(seen))
    assert score.alarm is not None
    print(f"{name}: state {score.state:.2f}, action {score.action:.2f}, alarm: {bool(score.alarm.both)}")
