"""Train the expert of a task by reinforcement: proximal policy optimisation over many rows at once.

    a ~ N(μ(s), σ²)        ρ = p(a|s) / p_old(a|s)        A = Σ (γλ)ᵏ δₜ₊ₖ,   δ = r + γ V(s′) − V(s)
    L = −E min(ρ A, clip(ρ, 1 ± c) A) + ½ E (V − R)² − h Σ log σ + 0.01 E max(|μ| − 1, 0)²

The last term keeps means where the motors listen. An episode cut by the horizon is not over: its reward gains γ V(s′).
What comes out is small and plain: matrices, biases, the mean and scale of observations, and σ.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.errors import InvalidSettings
from diffclone.files import refuse_existing, write_tensors
from diffclone.tasks import Task
from diffclone.tasks.batch import BatchEnv, Doubles, Flags, Outcome, Rows
from diffclone.tasks.network_expert import read_weights

VALUE_FIRST = 40
"""Rounds in which a policy that was read from a file waits for its value."""

Shaping = Callable[[BatchEnv, Rows, Outcome], tuple[Doubles, Flags]]
"""What an expert is rewarded for, and when its episode is over."""


@final
@dataclass(frozen=True)
class Recipe:
    """How an expert is trained. The defaults are the hand's."""

    steps: int = 3_000_000
    """Environment steps in all."""
    rows: int = 512
    """Environments stepped together."""
    horizon: int = 20
    """Steps of each between two improvements."""
    epochs: int = 5
    """Passes over them at an improvement."""
    batch: int = 2560
    """Steps a gradient."""
    lr: float = 5e-4
    """Falls to a tenth over the training."""
    gamma: float = 0.98
    """γ, what a reward one step later is worth."""
    trace: float = 0.95
    """λ of the advantages."""
    clip: float = 0.2
    """c, how far an action may become more or less likely at an improvement."""
    entropy: float = 0.002
    """h, the weight of keeping σ large."""
    std: float = 0.5
    """σ at the start."""
    widths: tuple[int, ...] = (512, 256)
    """Hidden layers of policy and value."""
    scale_rewards: bool = False
    """Whether rewards are divided by the running spread of returns."""
    shaping: Shaping = field(default=lambda env, rows, outcome: (outcome.reward, outcome.ended))
    """By default the task's own reward and end."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of the task's environment."""


def shape_hand(env: BatchEnv, rows: Rows, outcome: Outcome) -> tuple[Doubles, Flags]:
    """Turn, arrive, do not drop the block."""
    dropped = env.observe(rows)[:, 56] < 0.1
    return 5 * outcome.reward + 2.0 * outcome.success - 1.0 * dropped, outcome.ended | dropped


def shape_ant(env: BatchEnv, rows: Rows, outcome: Outcome) -> tuple[Doubles, Flags]:
    """Be near the goal, stay there, stay on the feet."""
    obs = env.observe(rows)
    arrived, fallen = np.linalg.norm(obs[:, -2:], axis=1) < 0.5, obs[:, 0] < 0.25
    return outcome.reward + 1.0 * arrived - 0.5 * fallen, outcome.ended


RUNNER = Recipe(
    steps=20_000_000,
    rows=64,
    horizon=128,
    epochs=6,
    batch=2048,
    lr=3e-4,
    gamma=0.99,
    entropy=0.0,
    std=0.6,
    widths=(128, 128),
    scale_rewards=True,
)
RECIPES: dict[str, Recipe] = {
    "hand-rotate": Recipe(shaping=shape_hand),
    "cheetah": RUNNER,
    "walker": RUNNER,
    "ant-reach": Recipe(
        steps=10_000_000,
        horizon=25,
        gamma=0.97,
        entropy=0.0,
        widths=(256, 128),
        scale_rewards=True,
        shaping=shape_ant,
    ),
}


def recipe_for(task: str, steps: int | None) -> Recipe:
    """A task's, with other steps where they are given."""
    if task not in RECIPES:
        raise InvalidSettings(f"the expert of {task!r} is a program, not trained; trained are {', '.join(RECIPES)}.")
    if steps is not None and steps < 1:
        raise InvalidSettings(f"steps must be at least 1; they are {steps}.")
    return RECIPES[task] if steps is None else replace(RECIPES[task], steps=steps)


def perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """Layers with ELU between them."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ELU()]
    return nn.Sequential(*layers[:-1])


@final
class Moments:
    """The running mean and variance of rows."""

    def __init__(self, size: int, device: torch.device):
        self.mean, self.var = torch.zeros(size, device=device), torch.ones(size, device=device)
        self.count = 1e-4

    def update(self, x: Tensor) -> None:
        """Take these rows in; the far past counts as two million of them at most."""
        total, delta = self.count + len(x), x.mean(0) - self.mean
        spread = self.var * self.count + x.var(0, correction=0) * len(x) + delta**2 * self.count * len(x) / total
        self.mean, self.var = self.mean + delta * len(x) / total, spread / total
        self.count = min(total, 2e6)


@final
@dataclass(frozen=True)
class Report:
    """How far the training is."""

    steps: int
    seconds: float
    success: float
    """Of the last episodes that ended."""
    returns: float
    """Of them, in the task's own reward."""
    std: float


@final
class Learner:
    """Policy, value and what they need to see."""

    def __init__(self, recipe: Recipe, obs: int, act: int, device: torch.device):
        self.recipe, self.device = recipe, device
        self.policy = perceptron((obs, *recipe.widths, act)).to(device)
        self.value = perceptron((obs, *recipe.widths, 1)).to(device)
        self.log_std = nn.Parameter(torch.full((act,), float(np.log(recipe.std)), device=device))
        with torch.no_grad():
            last = self.policy[-1]
            assert isinstance(last, nn.Linear)
            last.weight.mul_(0.01)
            last.bias.zero_()
        self.parameters = [*self.policy.parameters(), *self.value.parameters(), self.log_std]
        self.optimiser = torch.optim.Adam(self.parameters, recipe.lr)
        self.seen = Moments(obs, device)

    def look(self, obs: Doubles) -> Tensor:
        """What the networks see."""
        x = torch.tensor(obs, dtype=torch.float32, device=self.device)
        return ((x - self.seen.mean) / (self.seen.var.sqrt() + 1e-6)).clamp(-10, 10)

    def log_density(self, mean: Tensor, act: Tensor) -> Tensor:
        """Of a Gaussian, but for a constant."""
        return (-0.5 * ((act - mean) / self.log_std.exp()) ** 2 - self.log_std).sum(-1)

    def read(self, path: Path) -> None:
        """Go on from an expert's file. It holds no value: that is learned anew before the policy moves."""
        layers, mean, std, spread = read_weights(path)
        linear = [layer for layer in self.policy if isinstance(layer, nn.Linear)]
        sizes = [tuple(layer.weight.T.shape) for layer in linear]
        if (found := [weight.shape for weight, _ in layers]) != sizes:
            raise InvalidSettings(f"{path} holds layers of {found}; the recipe's are {sizes}.")
        with torch.no_grad():
            for layer, (weight, bias) in zip(linear, layers, strict=True):
                layer.weight.copy_(torch.tensor(weight.T))
                layer.bias.copy_(torch.tensor(bias))
            self.log_std.copy_(torch.tensor(spread).log())
        self.seen.mean, self.seen.var = (
            torch.tensor(values, dtype=torch.float32, device=self.device) for values in (mean, std**2)
        )
        self.seen.count = 2e6

    def improve(
        self, obs: Tensor, act: Tensor, log_old: Tensor, advantage: Tensor, returns: Tensor, *, value_only: bool
    ) -> None:
        """Some epochs over what was just seen."""
        recipe = self.recipe
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(recipe.epochs):
            for rows in torch.randperm(len(obs), device=self.device).split(recipe.batch):
                mean = self.policy(obs[rows])
                ratio = (self.log_density(mean, act[rows]) - log_old[rows]).exp()
                held = ratio.clamp(1 - recipe.clip, 1 + recipe.clip)
                gain = torch.min(ratio * advantage[rows], held * advantage[rows]).mean()
                error = 0.5 * (self.value(obs[rows])[:, 0] - returns[rows]).square().mean()
                outside = 0.01 * (mean.abs() - 1).clamp_min(0).square().mean()
                loss = error if value_only else error + outside - gain - recipe.entropy * self.log_std.sum()
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 1.0)
                self.optimiser.step()

    def tensors(self) -> dict[str, Tensor]:
        """As an expert reads them."""
        layers = [layer for layer in self.policy if isinstance(layer, nn.Linear)]
        named = {f"weight.{k}": layer.weight.detach().T for k, layer in enumerate(layers)}
        named |= {f"bias.{k}": layer.bias.detach() for k, layer in enumerate(layers)}
        return named | {
            "obs_mean": self.seen.mean,
            "obs_std": self.seen.var.sqrt() + 1e-6,
            "act_std": self.log_std.detach().exp(),
        }


