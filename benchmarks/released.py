"""Training in the style of the released code, one member at a time: what `diffclone bench` compares with.

A loader that fetches pair by pair and shuffles, a plain network (with its hidden layer that nothing reaches), Adam as
PyTorch has it by default, a limit on the gradient, and every loss fetched from the device at every update. Pairs wait
on the CPU: fetching them one by one from a GPU is slower still. Written anew from a description of what that code
does; the losses are ours to the last digit that matters (tests/test_benchmarks.py).
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.speed.cases import TrainingSetup
from benchmarks.speed.timing import Candidate
from diffclone.data.normaliser import LIMIT
from diffclone.methods import DBC
from diffclone.model import Model
from diffclone.nn.diffusion import Diffusion, sigmoid_betas
from diffclone.nn.layers import MLP

STEPS, HIDDEN = 1000, 3


class Denoiser(nn.Module):
    """ε̂: h ← relu(W h + e[t]) three times, then a linear output. The fourth hidden layer is made and never called."""

    def __init__(self, size: int, width: int):
        super().__init__()
        sizes = [size] + [width] * HIDDEN
        self.layers = nn.ModuleList([*(nn.Linear(a, b) for a, b in pairwise(sizes)), nn.Linear(width, width)])
        self.tables = nn.ModuleList(nn.Embedding(STEPS, width) for _ in range(HIDDEN))
        self.out = nn.Linear(width, size)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        for layer, table in zip(self.layers, self.tables, strict=False):
            x = torch.relu(layer(x) + table(t))
        return self.out(x)


class PolicyNetwork(nn.Module):
    """π: tanh after each hidden layer, a linear output."""

    def __init__(self, seen: int, acted: int, width: int, depth: int):
        super().__init__()
        sizes = [seen] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(width, acted)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


class Schedule(nn.Module):
    """√ᾱ and √(1 − ᾱ) of every step."""

    signal: Tensor
    noise: Tensor

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        kept = torch.cumprod(1 - sigmoid_betas(STEPS), 0)
        self.register_buffer("signal", kept.sqrt().to(dtype))
        self.register_buffer("noise", (1 - kept).sqrt().to(dtype))

    def error(self, net: nn.Module, x: Tensor, t: Tensor, eps: Tensor) -> Tensor:
        """Mean over rows and dimensions of (ε − ε̂)²."""
        x_t = self.signal[t][:, None] * x + self.noise[t][:, None] * eps
        return (eps - net(x_t, t)).square().mean()


def copied(layer: nn.Linear, ours: Any, member: int) -> None:
    """Take a member's layer over: weights lie the other way round here."""
    layer.weight.data = ours.weight[member].detach().T.clone()
    layer.bias.data = ours.bias[member, 0].detach().clone()


def denoiser_of(ours: Diffusion, member: int = 0) -> Denoiser:
    """A member of our diffusion model, in this form."""
    inner: Any = ours.denoiser
    width, size = inner.out.weight.shape[-2:]
    net = Denoiser(size, width).to(inner.out.weight)
    for layer, theirs in zip(net.layers, inner.layers, strict=False):
        copied(cast(nn.Linear, layer), theirs, member)
    for table, theirs in zip(net.tables, inner.tables, strict=True):
        cast(nn.Embedding, table).weight.data = theirs[member].detach().clone()
    copied(net.out, inner.out, member)
    return net


def policy_of(ours: MLP, member: int = 0) -> PolicyNetwork:
    """A member of our policies, in this form."""
    inner: Any = ours
    seen, width = inner.hidden[0].weight.shape[-2:]
    net = PolicyNetwork(seen, inner.out.weight.shape[-1], width, len(inner.hidden)).to(inner.out.weight)
    for layer, theirs in zip(net.layers, inner.hidden, strict=True):
        copied(cast(nn.Linear, layer), theirs, member)
    copied(net.out, inner.out, member)
    return net


