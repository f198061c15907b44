"""Diffusion Model-Augmented Behavioral Cloning.

    L_BC     = E ‖π(s) − a‖²
    L_agent  = cost(s, π(s); t, ε)        L_expert = cost(s, a; t, ε)      the same (t, ε)
    L_DM     = max(L_agent − L_expert, 0)                                  of batch means, as the released code
    L        = L_BC + λ L_DM

The paper's Equation 5 takes the maximum of each pair before the mean: `gate="sample"`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from diffclone.guides.diffusion import DiffusionGuide
from diffclone.methods.bc import imitation_loss
from diffclone.model import Batch, Dims, Guide, Losses, Method, Parts, Training, stackable
from diffclone.nn import Network, PolicyNet, policy_net
from diffclone.rng import Rng
from diffclone.shapes import Act, Obs, Scalar


@final
@dataclass(frozen=True)
class DBC(Method[PolicyNet]):
    """BC with a guide: a model of p(s, a) that says how unlike the expert's a pair is."""

    training: Training = Training(updates=20_000, lr=5e-4, eps=1e-12)
    network: Network = Network()
    """π."""
    coefficient: Scalar = stackable(1.0)
    """λ, the weight of the guide. Members of one stack may differ in it. The paper's tasks have 0.2 to 30."""
    imitation: Scalar = stackable(1.0)
    """The weight of L_BC; 0 learns from the guide alone."""
    guide: Guide[Any] = DiffusionGuide()
    """The model of p(s, a)."""
    subtract_expert: bool = True
    """Whether the expert's own cost is subtracted; if not, L_DM = L_agent."""
    gate: Literal["batch", "sample", "none"] = "batch"
    """Where max(·, 0) stands: on batch means (released code), on each pair (paper), or nowhere."""

    def needs(self) -> Mapping[str, Guide[Any]]:
        """The guide."""
        return {"guide": self.guide}

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        """π's weights."""
        return policy_net(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """L, and its parts."""
        s, a, π = batch.obs, batch.act, weights(batch.obs)
        draw = self.guide.draw(s.shape[-2], Dims(s.shape[-1], a.shape[-1]), rng["guide"])
        bc = imitation_loss(π, a)
        agent = self.guide.cost(parts["guide"], s, π, draw)
        expert = self.guide.cost(parts["guide"], s, a, draw)
        if not self.subtract_expert:
            dm = agent.mean(-1)
        elif self.gate == "batch":
            dm = (agent.mean(-1) - expert.mean(-1)).clamp(min=0)
        elif self.gate == "sample":
            dm = (agent - expert).clamp(min=0).mean(-1)
        else:
            dm = (agent - expert).mean(-1)
        total = self.imitation * bc + self.coefficient * dm
        logs = {"L_BC": bc, "L_DM": dm, "L_agent": agent.mean(-1), "L_expert": expert.mean(-1)}
        return Losses(total, logs, imitated=π)

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        """π(s)."""
        return weights(obs)
