"""DBC in LeRobot's training loop, which has one optimiser and passes one batch per step.

Step n of N; the guide φ is trained in the first G steps, as diffclone trains it before the policy:

    n < G    minimise L_diff(φ)                 learning rate  lr_φ (1 − n / G)
    n ≥ G    minimise L(θ), with φ fixed        learning rate  lr_θ (1 − (n − G) / (N − G))

L_diff, L and the networks are diffclone's (`guides/diffusion.py`, `methods/dbc.py`). In each stage only one of the two
has a gradient: the optimiser leaves the other one unchanged, and clipping concerns one model. A step draws the random
numbers of the same update in diffclone, so equal batches give equal weights.

A window of observations or a chunk of actions is one row, as in diffclone. LeRobot repeats the first observation of an
episode before it and the last action after it, and marks these actions (`action_is_pad`), which have no loss.
"""

from collections import deque
from typing import Any

import torch
from lerobot.configs.types import PolicyFeature
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION
from torch import Tensor, nn

from diffclone.model import Batch
from diffclone.rng import Rng
from lerobot_policy_diffclone.configuration_diffclone import DiffcloneConfig


class DiffclonePolicy(PreTrainedPolicy):
    """One member of a diffclone method, with its guide."""

    config_class = DiffcloneConfig
    name = "diffclone"

    obs_varies: Tensor
    """1 for the numbers of an observation that vary in the dataset. The others carry no information and become 0."""
    act_varies: Tensor
    """The same for the numbers of an action."""
    updates: Tensor
    """n, saved with the weights."""
    seed: Tensor
    """The seed of initial weights and noise, drawn from torch's generator, which `lerobot-train --seed` sets."""

    def __init__(self, config: DiffcloneConfig, dataset_stats: dict[str, dict[str, Any]] | None = None, **kwargs: Any):
        super().__init__(config)
        config.validate_features()
        self.config = config
        self.method = config.make_method()
        self.guide_model = config.guide
        self.chunks = config.chunks
        dims, seed = config.dims.windows(self.chunks), int(torch.randint(2**31, ()))
        self.net = self.method.init(dims, Rng([seed], path="policy")["init"])
        self.guide: nn.Module | None = None
        if self.guide_model is not None:
            self.guide = self.guide_model.init(dims, Rng([seed], path="guide")["init"])
        for parameter in self.parameters():  # LeRobot cannot save the optimiser's state of others
            parameter.data = parameter.data.contiguous()
        self.register_buffer("obs_varies", find_varying(config.observation_features, dataset_stats))
        self.register_buffer("act_varies", find_varying({ACTION: config.action_feature}, dataset_stats))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.tensor(seed))
        self.reset()

    def reset(self) -> None:
        """Forget past observations and planned actions: a new episode begins."""
        self.seen: deque[dict[str, Tensor]] = deque(maxlen=self.chunks.history)
        self.planned: deque[Tensor] = deque()

    def get_optim_params(self) -> list[dict[str, Any]]:
        """Return the parameters of each stage with their learning rate."""
        nets: dict[str, nn.Module | None] = {"guide": self.guide, "policy": self.net}
        return [
            {
                "params": list(net.parameters()),
                "stage": stage,
                "lr": float(training.lr),
                "eps": training.eps,
                "weight_decay": float(training.weight_decay),
            }
            for stage, training in self.config.trainings().items()
            if (net := nets[stage]) is not None
        ]

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, dict[str, float]]:
        """Return the loss of the current stage, and its terms."""
        if reduction != "mean":
            raise NotImplementedError("the guide's loss is one number per batch: samples cannot be weighted.")
        act = batch[ACTION].reshape(-1, self.chunks.horizon, len(self.act_varies)) * self.act_varies
        padded, real = batch.get(f"{ACTION}_is_pad"), None
        if padded is not None and self.chunks.horizon > 1:
            real = ~padded[..., None].expand_as(act).flatten(1)[None]
        pairs = Batch(self.windows(batch), act.flatten(1)[None], held_out=not self.training, real=real)
        n, first = int(self.updates), self.config.first_policy_step
        stage = "guide" if n < first else "policy"
        rng = Rng([int(self.seed)], device=act.device, dtype=act.dtype, path=stage)
        rng.clock.start(self.updates - (0 if n < first else first), 1)
        if self.guide is not None:
            self.guide.requires_grad_(stage == "guide")
        if stage == "guide" and self.guide_model is not None:
            losses = self.guide_model.loss(self.guide, pairs, rng, {})
        else:
            parts = {} if self.guide is None else {"guide": self.guide}
            losses = self.method.loss(self.net, pairs, rng, parts)
        return losses.total.sum(), {name: float(value.detach()) for name, value in losses.logs.items()}

    def update(self) -> None:
        """Count a step; LeRobot calls this after the optimiser's step."""
        self.updates += 1

    def observe(self, batch: dict[str, Tensor], steps: int) -> Tensor:
        """Return normalised observations, (batch, steps, size)."""
        # LeRobot stores features of one number without an axis for it: a batch of them is (1, rows).
        features = self.config.observation_features.items()
        obs = torch.cat([batch[key].reshape(-1, steps, feature.shape[0]) for key, feature in features], -1)
        limit = self.config.observation_limit
        return (obs if limit is None else obs.clamp(-limit, limit)) * self.obs_varies

    def windows(self, batch: dict[str, Tensor]) -> Tensor:
        """Return windows of observations as diffclone's networks take them, (1, batch, history · size)."""
        return self.observe(batch, self.chunks.history).flatten(1)[None]

    @torch.no_grad()
    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return a chunk of normalised actions, (batch, horizon, size), for windows of observations."""
        self.eval()
        obs = self.windows(batch)
        act = self.method.act(self.net, obs, Rng([int(self.seed)], device=obs.device, dtype=obs.dtype, path="act"))
        return act[0].unflatten(-1, (self.chunks.horizon, -1)) * self.act_varies

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the next action, (batch, size), for the current observation: of the last chunk, or of a new one."""
        now = {key: batch[key] for key in self.config.observation_features}
        for _ in range(self.chunks.history if not self.seen else 1):
            self.seen.append(now)
        if not self.planned:
            window = {key: torch.stack([step[key] for step in self.seen], 1) for key in now}
            self.planned.extend(self.predict_action_chunk(window).transpose(0, 1)[: self.chunks.execute])
        return self.planned.popleft()


def find_varying(features: dict[str, PolicyFeature], stats: dict[str, dict[str, Any]] | None) -> Tensor:
    """Return 1 for the numbers of these features with a standard deviation above 0, and for all without statistics."""
    stds = [torch.ones(f.shape) if not stats or key not in stats else stats[key]["std"] for key, f in features.items()]
    return torch.cat([(torch.as_tensor(std).reshape(-1) > 0).float() for std in stds])
