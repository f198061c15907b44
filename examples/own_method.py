"""Write a method of your own, check it, train it, save it and load it."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from torch.nn.functional import smooth_l1_loss

import diffclone
from diffclone.methods import METHODS
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training
from diffclone.nn import Network, PolicyNet, policy_net
from diffclone.rng import Rng
from diffclone.shapes import Act, Obs
from diffclone.testing import check_method


@METHODS.register("huber")
@final
@dataclass(frozen=True)
class Huber(Method[PolicyNet]):
    """Behavioural cloning with the Huber loss."""

    training: Training = Training(updates=500, lr=1e-3)
    network: Network = Network(width=32, depth=2)

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        """Make the weights, one set per member."""
        return policy_net(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return one number per member: the mean over the batch and the dimensions of the action."""
        act = batch.mask(weights(batch.obs))  # no loss where a chunk of actions is longer than its episode
        return Losses(smooth_l1_loss(act, batch.act.expand_as(act), reduction="none").mean((-2, -1)))

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        """Return actions."""
        return weights(obs)


check_method(Huber())  # raises an AssertionError that names the rule which the class breaks

obs = np.random.default_rng(0).uniform(-1, 1, (500, 3))
demos = diffclone.Demonstrations.from_arrays(obs, np.sin(obs[:, :2]), episode_ends=[250, 500])
policy = diffclone.fit(Huber(), demos, seeds=range(3))
folder = Path("runs/own-method")
if not folder.exists():
    policy.save(folder)
print(diffclone.Policy.load(folder))
