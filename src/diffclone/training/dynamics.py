"""A model of the dynamics, learned from the demonstrations: it predicts how policies would move the state.

    s' = s + σ_Δ f(s, a)          f: a small network; σ_Δ: the standard deviation of the demonstrations' s' − s
    L  = E ‖f(s, a) − (s' − s) / σ_Δ‖²

Several networks with different seeds form an ensemble. A rollout follows one of them from its start to its end, so that
the ensemble's disagreement appears as different trajectories. States and actions are scaled as `Scale` says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from diffclone.data import Demonstrations
from diffclone.model import Batch, Dims, Losses, Model, Parts, Training
from diffclone.nn import MLP, Network
from diffclone.rng import Rng
from diffclone.training.loop import run_reporting, train_stage
from diffclone.training.members import Stack
from diffclone.training.session import Session
from diffclone.training.step import Dataset
from diffclone.training.windows import has_consecutive_steps

MODELS = 4
"""Networks in the ensemble."""
MOST_IMAGES = 2_000
"""Images that a scale is computed from."""
FLOOR = 0.1
"""Smallest scale of a dimension, relative to the median of all dimensions: a nearly constant one must not dominate."""
PASSES, MIN_UPDATES, MAX_UPDATES = 30, 500, 3_000
"""Passes over the data, and the limits of the updates. More updates over-fit: on 900 steps of FetchPick, predictions
are 0.12 off after 500 updates and 0.31 after 3,000."""
MARGIN = 1.0
"""How far, in scaled units, a simulated state may leave the range of the demonstrations."""


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """Means and scales of states and actions: standard deviations, with a floor."""

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor

    @classmethod
    def from_demonstrations(cls, demos: Demonstrations, device: torch.device) -> "Scale":
        """Return the scale of demonstrations."""
        statistics: list[Tensor] = []
        # Images are many numbers: the statistics of some are enough.
        rows = np.linspace(0, demos.num_steps - 1, min(demos.num_steps, MOST_IMAGES)).astype(np.int64)
        for values in (demos.observe(rows if demos.obs.dtype == np.uint8 else slice(None)), demos.act):
            x = torch.tensor(values, dtype=torch.float64)
            std = x.std(0, unbiased=False)
            floor = FLOOR * std[std > 0].median() if bool((std > 0).any()) else torch.ones((), dtype=torch.float64)
            statistics += [x.mean(0), std.maximum(floor)]
        return cls(*(x.float().to(device) for x in statistics))

    def scale_obs(self, obs: Tensor) -> Tensor:
        """Scale raw states."""
        return (obs - self.obs_mean) / self.obs_std

    def restore_obs(self, z: Tensor) -> Tensor:
        """Return raw states."""
        return z * self.obs_std + self.obs_mean

    def scale_act(self, act: Tensor) -> Tensor:
        """Scale raw actions."""
        return (act - self.act_mean) / self.act_std


@final
@dataclass(frozen=True)
class DynamicsModel(Model[MLP]):
    """The settings of f. Its observations are pairs (s, a), its actions the change of the state in units of σ_Δ."""

    training: Training = Training(updates=500, lr=1e-3)
    network: Network = Network(width=128, depth=2, activation="relu", init="default")

    def init(self, dims: Dims, rng: Rng) -> MLP:
        """Return initial weights."""
        return MLP(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: MLP, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L."""
        return Losses((weights(batch.obs) - batch.act).square().mean((-2, -1)))


@final
@dataclass(frozen=True, eq=False)
class Dynamics:
    """A trained ensemble."""

    scale: Scale
    net: MLP
    change_std: Tensor
    """σ_Δ, in scaled units; 0 where the state never changes."""
    low: Tensor
    """Simulated states stay between these two, in scaled units."""
    high: Tensor

    @torch.no_grad()
    def step(self, z: Tensor, act: Tensor) -> Tensor:
        """Return the next scaled states of (members, rows, size), each from one network.

        Row r belongs to network r mod MODELS. The number of rows must be a multiple of it.
        """
        x = torch.cat([z, self.scale.scale_act(act)], -1)
        members, rows, size = x.shape
        by_model = x.reshape(members * rows // MODELS, MODELS, size).transpose(0, 1)
        change = self.net(by_model).transpose(0, 1).reshape(members, rows, -1)
        return (z + self.change_std * change).clamp(self.low, self.high)

    def roll_out(self, act: Callable[[Tensor, int], Tensor], starts: Tensor, steps: int) -> list[Tensor]:
        """Return the scaled states after 1, 2, … steps from scaled `starts` (members, rows, size).

        `act` maps raw states and the number of the step to raw actions.
        """
        states, z = list[Tensor](), starts
        for k in range(steps):
            z = self.step(z, act(self.scale.restore_obs(z), k))
            states.append(z)
        return states


def learn_dynamics(
    demos: Demonstrations,
    device: torch.device,
    model: DynamicsModel | None = None,
    progress: Callable[[Any], None] = lambda progress: None,
) -> Dynamics | None:
    """Train an ensemble; None if no episode has two consecutive steps.

    Its training is `model.training` if a model is given, else about thirty passes over the data.
    """
    scale = Scale.from_demonstrations(demos, device)
    if model is None:
        updates = min(max(PASSES * demos.num_steps // 128, MIN_UPDATES), MAX_UPDATES)
        model = DynamicsModel(training=Training(updates=updates, lr=1e-3))
    first = np.ones(demos.num_steps, dtype=bool)
    first[demos.episode_ends - 1] = False
    rows = np.flatnonzero(first)
    if not len(rows) or not has_consecutive_steps(demos.meta):
        return None
    z = scale.scale_obs(torch.tensor(demos.obs, device=device))
    a = scale.scale_act(torch.tensor(demos.act, device=device))
    change = z[rows + 1] - z[rows]
    std = change.square().mean(0).sqrt()
    targets = torch.where(std > 0, change / std.where(std > 0, torch.ones_like(std)), 0.0)
    data = Dataset(torch.cat([z, a], -1)[rows], targets)
    session = Session(data, Dims(data.obs.shape[1], data.act.shape[1]), {}, device)
    stage = train_stage("dynamics", model, Stack(tuple(range(MODELS)), {}), {}, session)
    net, _ = run_reporting(stage, progress).results()
    assert isinstance(net, MLP)
    return Dynamics(scale, net, std, z.amin(0) - MARGIN, z.amax(0) + MARGIN)
