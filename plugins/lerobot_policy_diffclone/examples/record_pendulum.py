"""Record Pendulum episodes of a scripted expert as a LeRobot dataset, with LeRobot's own API.

python record_pendulum.py OUT EPISODES [FIRST_SEED]
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["cos", "sin", "speed"]},
    "action": {"dtype": "float32", "shape": (1,), "names": ["torque"]},
}
LARGEST = 2.0
"""The largest torque."""


def swing_up(obs: Any) -> Any:
    """Return a torque: add energy until the pendulum reaches the top, then hold it there."""
    angle, speed = np.arctan2(obs[1], obs[0]), obs[2]
    if np.cos(angle) > 0.9 and abs(speed) < 4:
        torque = -(12 * angle + 3 * speed)
    else:
        missing = 15 * (1 - np.cos(angle)) / 2 - speed**2 / 6  # potential energy at the top minus the current energy
        torque = LARGEST * np.sign(missing * (speed or 1.0))
    return np.clip(np.array([torque], np.float32), -LARGEST, LARGEST)


def main(out: str, episodes: int, first_seed: int) -> None:
    """Record episodes from consecutive seeds and print their mean return."""
    env, returns = gymnasium.make("Pendulum-v1"), []
    dataset = LeRobotDataset.create("local/pendulum", fps=20, features=FEATURES, root=out, use_videos=False)
    for seed in range(first_seed, first_seed + episodes):
        obs, _ = env.reset(seed=seed)
        total, truncated = 0.0, False
        while not truncated:
            action = swing_up(obs)
            dataset.add_frame({"observation.state": obs.astype(np.float32), "action": action, "task": "swing up"})
            obs, reward, _, truncated, _ = env.step(action)
            total += float(reward)
        dataset.save_episode()
        returns.append(total)
    dataset.finalize()
    print(f"wrote {episodes} episodes to {out}, mean return {np.mean(returns):.1f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 10_000)
