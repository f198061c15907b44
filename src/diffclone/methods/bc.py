"""Behavioural cloning.

L_BC = E ‖π(s) − a‖²          mean over the batch and the action's dimensions
L_BC = E ‖π(s) − a‖₁          `error="absolute"`, as in ACT; a chunk of actions is a (`horizon`)

Regularisers, all off by default (z ~ N(0, 1)):
    π(s + ν z) instead of π(s)                                             noise on states
    L        = L_BC + μ L_smooth
    L_smooth = E ‖π(s + σ z) − sg π(s)‖²                                   smoothness; sg stops the gradient
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from diffclone.errors import InvalidSettings
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training
from diffclone.nn import Network, PolicyNet, policy_net
from diffclone.rng import Rng
from diffclone.settings import added, check_types
from diffclone.shapes import Act, Obs, Scalar, Scalars, is_off, lowest, per_row

Error = Literal["squared", "absolute"]


@final
@dataclass(frozen=True)
class BC(Method[PolicyNet]):
    """Regression of the expert's action on the state."""

    update_factor: ClassVar[int] = 1
    training: Training = Training(updates=20_000, lr=5e-4, eps=1e-12)
    """How the policy is trained."""
    network: Network = Network()
    """The network of π."""
    state_noise: Scalar = added(0.0, stackable=True)
    """ν, the standard deviation of noise added to the states in training, in standard deviations of the demonstrations
    (raw units without normalisation). Members of one stack may differ in it."""

    smoothness: Scalar = added(0.0, stackable=True)
    """μ, the weight of L_smooth. Members of one stack may differ in it."""
    smoothness_noise: Scalar = added(0.1, stackable=True)
    """σ of L_smooth, in standard deviations of the demonstrations. Members of one stack may differ in it."""

    error: Error = added("squared")
    """Whether L_BC is the squared or the absolute error. The absolute error has its minimum at the median action."""

    def __post_init__(self) -> None:
        check_types(self)
        check_state_noise(self.state_noise)
        if lowest(self.smoothness) < 0 or lowest(self.smoothness_noise) < 0:
            raise InvalidSettings(
                f"smoothness and its noise must not be negative; they are {self.smoothness}, {self.smoothness_noise}."
            )

    def init(self, dims: Dims, rng: Rng) -> PolicyNet:
        """Return the weights of π."""
        return policy_net(dims.obs, dims.act, self.network, rng)

    def loss(self, weights: PolicyNet, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        """Return L, and log its terms."""
        dropout = None if batch.held_out else rng["dropout"]
        act = weights(add_state_noise(batch, self.state_noise, rng), dropout)
        bc = imitation_loss(batch.mask(act), batch.act, self.error)
        if is_off(self.smoothness):
            return Losses(bc, {"L_BC": bc}, imitated=act)
        z = rng["smoothness"].normal(*batch.obs.shape[-2:])
        near = weights(batch.obs + per_row(self.smoothness_noise) * z, dropout)
        smooth = imitation_loss(batch.mask(near, act.detach()), act.detach())
        return Losses(bc + self.smoothness * smooth, {"L_BC": bc, "L_smooth": smooth}, imitated=act)

    def act(self, weights: PolicyNet, obs: Obs, rng: Rng) -> Act:
        """Return π(s)."""
        return weights(obs)


def check_state_noise(state_noise: Scalar) -> None:
    """Refuse a negative ν."""
    if lowest(state_noise) < 0:
        raise InvalidSettings(f"state_noise must not be negative; it is {state_noise}.")


def add_state_noise(batch: Batch, state_noise: Scalar, rng: Rng) -> Obs:
    """Return the states that π receives: s + ν z, or s itself on held-out data."""
    if is_off(state_noise) or batch.held_out:
        return batch.obs
    return batch.obs + per_row(state_noise) * rng["state noise"].normal(*batch.obs.shape[-2:])


def imitation_loss(act: Act, expert_act: Act, error: Error = "squared") -> Scalars:
    """Return L_BC, one number per member."""
    difference = act - expert_act
    return (difference.abs() if error == "absolute" else difference.square()).mean((-2, -1))
