"""The settings and weights of a trained policy as NumPy arrays, from which `export.py` makes files.

A policy of flow matching (methods/flow_matching.py) always sees the same times: whatever its network computes from them
alone is part of the biases here, with one row per Euler step,

    h₁ = relu([x, s] W₁ + b₁ + e₁(τ) + l),     hₙ = relu(hₙ₋₁ Wₙ + bₙ + eₙ(τ))

where l is the row of W₁ for the length of the steps, which the network knows if it has learned shortcuts.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Tensor

from diffclone.deploy.card import model_card
from diffclone.errors import InvalidSettings
from diffclone.methods import FlowMatching
from diffclone.methods.flow_matching import TIMES
from diffclone.nn import MLP, Denoiser
from diffclone.nn.images import ConvNet
from diffclone.nn.layers import ACTIVATIONS
from diffclone.policy import Policy
from diffclone.records import Record, versions
from diffclone.settings import to_dict
from diffclone.shapes import Floats

NOISE = "standard normal numbers, new ones in every call"
"""What the caller of a graph of flow matching passes as its input `noise`."""


@final
@dataclass(frozen=True, eq=False)
class PolicyArrays:
    """The settings and weights of one member of a policy as NumPy arrays."""

    obs_mean: Floats
    obs_std: Floats
    obs_limit: float
    image: tuple[int, int, int] | None
    """Channels, height and width if observations are images; those of a history are stacked as channels."""
    steps: int
    """Observations that a call sees."""
    numbers: int
    """Numbers beside the image of each observation."""
    convolutions: Sequence[tuple[Floats, Floats, int]]
    """Weight (out, in, height, width), bias and stride of each layer."""
    layers: Sequence[tuple[Floats, Floats]]
    """Weight (in, out) and bias of each layer; the last layer returns the normalised action. In flow matching it
    returns the velocity, the input of the first layer is [x, s], and the biases of hidden layers are (calls, out)."""
    norms: Sequence[tuple[Floats, Floats]]
    """Gain and bias of the layer normalisation of each hidden layer; empty if there is none."""
    residual: bool
    """Whether hidden layers after the first add their output to their input."""
    activation: str
    act_mean: Floats
    act_std: Floats
    bounds: tuple[Floats, Floats] | None
    lengths: Floats | None
    """(calls): lengths of the Euler steps of flow matching; None for methods whose action is one call."""
    about: dict[str, Any]
    """Origin of the policy, stored in the file."""

    @classmethod
    def from_policy(cls, policy: Policy, evaluations: Sequence[Record] = ()) -> "PolicyArrays":
        """Collect the arrays. The action must be one call of a network, or Euler steps of flow matching.

        The model card, with these evaluations, and the action bounds are among what the file says about itself.
        """
        if len(policy) != 1:
            raise InvalidSettings(f"this policy has {len(policy)} members; export one of them: export(policy[0], …).")
        net, normaliser, bounds = policy.net, policy.window_normaliser, policy.window_bounds
        name = to_dict(policy.method)["type"]
        flow = policy.method if isinstance(policy.method, FlowMatching) else None
        if not isinstance(net, MLP | ConvNet | Denoiser) or (flow is None and isinstance(net, Denoiser)):
            raise InvalidSettings(
                f"{name} cannot be exported: its action is not one call of an MLP or image network, as it is in bc "
                "and dbc, or Euler steps as in flow-matching. `diffclone serve` supports every method."
            )
        if not all(bool(parameter.isfinite().all()) for parameter in net.parameters()):
            raise InvalidSettings(
                f"the weights of member {dict(policy.members[0])} are not finite: its training diverged. "
                "Export another member."
            )
        mlp = net.mlp if isinstance(net, ConvNet) else net
        convolutions: Any = net.convolutions if isinstance(net, ConvNet) else ()
        linear: Any = [*mlp.hidden, mlp.out] if isinstance(mlp, MLP) else ()
        norms: Any = mlp.norms if isinstance(mlp, MLP) else ()
        layers = [(to_numpy(layer.weight[0]), to_numpy(layer.bias[0, 0])) for layer in linear]
        activation, lengths = torch.relu if isinstance(mlp, Denoiser) else mlp.activation, None
        if flow is not None and isinstance(net, Denoiser):
            layers, lengths = flow_layers(flow, net, policy.window_dims.obs)
        return cls(
            to_numpy(normaliser.obs_mean),
            to_numpy(normaliser.obs_std),
            float(normaliser.obs_limit),
            net.image if isinstance(net, ConvNet) else None,
            policy.chunks.history,
            net.numbers if isinstance(net, ConvNet) else 0,
            [(to_numpy(c.weight[0]), to_numpy(c.bias[0, 0]), c.stride) for c in convolutions],
            layers,
            [(to_numpy(norm.gain[0, 0]), to_numpy(norm.bias[0, 0])) for norm in norms],
            isinstance(mlp, MLP) and mlp.residual,
            next(known for known, function in ACTIVATIONS.items() if function is activation),
            to_numpy(normaliser.act_mean),
            to_numpy(normaliser.act_std),
            None if bounds is None else (to_numpy(bounds[0]), to_numpy(bounds[1])),
            lengths,
            {
                "method": name,
                "member": dict(policy.members[0]),
                "data": policy.data.get("fingerprint"),
                "versions": versions(),
                "action_bounds": policy.config()["action_bounds"],
                "card": model_card(policy.config(), evaluations),
                **({"chunks": asdict(policy.chunks)} if policy.chunks.has_memory else {}),
                **({} if lengths is None else {"calls": len(lengths), "noise": NOISE}),
            },
        )


def flow_layers(method: FlowMatching, net: Denoiser, obs: int) -> tuple[list[tuple[Floats, Floats]], Floats]:
    """Return the weight and biases of each layer for the Euler steps of flow matching, and the lengths of the steps."""
    linear: Any = net.layers
    with torch.no_grad():
        embedded = net.embed(torch.tensor([k for k, _ in method.steps], device=net.out.weight.device)[None])
        biases = [layer.bias[0] + e[0] for layer, e in zip(linear, embedded, strict=True)]
        weights = [layer.weight[0] for layer in linear]
        seen = net.out.bias.shape[-1] + obs
        if method.shortcut:
            biases[0] = biases[0] + weights[0][seen + method.length]
        weights[0] = weights[0][:seen]
    layers = [(to_numpy(weight), to_numpy(bias)) for weight, bias in zip(weights, biases, strict=True)]
    last = (to_numpy(net.out.weight[0]), to_numpy(net.out.bias[0, 0]))
    return [*layers, last], to_numpy(torch.tensor([(after - k) / TIMES for k, after in method.steps]))


def to_numpy(tensor: Tensor) -> Floats:
    """Return a float32 array, the precision of exported files."""
    return tensor.detach().cpu().float().numpy()
