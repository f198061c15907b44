"""Soft actor-critic with truncated quantile critics (SAC, TQC), for several independent members at once.

    a = tanh(u),   u ~ N(μ(s), σ(s)²)          log π(a|s) = log N(u; μ, σ²) − Σ log(1 − a²)
    z(s, a)        C critics with Q quantiles each; the D·C largest of all C·Q are dropped from a target
    y_i = r + γ (1 − end) (z̄_i(s′, a′) − α log π(a′|s′))                     z̄: moving average of the critics
    L_critic = E ρ_τ(y_i − z_q)                ρ_τ(δ) = |τ − 1[δ < 0]| · huber(δ),   τ = (q − ½) / Q
    L_actor  = E α log π(a|s) − mean z(s, a)
    L_α      = −log α · E (log π(a|s) − act_size)

Each member has its own environments, replay buffer and weights. Tensors are (members, batch, feature), so one matrix
product serves all members and a gradient step costs little more than that of one member. On a GPU the updates of a
round are captured in one CUDA graph, and the environments step while it runs.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from diffclone.errors import InvalidSettings
from diffclone.tasks import Task
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Doubles
from diffclone.tasks.experts import OBS_LIMIT, read_weights
from scripts.play import play
from scripts.stacked import StackedMLP

LOG_STD_RANGE = (-5.0, 2.0)
START_ALPHA = 0.02
"""α at the start of a training that continues from a file."""


@final
@dataclass(frozen=True)
class SACOptions:
    """Hyperparameters. The defaults are those of Walker."""

    steps: int = 10_000_000
    """Number of environment steps of each member."""
    members: int = 3
    """Number of independent trainings."""
    rows: int = 16
    """Number of environments of each member, stepped together."""
    updates: int = 4
    """Number of updates per step of the environments."""
    batch: int = 256
    """Batch size of each member."""
    lr: float = 3e-4
    """Learning rate."""
    gamma: float = 0.99
    """γ, the discount factor."""
    average: float = 0.005
    """Share of the critics in each update of their moving average."""
    widths: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the policy."""
    critic_widths: tuple[int, ...] = (512, 512)
    """Widths of the hidden layers of the critics, which have layer norm."""
    critics: int = 2
    """C, the number of critics."""
    quantiles: int = 25
    """Q, the number of quantiles of a critic."""
    dropped: int = 2
    """D, the number of dropped quantiles per critic; more of them lower the target."""
    capacity: int = 1_000_000
    """Number of steps in each replay buffer."""
    warmup: int = 10_000
    """Number of steps of each member before the first update, with random actions or those of the file."""
    critic_updates: int = 5_000
    """Number of updates in which only the critics are trained, if the policy was read from a file."""
    evaluate_every: int = 60_000
    """Number of steps of each member between evaluations."""
    episodes: int = 10
    """Number of episodes of each member in an evaluation, on validation starts."""
    graph: bool = True
    """On a GPU: whether the updates of a round are captured in a CUDA graph."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Options of the task's environments."""


@final
@dataclass(frozen=True)
class SACReport:
    """Progress of the training."""

    steps: int
    """Environment steps of each member."""
    updates: int
    seconds: float
    success: list[float]
    """Success rate of each member's mean action, on validation starts."""
    returns: list[float]
    """Mean return of each member's mean action, on validation starts."""
    alpha: list[float]


def quantile_loss(targets: Tensor, quantiles: Tensor) -> Tensor:
    """Return E ρ_τ(y_i − z_q) over the last two axes, from targets (…, targets) and quantiles (…, Q)."""
    count = quantiles.shape[-1]
    tau = (torch.arange(count, device=quantiles.device) + 0.5) / count
    delta = targets[..., None, :] - quantiles[..., :, None]
    huber = functional.smooth_l1_loss(delta, torch.zeros_like(delta), reduction="none")
    return ((tau[:, None] - (delta < 0).float()).abs() * huber).mean((-2, -1))


