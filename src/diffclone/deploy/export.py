"""A trained policy as one file that needs no torch: ONNX, or plain arrays for `diffclone.deploy.runtime`.

The file has the world's observations in and the world's actions out: normalising and cutting to the bounds are inside.
A file is compared with the policy on a thousand observations before it gets its name.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
from torch import Tensor

from diffclone.deploy import runtime
from diffclone.errors import InvalidFile, InvalidSettings, MissingPackage
from diffclone.files import create_path, refuse_existing
from diffclone.methods import METHODS
from diffclone.nn import MLP
from diffclone.nn.images import PictureNet
from diffclone.nn.layers import ACTIVATIONS
from diffclone.policy import Policy
from diffclone.records import versions
from diffclone.shapes import Floats

Format = Literal["onnx", "numpy"]
Acts: TypeAlias = Callable[[Floats], Floats]

TRIALS = 1000
"""Observations that a file is tried on."""
TOLERANCE = 1e-5
"""Largest difference from torch, as a part of the largest action."""
OPSET, IR_VERSION = 17, 8
"""Of ONNX: what runtimes since 2022 read."""
ONNX_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "tanh": ("Tanh", {}),
    "relu": ("Relu", {}),
    "leaky-relu": ("LeakyRelu", {"alpha": 0.01}),
}


@final
@dataclass(frozen=True, eq=False)
class Plain:
    """One member of a policy, as arrays."""

    obs_mean: Floats
    obs_std: Floats
    obs_limit: float
    image: tuple[int, int, int] | None
    """Channels, height and width, where an observation is a picture."""
    convolutions: Sequence[tuple[Floats, Floats, int]]
    """Weight (out, in, side, side), bias and stride."""
    layers: Sequence[tuple[Floats, Floats]]
    """Weight (in, out) and bias; the last one's output is the normalised action."""
    activation: str
    act_mean: Floats
    act_std: Floats
    bounds: tuple[Floats, Floats] | None
    about: dict[str, Any]
    """Where it comes from."""

    @classmethod
    def of(cls, policy: Policy) -> "Plain":
        """What can be exported is a network that gives the action in one call."""
        if len(policy) != 1:
            raise InvalidSettings(f"this policy has {len(policy)} members; choose one: export(policy[0], …).")
        net, normaliser = policy.net, policy.normaliser
        names = {entry: name for name, entry in METHODS.items()}
        method = names.get(type(policy.method), type(policy.method).__name__)
        if not isinstance(net, MLP | PictureNet):
            raise InvalidSettings(
                f"{method} searches for an action or samples it, and cannot be exported; what can are policies whose "
                "network gives the action in one call: bc and dbc. `diffclone serve` serves every method."
            )
        if not all(bool(parameter.isfinite().all()) for parameter in net.parameters()):
            raise InvalidSettings(
                f"the weights of {dict(policy.members[0])} are not finite: its training diverged. Export another."
            )
        mlp = net.mlp if isinstance(net, PictureNet) else net
        convolutions: Any = net.convolutions if isinstance(net, PictureNet) else ()
        linear: Any = [*mlp.hidden, mlp.out]
        return cls(
            array(normaliser.obs_mean),
            array(normaliser.obs_std),
            float(normaliser.obs_limit),
            net.image if isinstance(net, PictureNet) else None,
            [(array(c.weight[0]), array(c.bias[0, 0]), c.stride) for c in convolutions],
            [(array(layer.weight[0]), array(layer.bias[0, 0])) for layer in linear],
            next(name for name, function in ACTIVATIONS.items() if function is mlp.activation),
            array(normaliser.act_mean),
            array(normaliser.act_std),
            None if policy.bounds is None else (array(policy.bounds[0]), array(policy.bounds[1])),
            {
                "method": method,
                "member": dict(policy.members[0]),
                "data": policy.data.get("fingerprint"),
                "versions": versions(),
            },
        )


def array(tensor: Tensor) -> Floats:
    """In the precision of the file."""
    return tensor.detach().cpu().float().numpy()


def export(policy: Policy, out: str | Path, to: Format) -> float:
    """Write one member to a file that does not exist yet. The answer is its largest relative difference from torch."""
    out = Path(out)
    refuse_existing(out)
    write, read = FORMATS[to]
    content = write(Plain.of(policy))
    with create_path(out) as temporary:
        temporary.write_bytes(content)
        found = difference(policy, read(temporary))
        if not found <= TOLERANCE:
            raise InvalidFile(
                f"the exported policy differs from torch by {found:.1e} of the largest action; at most {TOLERANCE:g} "
                f"is allowed. {out} was not written; `diffclone serve` serves the policy as it is."
            )
    return found


