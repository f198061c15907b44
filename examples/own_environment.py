"""Record demonstrations in a Gymnasium environment of yours, learn from them, and play the policy there.

python examples/own_environment.py
"""

import gymnasium as gym
import numpy as np

from diffclone import BC, Demonstrations, Network, Training, evaluate, fit


def expert(seen: np.ndarray) -> np.ndarray:
    """Swing a pendulum up by energy, hold it by a spring."""
    cosine, sine, speed = seen
    angle = np.arctan2(sine, cosine)
    if abs(angle) < 0.5:
        return np.array([np.clip(-16 * angle - 4 * speed, -2, 2)], dtype=np.float32)
    energy = 0.5 * speed**2 + 10 * (cosine - 1)
    return np.array([2.0 * np.sign(-energy * speed if speed else 1.0)], dtype=np.float32)


env = gym.make("Pendulum-v1")
obs, act, ends = [], [], []
for episode in range(10):
    seen, _ = env.reset(seed=episode)
    over = False
    while not over:
        chosen = expert(seen)
        obs.append(seen)
        act.append(chosen)
        seen, _, terminated, truncated, _ = env.step(chosen)
        over = terminated or truncated
    ends.append(len(obs))

meta = {"source": "Pendulum-v1", "action_bounds": [[-2.0], [2.0]]}
demos = Demonstrations.from_arrays(obs, act, episode_ends=ends, meta=meta)
method = BC(training=Training(updates=2000, lr=1e-3), network=Network(width=64, depth=2))
policy = fit(method, demos, seeds=[0, 1], device="cpu")
scores = evaluate(policy, "Pendulum-v1", episodes=5)
print(f"return of two members over five episodes each: {scores.returns.mean(1)}")
