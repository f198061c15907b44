"""Tasks of the monitoring benchmark: demonstrations, a short training, disturbances, and episodes of the policies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone import DBC, Demonstrations, DiffusionGuide, Network, Policy, Training
from diffclone.deploy.calibration import Rollouts, collect_rollouts
from diffclone.experiments.task_settings import find_setting
from diffclone.fit import FitOptions, fit_with_options
from diffclone.tasks import TASKS, Task
from diffclone.tasks.batch import BatchEnv, Doubles, Outcome, Rows

SEEDS = (0, 1, 2)


@final
class DisturbedBatch(BatchEnv):
    """Environments that add Gaussian noise to every action. Its standard deviation is a share of half the range."""

    def __init__(self, make_batch: Callable[..., BatchEnv], action_noise: float, count: int, **options: Any):
        self.env, self.action_noise, self.count = make_batch(count, **options), action_noise, count
        self.act_low, self.act_high = self.env.act_low, self.env.act_high
        self.rngs = [np.random.default_rng(0)] * count

    @property
    def reports_success(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the environments report success."""
        return self.env.reports_success

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        """Start episodes."""
        self.env.reset(rows, rngs)

    def reset_from_seeds(self, rows: Rows, seeds: Sequence[int]) -> None:
        """Start episodes; the noise of an episode depends on its seed."""
        self.env.reset_from_seeds(rows, seeds)
        for row, seed in zip(rows.tolist(), seeds, strict=True):
            self.rngs[row] = np.random.default_rng([seed, 1])

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        """Apply disturbed actions."""
        noise = np.stack([self.rngs[row].standard_normal(act.shape[1]) for row in rows.tolist()])
        disturbed = act + self.action_noise * (self.act_high - self.act_low) / 2 * noise
        return self.env.step(rows, disturbed.clip(self.act_low, self.act_high).astype(act.dtype))

    def observe(self, rows: Rows) -> Doubles:
        """Return observations."""
        return self.env.observe(rows)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


@final
@dataclass(frozen=True)
class Case:
    """A task, how long its policies are trained, and the disturbances under which they are monitored."""

    setting: str
    """Name of a task setting: which demonstrations."""
    levels: tuple[float, ...]
    """Values of the disturbance. Each is an experiment of its own: failures are compared with successes of the same
    level."""
    noise: tuple[str, ...] = ()
    """Options of the environment that have the level; if there are none, the level is the noise of actions."""
    updates: int = 1500
    guide_updates: int = 3000
    episodes: int = 120
    """Episodes per seed and level."""
    network: Network = Network(width=128, depth=2)
    demonstrations: int | None = None
    """Number of episodes to train on, from the first; None: those of the setting."""
    horizon: int | None = None
    """Number of steps, if fewer than the task's."""
    upright: bool = False
    """Whether success means to reach the last step, for tasks that report returns only."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    main_scores: bool = False
    """Whether only the registered scores are measured, not their variants."""

    @property
    def method(self) -> DBC:
        """The method and its settings."""
        policy, guide = (Training(updates=n, lr=1e-3) for n in (self.updates, self.guide_updates))
        return DBC(policy, network=self.network, coefficient=1.0, guide=DiffusionGuide(training=guide, width=128))

    @property
    def task(self) -> Task:
        """The task."""
        task = TASKS[find_setting(self.setting).task]
        return task if self.horizon is None else replace(task, horizon=self.horizon)

    def load_demonstrations(self) -> Demonstrations:
        """Return the training episodes."""
        if (count := self.demonstrations) is None:
            return find_setting(self.setting).load_demonstrations()
        return replace(self.task, episodes=count).demonstrations().take(range(count))

    def train(self, demos: Demonstrations) -> Policy:
        """Train one policy per seed."""
        return fit_with_options(self.method, demos, FitOptions(seeds=SEEDS, device="cpu")).policy

    def play(self, policy: Policy, level: float, episodes: int) -> Rollouts:
        """Run a member from validation starts: the result chooses a default, so evaluation starts are not used."""
        task, options = self.task, dict(self.options)
        if self.noise:
            options |= dict.fromkeys(self.noise, level)
        elif level:
            task = replace(task, make_batch=partial(DisturbedBatch, task.make_batch, level))
        rollouts = collect_rollouts(policy, task, episodes=episodes, starts="validation", **options)
        return replace(rollouts, success=rollouts.steps.lengths >= task.horizon) if self.upright else rollouts


META_WORLD = Case(
    "metaworld/shelf-place",
    (0.0,),
    updates=1000,
    guide_updates=1500,
    episodes=72,
    demonstrations=20,
    horizon=250,
    options={"processes": 1},
    main_scores=True,
)
CASES = {
    "fetch-pick": Case("fetch-pick-27", (1.25, 1.75), ("start_noise", "goal_noise")),
    "ant-reach": Case("ant-reach", (0.0, 0.01), ("start_noise",), updates=3000, network=Network(width=256, depth=2)),
    "walker": Case("walker", (0.2, 0.25), updates=2000, episodes=80, horizon=300, upright=True),
    "metaworld/shelf-place": META_WORLD,
    "metaworld/coffee-pull": replace(META_WORLD, setting="metaworld/coffee-pull"),
}
"""By the name of the task. Those of Meta-World need an environment of their own: make external."""
