"""Training with torch.func.vmap, all members at once: what `diffclone bench` compares with.

The plain networks of `released.py`, their weights stacked by `stack_module_state`; gradients by vmap over grad, clipped
member by member; Adam with its fused kernel; pairs resident on the device, and nothing fetched from it. Not compiled.
One update is ours to the last digit that matters (tests/test_benchmarks.py).
"""

import copy
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.released import (
    STEPS,
    Schedule,
    bc_loss,
    coefficient_of,
    dbc_losses,
    denoiser_of,
    guide_loss,
    policy_of,
)
from benchmarks.speed.cases import TrainingSetup
from benchmarks.speed.timing import Candidate
from diffclone.nn.diffusion import Diffusion

Draws = tuple[Tensor, ...]
"""Observations, actions and, where there is a diffusion model, t and ε: (members, batch, …)."""


class Stacked:
    """All members of a case."""

    def __init__(self, setup: TrainingSetup):
        session, case = setup.session, setup.case
        self.model, self.pairs, self.device, self.dtype = setup.model, session.data, session.device, session.dtype
        self.members, self.kind = case.members, case.model
        start: Any = setup.start()
        make: Callable[..., nn.Module] = denoiser_of if case.model == "guide" else policy_of
        nets = [make(start, member).to(self.device) for member in range(case.members)]
        self.weights, _ = stack_module_state(nets)
        if case.model == "guide":  # of the hidden layer that nothing reaches
            self.weights = {name: w for name, w in self.weights.items() if not name.startswith("layers.3")}
        self.plain = copy.deepcopy(nets[0])
        self.guide = denoiser_of(cast(Diffusion, setup.fixed["guide"])).to(self.device) if setup.fixed else None
        self.schedule = Schedule(self.dtype).to(self.device)
        training = self.model.training
        self.adam = torch.optim.Adam(self.weights.values(), lr=training.lr, eps=training.eps, fused=True)
        self.done = 0
        self.gradients = vmap(grad(self.loss))

    def loss(self, weights: dict[str, Tensor], *draws: Tensor) -> Tensor:
        """Of one member."""

        def net(*inputs: Tensor) -> Tensor:
            return functional_call(self.plain, weights, inputs)

        called = cast(nn.Module, net)
        if self.kind == "bc":
            return bc_loss(called, *draws)
        if self.guide is None:
            return guide_loss(called, self.schedule, *draws)
        return dbc_losses(called, self.guide, self.schedule, coefficient_of(self.model), *draws)[0]

    def draws(self) -> Draws:
        """A batch a member."""
        batch, members = self.model.training.batch, self.members
        index = torch.randint(0, len(self.pairs.act), (members, batch), device=self.device)
        obs, act = self.pairs.obs[index], self.pairs.act[index]
        if self.kind == "bc":
            return obs, act
        first = torch.randint(0, STEPS, (members, math.ceil(batch / 2)), device=self.device)
        t = torch.cat([first, STEPS - 1 - first], 1)[:, :batch]
        return obs, act, t, torch.randn(members, batch, obs.shape[-1] + act.shape[-1], device=self.device)

    def update(self, *draws: Tensor) -> None:
        """One step of Adam for every member."""
        training = self.model.training
        gradients = self.gradients({name: w.detach() for name, w in self.weights.items()}, *draws)
        if training.clip is not None:
            squares = [g.flatten(1).square().sum(1) for g in gradients.values()]
            norm = torch.stack(squares).sum(0).sqrt()
            scale = (training.clip / (norm + 1e-6)).clamp(max=1.0)
            gradients = {n: g * scale.view(-1, *[1] * (g.dim() - 1)) for n, g in gradients.items()}
        for name, weight in self.weights.items():
            weight.grad = gradients[name]
        if training.decay == "linear":
            for group in self.adam.param_groups:
                group["lr"] = training.lr * (1 - self.done / training.updates)
        self.adam.step()
        self.done += 1


def candidate(setup: TrainingSetup) -> Candidate:
    """Its loop over the case's pairs."""
    stacked = Stacked(setup)

    def run(count: int) -> None:
        for _ in range(count):
            stacked.update(*stacked.draws())

    return Candidate("vmap", setup.case.members, run)