@final
class Learner:
    """Policies, critics and replay buffers of all members."""

    def __init__(self, options: SACOptions, obs: int, act: int, device: torch.device):
        self.options, self.device, self.sizes = options, device, (obs, act)
        members, critics = options.members, options.critics
        critic_sizes = (obs + act, *options.critic_widths, options.quantiles)
        self.policy = StackedMLP((members,), (obs, *options.widths, 2 * act), norm=False).to(device)
        self.critic = StackedMLP((members, critics), critic_sizes, norm=True).to(device)
        self.averaged = StackedMLP((members, critics), critic_sizes, norm=True).to(device)
        self.averaged.load_state_dict(self.critic.state_dict())
        self.log_alpha = nn.Parameter(torch.zeros(members, device=device))
        self.replay = torch.zeros(members, options.capacity, 2 * obs + act + 2, device=device)
        self.stored, self.size = 0, torch.zeros((), device=device)
        parts = (self.policy.parameters(), self.critic.parameters(), [self.log_alpha])
        self.parameters = [list(part) for part in parts]
        on_gpu = device.type == "cuda"
        self.optimisers = [torch.optim.Adam(p, options.lr, fused=on_gpu, capturable=on_gpu) for p in self.parameters]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.critics_only = 0
        """Number of updates left in which only the critics are trained."""

    @torch.no_grad()
    def load(self, path: Path, critic_updates: int) -> None:
        """Read an expert's file into the policies of all members. It has no critics: they are trained first."""
        read, (_, act_size) = read_weights(path), self.sizes
        if not read.squash or (read.obs_mean != 0).any() or (read.obs_std != 1).any():
            raise InvalidSettings(f"{path} was not trained by SAC; SAC cannot start from it.")
        sizes = [tuple(weight.shape[1:]) for weight in self.policy.weights]
        sizes[-1] = (sizes[-1][0], act_size)  # the file is without log σ
        if (found := [weight.shape for weight, _ in read.layers]) != sizes:
            raise InvalidSettings(f"{path} has layers of {found}; the options need {sizes}.")
        for k, (weight, bias) in enumerate(read.layers):
            self.policy.weights[k].zero_()[:, :, : weight.shape[1]] = torch.tensor(weight)
            self.policy.biases[k][:, :, : len(bias)] = torch.tensor(bias)
        self.policy.biases[-1][:, :, act_size:] = torch.tensor(read.act_std).log()
        self.log_alpha.fill_(math.log(START_ALPHA))
        self.critics_only = critic_updates

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ(s) and log σ(s)."""
        mean, log_std = self.policy(obs.clamp(-OBS_LIMIT, OBS_LIMIT)).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return sampled actions and log π."""
        mean, log_std = self.distribution(obs)
        noise = torch.randn_like(mean)
        before = mean + log_std.exp() * noise
        log = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_slope = 2 * (math.log(2) - before - functional.softplus(-2 * before))  # log(1 − tanh²)
        return before.tanh(), (log - log_slope).sum(-1)

    def quantiles(self, critic: StackedMLP, obs: Tensor, act: Tensor) -> Tensor:
        """Return z(s, a), (members, critics, batch, Q)."""
        return critic(torch.cat([obs, act], -1)[:, None])

    @torch.no_grad()
    def act(self, obs: Doubles, *, sample: bool) -> Doubles:
        """Return actions for observations (members, rows, observation size)."""
        x = torch.as_tensor(obs, dtype=torch.float32).to(self.device)
        act = self.draw(x)[0] if sample else self.distribution(x)[0].tanh()
        return act.cpu().numpy().astype(np.float64)

    def store(self, steps: Doubles) -> None:
        """Put steps (members, rows, fields) into the buffers; the oldest are overwritten."""
        count, capacity = steps.shape[1], self.options.capacity
        places = torch.arange(self.stored, self.stored + count, device=self.device) % capacity
        self.replay[:, places] = torch.as_tensor(steps, dtype=torch.float32).to(self.device)
        self.stored += count
        self.size.fill_(min(self.stored, capacity))

    def run_updates(self) -> None:
        """Do the updates of a round."""
        if self.critics_only > 0:
            self.critics_only -= self.options.updates
            self.graph = None if self.critics_only <= 0 else self.graph
        if self.graph is not None:
            self.graph.replay()
            return
        for _ in range(self.options.updates):
            self.update()
        if self.options.graph and self.device.type == "cuda":  # the updates above were the warm-up of the graph
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                for _ in range(self.options.updates):
                    self.update()

    def update(self) -> None:
        """Do one gradient step of the critics, the policy and α, and move the average."""
        options, (obs_size, act_size) = self.options, self.sizes
        chosen = (torch.rand(options.members, options.batch, device=self.device) * self.size).long()
        steps = self.replay[torch.arange(options.members, device=self.device)[:, None], chosen]
        obs, act, after, reward, end = steps.split([obs_size, act_size, obs_size, 1, 1], -1)
        alpha = self.log_alpha.detach().exp()[:, None]
        with torch.no_grad():
            next_act, next_log = self.draw(after)
            z = self.quantiles(self.averaged, after, next_act).transpose(1, 2).flatten(2).sort(-1).values
            z = z[..., : options.critics * (options.quantiles - options.dropped)]
            targets = reward + options.gamma * (1 - end) * (z - (alpha * next_log)[..., None])
        error = quantile_loss(targets[:, None], self.quantiles(self.critic, obs, act))
        self._step(1, error.mean((1, 2)).sum())  # a sum over members keeps them independent
        with torch.no_grad():
            for slow, fast in zip(self.averaged.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(fast, options.average)
        if self.critics_only > 0:
            return
        new_act, log = self.draw(obs)
        value = self.quantiles(self.critic, obs, new_act).mean((1, 3))
        self._step(0, (alpha * log - value).mean(1).sum())
        self._step(2, -(self.log_alpha * (log.detach().mean(1) - act_size)).sum())

    def _step(self, part: int, loss: Tensor) -> None:
        parameters = self.parameters[part]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        self.optimisers[part].step()

    @torch.no_grad()
    def tensors(self, member: int) -> dict[str, Tensor]:
        """Return the contents of a member's expert file; σ is the mean over steps in the buffer."""
        obs_size, act_size = self.sizes
        recent = self.replay[:, : max(1, min(self.stored, self.options.capacity)) : 97, :obs_size]
        std = self.distribution(recent)[1].exp().mean(1)[member]
        weights = [weight[member] for weight in self.policy.weights]
        biases = [bias[member, 0] for bias in self.policy.biases]
        weights[-1], biases[-1] = weights[-1][:, :act_size], biases[-1][:act_size]  # without log σ
        named = {f"weight.{k}": weight for k, weight in enumerate(weights)}
        named |= {f"bias.{k}": bias for k, bias in enumerate(biases)}
        zeros = torch.zeros(obs_size, device=self.device)
        named |= {"obs_mean": zeros, "obs_std": zeros + 1, "act_std": std, "squash": zeros[:1] + 1}
        return {name: tensor.float().contiguous().cpu().clone() for name, tensor in named.items()}


def train(
    task: Task, options: SACOptions, *, seed: int = 0, device: str = "cpu", weights: Path | None = None
) -> Iterator[tuple[SACReport, Learner]]:
    """Train, and yield a report and the learner after each evaluation; `weights` is an expert's file to start from."""
    torch.manual_seed(seed)
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    learner = Learner(options, task.obs_size, task.act_size, torch.device(device))
    if weights is not None:
        learner.load(weights, options.critic_updates)
    env = task.make(options.members * options.rows, **options.options)
    try:
        yield from _run(env, task, learner, np.random.default_rng([START_SEEDS["training"], seed]))
    finally:
        env.close()


def _run(env: BatchEnv, task: Task, learner: Learner, rng: np.random.Generator) -> Iterator[tuple[SACReport, Learner]]:
    options, begun = learner.options, time.monotonic()
    rows, shape = np.arange(env.count), (options.members, options.rows)
    env.reset(rows, rng.spawn(env.count))
    obs, length = env.observe(rows).reshape(*shape, -1), np.zeros(env.count, dtype=np.int64)
    steps = updates = evaluated = 0
    while steps < options.steps:
        warm, random = steps >= options.warmup, steps < options.warmup and learner.critics_only <= 0
        act = rng.uniform(-1, 1, (*shape, task.act_size)) if random else learner.act(obs, sample=True)
        if warm:
            learner.run_updates()  # on a GPU this returns at once
            updates += options.updates
        outcome = env.step(rows, act.reshape(env.count, -1))
        after = env.observe(rows).reshape(*shape, -1)
        scalars = np.stack([outcome.reward, outcome.ended.astype(np.float64)], 1).reshape(*shape, 2)
        learner.store(np.concatenate([obs, act, after, scalars], -1))
        length, steps, obs = length + 1, steps + options.rows, after
        if len(fresh := rows[outcome.ended | (length >= task.horizon)]):
            env.reset(fresh, rng.spawn(len(fresh)))
            length[fresh] = 0
            obs = env.observe(rows).reshape(*shape, -1)
        if steps - evaluated >= options.evaluate_every or steps >= options.steps:
            evaluated = steps
            scores = play(
                task, lambda seen: learner.act(seen, sample=False), options.members, options.episodes, options.options
            )
            means = (scores.success.mean(1).tolist(), scores.returns.mean(1).tolist())
            alpha = learner.log_alpha.detach().exp().tolist()
            yield SACReport(steps, updates, time.monotonic() - begun, *means, alpha), learner
