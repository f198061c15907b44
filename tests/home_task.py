"""A trivial task for the training of experts, and options of PPO that learn it in seconds."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks import Task
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Rows
from scripts.ppo import PPOOptions

BRIEF = PPOOptions(
    steps=24_000, rows=64, horizon=25, epochs=5, batch=400, lr=3e-3, gamma=0.9, std=0.5, widths=(16,), entropy=0.0
)


@final
class Home(BatchEnv):
    """A point in a plane moves by a tenth of its action; success is within 0.2 of the origin."""

    open_batches = 0

    def __init__(self, count: int, *, rewards: str = "", ends_at: float = 0.0):
        """The rewards are −distance, or `rewards` in turn; an episode ends after `ends_at` steps if that is not 0."""
        self.count, self.act_low, self.act_high = count, -np.ones(2), np.ones(2)
        self.rewards, self.ends_at = [float(r) for r in rewards.split()], ends_at
        self.positions, self.steps = np.zeros((count, 2)), np.zeros(count, dtype=np.int64)
        Home.open_batches += 1

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        self.positions[rows] = [rng.uniform(-1, 1, 2) for rng in rngs]
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        self.positions[rows] += 0.1 * np.clip(act, -1, 1)
        self.steps[rows] += 1
        distance = np.linalg.norm(self.positions[rows], axis=1)
        reward = np.array([self.rewards[k - 1] for k in self.steps[rows]]) if self.rewards else -distance
        return Outcome(reward, distance < 0.2, self.steps[rows] == self.ends_at)

    def observe(self, rows: Rows) -> Doubles:
        return self.positions[rows]

    def close(self) -> None:
        Home.open_batches -= 1


HOME = Task("home", "Move to the origin.", obs_size=2, act_size=2, horizon=20, metric="success", make_batch=Home)
