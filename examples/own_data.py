"""Train on your own arrays, with three seeds at once, and save the policy.

python examples/own_data.py
"""

from pathlib import Path

import numpy as np

import diffclone

# Your data: arrays of (steps, size), and the number of steps up to the end of each episode.
rng = np.random.default_rng(0)
obs = rng.uniform(-1, 1, (2000, 4))
act = np.tanh(obs[:, :2] - obs[:, 2:])
demos = diffclone.Demonstrations.from_arrays(obs, act, episode_ends=range(100, 2001, 100))

# DBC() alone would choose sizes and schedules for the data; these are small, so that the example ends quickly.
method = diffclone.DBC(
    training=diffclone.Training(updates=500, lr=1e-3),
    network=diffclone.Network(width=64, depth=2),
    coefficient=1.0,
    guide=diffclone.DiffusionGuide(training=diffclone.Training(updates=500, lr=1e-3), width=64),
)
policy = diffclone.fit(method, demos, seeds=range(3))
print(policy)
print("one action of seed 0:", policy[0](obs[0]))
print("one action of every seed:", policy(obs[0]), sep="\n")

folder = Path("runs/own-data")
if not folder.exists():
    policy.save(folder)
print(diffclone.Policy.load(folder))
