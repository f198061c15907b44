"""Diffusion Model-Augmented Behavioral Cloning.

    L_BC     = E ‖π(s) − a‖²
    L_agent  = cost(s, π(s); t, ε)        L_expert = cost(s, a; t, ε)      with the same (t, ε)
    L_DM     = max(L_agent − L_expert, 0)                                  of batch means, as in the released code
    L        = L_BC + λ L_DM

The paper's Equation 5 takes the maximum per pair, before the mean: `gate="sample"`.

Beyond the paper:
    L_away   = cost(s̃, π(s̃)),   s̃ = s + σ z                                near the expert's states
    L        = L_BC + λ (L_DM + κ L_away)
    π(s + ν z) instead of π(s) in L_BC and L_agent                         `state_noise`, off; the guide sees s
    λ        = ρ ‖∂L_BC/∂π‖ / ‖∂(L_DM + κ L_away)/∂π‖                      `coefficient="auto"`, for each batch

An auto λ is only known in the backward pass, so the logged loss has λ = 1. ‖∂L_BC/∂π‖ includes the weight of L_BC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, final

import torch
from torch import Tensor

from diffclone.errors import InvalidSettings
from diffclone.guides.diffusion import DiffusionGuide
from diffclone.methods.bc import add_state_noise, check_state_noise, imitation_loss
from diffclone.model import Batch, Dims, Guide, Losses, Method, Model, Parts, Training, bind_cost, stackable
from diffclone.nn import Network, PolicyNet, policy_net
from diffclone.nn.encoder import Encoder, EncoderNet
from diffclone.rng import Rng
from diffclone.settings import added, check_types
from diffclone.shapes import Act, Coefficient, Costs, Obs, Scalar, Scalars, is_off, per_row


@final
@dataclass(frozen=True)
class DBC(Method[PolicyNet]):
    """BC with a guide: a model of p(s, a) whose cost is low for pairs like the expert's."""

    update_factor: ClassVar[int] = 1
    training: Training = Training(updates=20_000, lr=5e-4, eps=1e-12)
    """How the policy is trained."""
    network: Network = Network()
    """The network of π."""
    coefficient: Coefficient = stackable(1.0)
    """λ, the weight of the guide. Members of one stack may differ in it. The paper uses 0.2 to 30; "auto" gives the two
    gradients with respect to the action a fixed ratio. 1 is the best single λ over the settings of
    docs/fair-comparison.md from 4,000 updates on."""
    ratio: float = 1.0
    """ρ, the norm of the guide's gradient relative to that of L_BC if λ is auto."""
    imitation: Scalar = stackable(1.0)
    """The weight of L_BC; 0 trains with the guide alone."""
    guide: Guide[Any] = DiffusionGuide()
    """The model of p(s, a)."""
    encoder: Encoder | None = None
    """For images: computes features, which the guide receives instead of images."""
    subtract_expert: bool = True
    """Whether L_expert is subtracted; if not, L_DM = L_agent."""
    gate: Literal["batch", "sample", "none"] = "batch"
    """Where max(·, 0) is applied: to batch means (released code), to each pair (paper), or not at all."""
    away: Scalar = stackable(0.0)
    """κ, the weight of L_away; 0 as in the paper omits it. With 1, policies fail on a pendulum (docs/methods/dbc.md).
    Members of one stack may differ in it."""
    away_noise: Scalar = stackable(0.1)
    """σ, the standard deviation of s̃ from the expert's states, in standard deviations of the demonstrations. Members of
    one stack may differ in it."""
    state_noise: Scalar = added(0.0, stackable=True)
    """ν, the standard deviation of noise added to the states in training, as in `BC`."""

    def __post_init__(self) -> None:
        check_types(self)
        check_state_noise(self.state_noise)
        if self.coefficient == "auto" and bool((torch.as_tensor(self.imitation) == 0).any()):
            raise InvalidSettings(
                "an auto coefficient is relative to the gradient of L_BC, whose weight is 0; set a number."
            )

    @property
    def compilable(self) -> bool:
        """False if λ is "auto": PyTorch 2.11 compiles balanced gradients incorrectly (tests/test_device.py)."""
        return self.coefficient != "auto"

    def needs(self) -> Mapping[str, Model[Any]]:
        """Return the guide, after the encoder if there is one."""
        return {"guide": self.guide} if self.encoder is None else {"encoder": self.encoder, "guide": self.guide}

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        """Return the weights of π."""
        return policy_net(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L, and log its terms."""
        s, a, dropout = batch.obs, batch.act, None if batch.held_out else rng["dropout"]
        π = weights(add_state_noise(batch, self.state_noise, rng), dropout)
        z = None if is_off(self.away) else rng["away"].normal(*s.shape[-2:])
        s_away = None if z is None else s + per_row(self.away_noise) * z
        guided = π if s_away is None else torch.cat([π, weights(s_away, dropout)], -2)
        λ, imitated = self.coefficient, π
        if isinstance(λ, str):
            imitated, guided = balance_gradients(π, guided, self.ratio)
            λ = 1.0
        π_guided, π_away = guided[..., : a.shape[-2], :], guided[..., a.shape[-2] :, :]

        bc = imitation_loss(batch.mask(imitated), a)
        f, cost = self.part_obs("guide", s, parts), bind_cost(self.guide, "guide", parts)
        draw = self.guide.draw(s.shape[-2], Dims(f.shape[-1], a.shape[-1]), rng["guide"])
        agent, expert = cost(f, batch.mask(π_guided), draw), cost(f, a, draw)
        dm = self.excess(agent, expert)
        logs = {"L_BC": bc, "L_DM": dm, "L_agent": agent.mean(-1), "L_expert": expert.mean(-1)}
        if s_away is not None:
            logs["L_away"] = cost(self.part_obs("guide", s_away, parts), batch.mask(π_away), draw).mean(-1)
            dm = dm + self.away * logs["L_away"]
        return Losses(self.imitation * bc + λ * dm, logs, imitated=batch.mask(π))

    def part_obs(self, name: str, obs: Tensor, parts: Parts) -> Tensor:
        """Return the encoder's features for the guide, and `obs` for the encoder."""
        if name != "guide" or self.encoder is None:
            return obs
        return self.encoder.encode(cast(EncoderNet, parts["encoder"]), obs)

    def excess(self, agent: Costs, expert: Costs) -> Scalars:
        """Return L_DM from the costs of a batch."""
        if not self.subtract_expert:
            return agent.mean(-1)
        if self.gate == "batch":
            return (agent.mean(-1) - expert.mean(-1)).clamp(min=0)
        if self.gate == "sample":
            return (agent - expert).clamp(min=0).mean(-1)
        return (agent - expert).mean(-1)

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        """Return π(s)."""
        return weights(obs)


@final
class BalanceGradients(torch.autograd.Function):
    """Passes actions to two losses, and scales the second gradient to ρ times the norm of the first."""

    @staticmethod
    def forward(imitated: Tensor, guided: Tensor, ratio: float) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the actions unchanged."""
        return imitated.clone(), guided.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        """Store ρ for the backward pass."""
        ctx.ratio = inputs[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Scale per member. A guide without a gradient stays without one."""
        bc, dm = (g.square().sum((-2, -1), keepdim=True).sqrt() for g in gradients)
        λ = ctx.ratio * bc / dm.where(dm > 0, torch.ones_like(dm))
        return gradients[0], λ * gradients[1], None


def balance_gradients(imitated: Tensor, guided: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Return the actions unchanged; their gradients will be balanced."""
    actions: Any = BalanceGradients.apply(imitated, guided, ratio)
    return actions