def train_expert(
    task: Task, recipe: Recipe, *, seed: int = 0, device: str = "cpu", begin: Path | None = None
) -> Iterator[tuple[Report, Learner]]:
    """Play and improve, a report each time; `begin` is an expert's file to go on from."""
    torch.manual_seed(seed)
    rng = np.random.default_rng([4_000_000, seed])
    env = task.make(recipe.rows, **recipe.options)
    rows = np.arange(recipe.rows)
    env.reset(rows, rng.spawn(recipe.rows))
    learner = Learner(recipe, task.obs_size, task.act_size, torch.device(device))
    if begin is not None:
        learner.read(begin)
    length, total, discounted = np.zeros(recipe.rows, int), np.zeros(recipe.rows), np.zeros(recipe.rows)
    spread = Moments(1, torch.device("cpu"))
    ended: list[tuple[bool, float]] = []
    steps, begun = 0, time.monotonic()
    while steps < recipe.steps:
        for group in learner.optimiser.param_groups:
            group["lr"] = recipe.lr * (1 - 0.9 * steps / recipe.steps)
        history: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]] = []
        for _ in range(recipe.horizon):
            obs = env.observe(rows)
            learner.seen.update(torch.tensor(obs, dtype=torch.float32, device=learner.device))
            with torch.no_grad():
                x = learner.look(obs)
                mean = learner.policy(x)
                act = mean + learner.log_std.exp() * torch.randn_like(mean)
                log, value = learner.log_density(mean, act), learner.value(x)[:, 0]
            outcome = env.step(rows, act.cpu().numpy())
            reward, over = recipe.shaping(env, rows, outcome)
            length, total = length + 1, total + outcome.reward
            cut = (length >= task.horizon) & ~over
            if recipe.scale_rewards:
                discounted = discounted * recipe.gamma + reward
                spread.update(torch.tensor(discounted, dtype=torch.float32)[:, None])
                reward = reward / float(spread.var.sqrt()[0] + 1e-6)
                discounted[over | cut] = 0
            if cut.any():
                with torch.no_grad():
                    beyond = learner.value(learner.look(env.observe(rows[cut])))[:, 0].cpu().numpy()
                reward[cut] += recipe.gamma * beyond
            fresh = rows[over | cut]
            history.append((x, act, log, value, _tensor(reward, learner), _tensor(over | cut, learner)))
            if len(fresh):
                ended += list(zip(outcome.success[fresh].tolist(), total[fresh].tolist(), strict=True))
                env.reset(fresh, rng.spawn(len(fresh)))
                length[fresh], total[fresh] = 0, 0
        steps += recipe.rows * recipe.horizon
        with torch.no_grad():
            after = learner.value(learner.look(env.observe(rows)))[:, 0]
        advantages, advantage = list[Tensor](), torch.zeros_like(after)
        for _, _, _, value, reward, over in reversed(history):
            delta = reward + recipe.gamma * after * (1 - over) - value
            advantage = delta + recipe.gamma * recipe.trace * (1 - over) * advantage
            advantages.insert(0, advantage)
            after = value
        obs_all, act_all, log_all, value_all, *_ = (torch.cat(part) for part in zip(*history, strict=True))
        flat = torch.cat(advantages)
        value_only = begin is not None and steps <= VALUE_FIRST * recipe.rows * recipe.horizon
        learner.improve(obs_all, act_all, log_all, flat, flat + value_all, value_only=value_only)
        ended = ended[-500:]
        success, returns = np.mean(ended, axis=0) if ended else (0.0, 0.0)
        std = float(learner.log_std.detach().exp().mean())
        yield Report(steps, time.monotonic() - begun, float(success), float(returns), std), learner
    env.close()


def _tensor(values: npt.NDArray[Any], learner: Learner) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=learner.device)


def save_expert(path: Path, learner: Learner, about: dict[str, Any]) -> None:
    """Write the weights; an existing file is not replaced."""
    refuse_existing(path)
    write_tensors(path, {name: t.cpu().contiguous() for name, t in learner.tensors().items()}, about)
