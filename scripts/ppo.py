"""Proximal policy optimisation over a batch of environments.

    a ~ N(μ(s), σ²)        ρ = p(a|s) / p_old(a|s)        A = Σ (γλ)ᵏ δₜ₊ₖ,   δ = r + γ V(s′) − V(s)
    L = −E min(ρ A, clip(ρ, 1 ± c) A) + ½ E (V − R)² − h Σ log σ + 0.01 E max(|μ| − 1, 0)²

The last term keeps the means within the range of the motors. The last reward of an episode that is truncated at the
horizon includes γ V(s′). The result is small: matrices, biases, mean and standard deviation of observations, and σ.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.tasks import Task
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Doubles, Flags, Outcome, Rows
from diffclone.tasks.experts import OBS_LIMIT, read_weights

VALUE_ROUNDS = 40
"""Rounds in which only the value is trained if the policy was read from a file."""
MOMENTS_MEMORY = 2e6
"""Running moments weigh the past like at most this many rows."""

RewardFunction = Callable[[BatchEnv, Rows, Outcome], tuple[Doubles, Flags]]
"""Returns the rewards the expert is trained on, and which episodes end."""


@final
@dataclass(frozen=True)
class PPOOptions:
    """Hyperparameters. The defaults are those of HandRotate."""

    steps: int = 3_000_000
    """Total number of environment steps."""
    rows: int = 512
    """Number of environments stepped together."""
    horizon: int = 20
    """Number of steps of each environment per round."""
    epochs: int = 5
    """Number of passes over the data of a round."""
    batch: int = 2560
    """Batch size."""
    lr: float = 5e-4
    """Learning rate; decreases linearly to a tenth."""
    gamma: float = 0.98
    """γ, the discount factor."""
    trace: float = 0.95
    """λ of the advantages."""
    clip: float = 0.2
    """c, the clipping range of ρ."""
    entropy: float = 0.002
    """h, the weight of the entropy."""
    std: float = 0.5
    """Initial σ."""
    widths: tuple[int, ...] = (512, 256)
    """Widths of the hidden layers of policy and value."""
    scale_rewards: bool = False
    """Whether rewards are divided by the running standard deviation of returns."""
    reward: RewardFunction = field(default=lambda env, rows, outcome: (outcome.reward, outcome.ended))
    """The reward function; by default the task's own reward and end."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Options of the task's environments."""


def make_mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers with ELU between them."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ELU()]
    return nn.Sequential(*layers[:-1])


@final
class RunningMoments:
    """Running mean and variance of rows."""

    def __init__(self, size: int, device: torch.device):
        self.mean, self.var = torch.zeros(size, device=device), torch.ones(size, device=device)
        self.count = 1e-4

    def update(self, x: Tensor) -> None:
        """Include these rows."""
        total, delta = self.count + len(x), x.mean(0) - self.mean
        spread = self.var * self.count + x.var(0, correction=0) * len(x) + delta**2 * self.count * len(x) / total
        self.mean, self.var = self.mean + delta * len(x) / total, spread / total
        self.count = min(total, MOMENTS_MEMORY)


@final
@dataclass(frozen=True)
class Report:
    """Progress of the training."""

    steps: int
    seconds: float
    success: float
    """Success rate of the last 500 episodes."""
    returns: float
    """Their mean return, by the task's own reward."""
    std: float


@final
class Learner:
    """Policy, value and observation moments."""

    def __init__(self, options: PPOOptions, obs: int, act: int, device: torch.device):
        self.options, self.device = options, device
        self.policy = make_mlp((obs, *options.widths, act)).to(device)
        self.value = make_mlp((obs, *options.widths, 1)).to(device)
        self.log_std = nn.Parameter(torch.full((act,), float(np.log(options.std)), device=device))
        with torch.no_grad():
            last = self.policy[-1]
            assert isinstance(last, nn.Linear)
            last.weight.mul_(0.01)
            last.bias.zero_()
        self.parameters = [*self.policy.parameters(), *self.value.parameters(), self.log_std]
        self.optimiser = torch.optim.Adam(self.parameters, options.lr)
        self.obs_moments = RunningMoments(obs, device)

    def normalise(self, obs: Doubles) -> Tensor:
        """Return the inputs of the networks."""
        x, moments = self.tensor(obs), self.obs_moments
        return ((x - moments.mean) / (moments.var.sqrt() + 1e-6)).clamp(-OBS_LIMIT, OBS_LIMIT)

    def tensor(self, values: npt.NDArray[Any]) -> Tensor:
        """Copy to the device in single precision."""
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    def log_density(self, mean: Tensor, act: Tensor) -> Tensor:
        """Return log p(a|s) up to a constant."""
        return (-0.5 * ((act - mean) / self.log_std.exp()) ** 2 - self.log_std).sum(-1)

    def linear_layers(self) -> list[nn.Linear]:
        """Return the linear layers of the policy."""
        return [layer for layer in self.policy if isinstance(layer, nn.Linear)]

    def load(self, path: Path) -> None:
        """Read an expert's file. It has no value network: the value is trained first, before the policy changes."""
        read = read_weights(path)
        if read.squash:
            raise InvalidSettings(f"{path} was trained by SAC: its actions have a tanh. PPO cannot start from it.")
        sizes = [tuple(layer.weight.T.shape) for layer in self.linear_layers()]
        if (found := [weight.shape for weight, _ in read.layers]) != sizes:
            raise InvalidSettings(f"{path} has layers of {found}; the options need {sizes}.")
        with torch.no_grad():
            for layer, (weight, bias) in zip(self.linear_layers(), read.layers, strict=True):
                layer.weight.copy_(torch.tensor(weight.T))
                layer.bias.copy_(torch.tensor(bias))
            self.log_std.copy_(torch.tensor(read.act_std).log())
        self.obs_moments.mean, self.obs_moments.var = self.tensor(read.obs_mean), self.tensor(read.obs_std**2)
        self.obs_moments.count = MOMENTS_MEMORY

    def update(
        self, obs: Tensor, act: Tensor, log_old: Tensor, advantage: Tensor, returns: Tensor, *, value_only: bool
    ) -> None:
        """Train on the data of one round."""
        options = self.options
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(options.epochs):
            for rows in torch.randperm(len(obs), device=self.device).split(options.batch):
                mean = self.policy(obs[rows])
                ratio = (self.log_density(mean, act[rows]) - log_old[rows]).exp()
                clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
                gain = torch.min(ratio * advantage[rows], clipped * advantage[rows]).mean()
                error = 0.5 * (self.value(obs[rows])[:, 0] - returns[rows]).square().mean()
                outside = 0.01 * (mean.abs() - 1).clamp_min(0).square().mean()
                loss = error if value_only else error + outside - gain - options.entropy * self.log_std.sum()
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 1.0)
                self.optimiser.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return the contents of an expert's file."""
        layers = self.linear_layers()
        named = {f"weight.{k}": layer.weight.detach().T for k, layer in enumerate(layers)}
        named |= {f"bias.{k}": layer.bias.detach() for k, layer in enumerate(layers)}
        return named | {
            "obs_mean": self.obs_moments.mean,
            "obs_std": self.obs_moments.var.sqrt() + 1e-6,
            "act_std": self.log_std.detach().exp(),
        }