def difference(policy: Policy, exported: Acts) -> float:
    """On observations out to where they are cut; for each of the action's numbers relative to its largest.

    A number that hardly leaves zero is measured by its spread in the demonstrations: rounding is not relative to it.
    """
    mean, std = array(policy.normaliser.obs_mean), array(policy.normaliser.obs_std)
    spread = 3 * np.random.default_rng(0).standard_normal((TRIALS, len(mean)), np.float32)
    obs = mean + np.where(std > 0, std, np.float32(1)) * spread
    expected, found = policy(obs), exported(obs)
    alone = exported(obs[:1])
    if found.shape != expected.shape or alone.shape != expected[:1].shape:
        return float("inf")
    largest = np.maximum(np.abs(expected).max(0), array(policy.normaliser.act_std))
    worst = np.maximum(np.abs(found - expected).max(0), np.abs(alone - expected[:1]).max(0))
    return float((worst / np.where(largest > 0, largest, 1)).max())


def numpy_file(plain: Plain) -> bytes:
    """What `diffclone.deploy.runtime` reads."""
    if plain.image is not None:
        raise InvalidSettings(
            "this policy looks at pictures, whose convolutions the NumPy runtime does not have. Use --to onnx."
        )
    about = {"format": runtime.FORMAT, "layers": len(plain.layers), "activation": plain.activation, **plain.about}
    unbounded = np.full_like(plain.act_mean, np.inf)
    low, high = (-unbounded, unbounded) if plain.bounds is None else plain.bounds
    arrays: dict[str, Any] = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "obs_mean": plain.obs_mean,
        "obs_std": plain.obs_std,
        "obs_limit": np.float32(plain.obs_limit),
        "act_mean": plain.act_mean,
        "act_std": plain.act_std,
        "low": low,
        "high": high,
    }
    for n, (weight, bias) in enumerate(plain.layers):
        arrays |= {f"weight_{n}": weight, f"bias_{n}": bias}
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def onnx_file(plain: Plain) -> bytes:
    """A graph from `observation` (batch, size) to `action` (batch, size), both float32."""
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise needs_onnx() from None
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"constant_{len(constants)}"))
        return constants[-1].name

    def then(operator: str, *inputs: str, **settings: Any) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [f"{operator.lower()}_{len(nodes)}"], **settings))
        return nodes[-1].output[0]

    def cut(x: str, low: Any, high: Any) -> str:
        # Clip would have one edge for all of an action's numbers.
        return then("Min", then("Max", x, constant(low)), constant(high))

    activation, settings = ONNX_ACTIVATIONS[plain.activation]
    varies = plain.obs_std > 0
    x = then("Sub", "observation", constant(plain.obs_mean))
    x = then("Div", x, constant(np.where(varies, plain.obs_std, np.float32(1))))
    if not varies.all():
        x = then("Where", constant(varies), x, constant(np.float32(0)))
    if np.isfinite(plain.obs_limit):
        x = cut(x, np.float32(-plain.obs_limit), np.float32(plain.obs_limit))
    if plain.image is not None:
        x = then("Reshape", x, constant(np.array([-1, *plain.image], np.int64)))
        for weight, bias, stride in plain.convolutions:
            x = then("Conv", x, constant(weight), constant(bias), strides=[stride, stride])
            x = then(activation, x, **settings)
        x = then("Flatten", x)
    for n, (weight, bias) in enumerate(plain.layers):
        x = then("Gemm", x, constant(weight), constant(bias))
        x = x if n == len(plain.layers) - 1 else then(activation, x, **settings)
    x = then("Add", then("Mul", x, constant(plain.act_std)), constant(plain.act_mean))
    if plain.bounds is not None:
        x = cut(x, *plain.bounds)
    nodes.append(helper.make_node("Identity", [x], ["action"]))

    def rows(name: str, size: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])

    ends = [rows("observation", len(plain.obs_mean))], [rows("action", len(plain.act_mean))]
    graph = helper.make_graph(nodes, "policy", *ends, constants)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="diffclone")
    helper.set_model_props(model, {name: json.dumps(value) for name, value in plain.about.items()})
    return model.SerializeToString()


def read_onnx(path: Path) -> Acts:
    """The file as onnxruntime has it, on one thread."""
    try:
        import onnxruntime
    except ImportError:
        raise needs_onnx() from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    return lambda obs: session.run(["action"], {"observation": obs})[0]


def needs_onnx() -> MissingPackage:
    """What to install."""
    return MissingPackage("--to onnx needs the packages onnx and onnxruntime. Try: pip install 'diffclone[export]'.")


FORMATS: dict[Format, tuple[Callable[[Plain], bytes], Callable[[Path], Acts]]] = {
    "onnx": (onnx_file, read_onnx),
    "numpy": (numpy_file, runtime.load),
}