def mirrored_steps(rows: int, device: torch.device) -> Tensor:
    """T in the first half of the rows, T − 1 − t in the second."""
    first = torch.randint(0, STEPS, (math.ceil(rows / 2),), device=device)
    return torch.cat([first, STEPS - 1 - first])[:rows]


def guide_loss(net: nn.Module, schedule: Schedule, obs: Tensor, act: Tensor, t: Tensor, eps: Tensor) -> Tensor:
    """L_diff."""
    return schedule.error(net, torch.cat([obs, act.clamp(-LIMIT, LIMIT)], 1), t, eps)


def bc_loss(net: nn.Module, obs: Tensor, act: Tensor) -> Tensor:
    """L_BC."""
    return nn.functional.mse_loss(net(obs), act)


def dbc_losses(
    net: nn.Module,
    guide: nn.Module,
    schedule: Schedule,
    coefficient: float,
    obs: Tensor,
    act: Tensor,
    t: Tensor,
    eps: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """L, L_BC and L_DM."""
    answer = net(obs)
    bc = nn.functional.mse_loss(answer, act)
    agent = guide_loss(guide, schedule, obs, answer, t, eps)
    expert = guide_loss(guide, schedule, obs, act, t, eps)
    dm = (agent - expert).clamp(min=0)
    return bc + coefficient * dm, bc, dm


def forever(loader: DataLoader[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    """Epoch after epoch."""
    while True:
        yield from loader


class Loop:
    """One member of a case in training."""

    def __init__(self, setup: TrainingSetup):
        session, self.model, self.kind = setup.session, setup.model, setup.case.model
        self.device, training = session.device, setup.model.training
        pairs = TensorDataset(session.data.obs.cpu(), session.data.act.cpu())
        # The diffusion model keeps the last, smaller batch of an epoch; the policies drop it.
        loader = DataLoader(pairs, training.batch, shuffle=True, drop_last=self.kind != "guide")
        self.batches = forever(loader)
        self.schedule = Schedule(session.dtype).to(self.device)
        start: Any = setup.start()
        self.net = (denoiser_of(start) if self.kind == "guide" else policy_of(start)).to(self.device)
        self.guide = denoiser_of(cast(Diffusion, setup.fixed["guide"])).to(self.device) if setup.fixed else None
        self.adam = torch.optim.Adam(self.net.parameters(), lr=training.lr, eps=training.eps)
        self.done = 0
        self.logged: dict[str, float] = {}

    def losses(self, obs: Tensor, act: Tensor) -> dict[str, Tensor]:
        """What is minimised, and its parts."""
        if self.kind == "bc":
            return {"loss": bc_loss(self.net, obs, act)}
        t = mirrored_steps(len(obs), self.device)
        eps = torch.randn(len(obs), obs.shape[1] + act.shape[1], device=self.device)
        if self.guide is None:
            return {"loss": guide_loss(self.net, self.schedule, obs, act, t, eps)}
        coefficient = coefficient_of(self.model)
        total, bc, dm = dbc_losses(self.net, self.guide, self.schedule, coefficient, obs, act, t, eps)
        return {"loss": total, "L_BC": bc, "L_DM": dm}

    def update(self) -> None:
        """One step of Adam."""
        training = self.model.training
        obs, act = (part.to(self.device) for part in next(self.batches))
        found = self.losses(obs, act)
        if training.decay == "linear":
            for group in self.adam.param_groups:
                group["lr"] = training.lr * (1 - self.done / training.updates)
        self.adam.zero_grad()
        found["loss"].backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), training.clip or math.inf)
        self.adam.step()
        self.logged = {name: value.item() for name, value in found.items()}
        self.done += 1


def candidate(setup: TrainingSetup) -> Candidate:
    """Its loop over the case's pairs; one member, whatever the case has."""
    loop = Loop(setup)

    def run(count: int) -> None:
        for _ in range(count):
            loop.update()

    return Candidate("released", 1, run)


def coefficient_of(model: Model[Any]) -> float:
    """λ."""
    assert isinstance(model, DBC)
    return float(cast(float, model.coefficient))