def train(
    task: Task, options: PPOOptions, *, seed: int = 0, device: str = "cpu", weights: Path | None = None
) -> Iterator[tuple[Report, Learner]]:
    """Train, and yield a report and the learner after each round; `weights` is an expert's file to start from."""
    torch.manual_seed(seed)
    learner = Learner(options, task.obs_size, task.act_size, torch.device(device))
    if weights is not None:
        learner.load(weights)
    env = task.make(options.rows, **options.options)
    value_rounds = 0 if weights is None else VALUE_ROUNDS
    try:
        yield from _run_rounds(
            env, learner, task.horizon, np.random.default_rng([START_SEEDS["training"], seed]), value_rounds
        )
    finally:
        env.close()


def _run_rounds(
    env: BatchEnv, learner: Learner, horizon: int, rng: np.random.Generator, value_rounds: int
) -> Iterator[tuple[Report, Learner]]:
    options, rows = learner.options, np.arange(env.count)
    env.reset(rows, rng.spawn(options.rows))
    length, total, discounted = np.zeros(options.rows, int), np.zeros(options.rows), np.zeros(options.rows)
    return_moments = RunningMoments(1, torch.device("cpu"))
    ended: list[tuple[bool, float]] = []
    steps, begun = 0, time.monotonic()
    while steps < options.steps:
        for group in learner.optimiser.param_groups:
            group["lr"] = options.lr * (1 - 0.9 * steps / options.steps)
        history: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]] = []
        for _ in range(options.horizon):
            obs = env.observe(rows)
            learner.obs_moments.update(learner.tensor(obs))
            with torch.no_grad():
                x = learner.normalise(obs)
                mean = learner.policy(x)
                act = mean + learner.log_std.exp() * torch.randn_like(mean)
                log, value = learner.log_density(mean, act), learner.value(x)[:, 0]
            outcome = env.step(rows, act.cpu().numpy())
            reward, over = options.reward(env, rows, outcome)
            length, total = length + 1, total + outcome.reward
            truncated = (length >= horizon) & ~over
            if options.scale_rewards:
                discounted = discounted * options.gamma + reward
                return_moments.update(torch.tensor(discounted, dtype=torch.float32)[:, None])
                reward = reward / float(return_moments.var.sqrt()[0] + 1e-6)
                discounted[over | truncated] = 0
            if truncated.any():
                with torch.no_grad():
                    beyond = learner.value(learner.normalise(env.observe(rows[truncated])))[:, 0].cpu().numpy()
                reward[truncated] += options.gamma * beyond
            fresh = rows[over | truncated]
            history.append((x, act, log, value, learner.tensor(reward), learner.tensor(over | truncated)))
            if len(fresh):
                ended += list(zip(outcome.success[fresh].tolist(), total[fresh].tolist(), strict=True))
                env.reset(fresh, rng.spawn(len(fresh)))
                length[fresh], total[fresh] = 0, 0
        steps += options.rows * options.horizon
        with torch.no_grad():
            after = learner.value(learner.normalise(env.observe(rows)))[:, 0]
        advantages, advantage = list[Tensor](), torch.zeros_like(after)
        for _, _, _, value, reward, over in reversed(history):
            delta = reward + options.gamma * after * (1 - over) - value
            advantage = delta + options.gamma * options.trace * (1 - over) * advantage
            advantages.insert(0, advantage)
            after = value
        obs_all, act_all, log_all, value_all, *_ = (torch.cat(part) for part in zip(*history, strict=True))
        flat = torch.cat(advantages)
        value_only = steps <= value_rounds * options.rows * options.horizon
        learner.update(obs_all, act_all, log_all, flat, flat + value_all, value_only=value_only)
        ended = ended[-500:]
        success, returns = np.mean(ended, axis=0) if ended else (0.0, 0.0)
        std = float(learner.log_std.detach().exp().mean())
        yield Report(steps, time.monotonic() - begun, float(success), float(returns), std), learner
