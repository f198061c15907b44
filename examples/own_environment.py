"""Record demonstrations in a Gymnasium environment, train on them, and evaluate the policy there.

python examples/own_environment.py
"""

import gymnasium as gym
import numpy as np

from diffclone import BC, Demonstrations, Network, Training, evaluate, fit


def expert(obs: np.ndarray) -> np.ndarray:
    """Swing a pendulum up by controlling its energy, then hold it with a PD controller."""
    cosine, sine, speed = obs
    angle = np.arctan2(sine, cosine)
    if abs(angle) < 0.5:
        return np.array([np.clip(-16 * angle - 4 * speed, -2, 2)], dtype=np.float32)
    energy = 0.5 * speed**2 + 10 * (cosine - 1)
    return np.array([2.0 * np.sign(-energy * speed if speed else 1.0)], dtype=np.float32)


env = gym.make("Pendulum-v1")
observations, actions, ends = [], [], []
for episode in range(10):
    obs, _ = env.reset(seed=episode)
    done = False
    while not done:
        observations.append(obs)
        actions.append(expert(obs))
        obs, _, terminated, truncated, _ = env.step(actions[-1])
        done = terminated or truncated
    ends.append(len(observations))

meta = {"source": "Pendulum-v1", "action_bounds": [[-2.0], [2.0]]}
demos = Demonstrations.from_arrays(observations, actions, episode_ends=ends, meta=meta)
method = BC(training=Training(updates=2000, lr=1e-3), network=Network(width=64, depth=2))
policy = fit(method, demos, seeds=[0, 1], device="cpu")
scores = evaluate(policy, "Pendulum-v1", episodes=5)
print(f"mean return of each member over five episodes: {scores.returns.mean(1)}")
