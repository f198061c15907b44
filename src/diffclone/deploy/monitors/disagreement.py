"""The disagreement of a policy's members.

â_m   = normalised action of member m in state s, clipped to ±10 only (`Context`), also if the policy clips it closer
score = mean over action dimensions of the standard deviation of â_m over m

It ignores the action a. Members that sample their actions also differ by the sampling. They draw the same numbers for
every row, so that a pair has one score, alone and in a batch: calibrated thresholds hold only then.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import torch
from torch import Tensor, nn

from diffclone.deploy.monitors.base import SEED, Context, PairScore
from diffclone.errors import InvalidSettings
from diffclone.model import Dims, Method
from diffclone.nn.images import ConvNet
from diffclone.nn.layers import MLP
from diffclone.rng import Rng
from diffclone.training.step import Dataset


@final
@dataclass(frozen=True)
class DisagreementScore(PairScore[nn.Module]):
    """The standard deviation of the members' actions."""

    needs_pairs: ClassVar[bool] = False
    uses_members: ClassVar[bool] = True

    def init(self, context: Context, dims: Dims, rng: Rng) -> nn.Module:
        """Return no weights: the members' are those of the policy."""
        members = 0 if context.net is None else next(context.net.parameters()).shape[0]
        if members < 2:
            raise InvalidSettings(
                f"the score 'disagreement' needs at least 2 members; the policy has {members}. Train more: --seeds 5."
            )
        if context.encodes:
            raise InvalidSettings("the score 'disagreement' does not support policies with an encoder.")
        return nn.Module()

    def fit(self, context: Context, pairs: Dataset, rng: Rng) -> nn.Module:
        """Return no weights."""
        return self.init(context, context.dims, rng)

    def score(self, weights: nn.Module, context: Context, s: Tensor, a: Tensor) -> Tensor:
        """Return the standard deviation."""
        net = cast(nn.Module, context.net)
        members = next(net.parameters()).shape[0]
        method, seeds = cast(Method[Any], context.method), [SEED + m for m in range(members)]

        def act_on(rows: Tensor) -> Tensor:
            rng = Rng(seeds, device=s.device, dtype=s.dtype)["disagreement"]
            return method.act(net, rows.expand(members, -1, -1), rng)

        # A plain network draws nothing. Other methods draw numbers by row, so each row is scored alone.
        act = act_on(s) if isinstance(net, MLP | ConvNet) else torch.cat([act_on(row) for row in s.split(1)], -2)
        squares = (act.double() - act.double().mean(0)).square().sum(0) / (members - 1)
        return squares.sqrt().mean(-1)[None]
