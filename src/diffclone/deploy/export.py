"""Export a trained policy to one file that runs without torch: ONNX, or arrays for `diffclone.deploy.runtime`.

The exported policy maps raw observations to raw actions: it includes normalisation and clipping to the action bounds.
With chunks or a history it maps windows to chunks, each in one row, and memory.py plays them.
Flow matching starts from noise: a graph takes it as a second input, the runtime draws it.
Its actions are compared with those of torch on a thousand observations before the file is written.
"""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from diffclone.deploy import runtime
from diffclone.deploy.export_arrays import PolicyArrays, to_numpy
from diffclone.errors import InvalidFile, InvalidSettings, MissingPackage, install_command
from diffclone.files import create_path
from diffclone.methods import FlowMatching
from diffclone.nn import Denoiser
from diffclone.nn.layers import LAYER_NORM_EPS
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.shapes import Floats

Format = Literal["onnx", "numpy"]

CHECKED_OBSERVATIONS = 1000
"""Number of observations on which an exported policy is compared with torch."""
TOLERANCE = 1e-5
"""Largest allowed difference from torch, relative to the largest action."""
OPSET, IR_VERSION = 17, 8
"""ONNX versions, supported by runtimes since 2022."""


@runtime_checkable
class ActFunction(Protocol):
    """An exported policy."""

    def __call__(self, obs: Floats, noise: Floats | None = None, /) -> Floats:
        """Map windows, each in one row, to chunks; of flow matching with the noise that they start from."""
        ...


def export(policy: Policy, out: str | Path, to: Format, evaluations: Sequence[Record] = ()) -> float:
    """Write one member of a policy to a new file and return its largest relative difference from torch.

    `to` is "onnx" or "numpy", and `out` must not exist. The file contains the model card of the policy, with these
    evaluations. A difference above 1e-5 of the largest action is an error.
    """
    encode, load = FORMATS[to]
    with create_path(Path(out)) as temporary:
        temporary.write_bytes(encode(PolicyArrays.from_policy(policy, evaluations)))
        difference = largest_difference(policy, load(temporary))
        if not difference <= TOLERANCE:
            raise InvalidFile(
                f"the exported policy differs from torch by {difference:.1e} of the largest action; at most "
                f"{TOLERANCE:g} is allowed. {out} was not written. `diffclone serve` serves the policy without export."
            )
    return difference


def largest_difference(policy: Policy, exported: ActFunction) -> float:
    """Return the largest difference of actions, relative to the largest action in each dimension.

    Observations are normal with three standard deviations of the demonstrations, so some of them are clipped. An action
    dimension that stays close to zero is compared with its standard deviation in the demonstrations instead. Flow
    matching starts from the same noise on both sides.
    """
    normaliser, history = policy.window_normaliser, policy.chunks.history
    mean, std, rng = to_numpy(normaliser.obs_mean), to_numpy(normaliser.obs_std), np.random.default_rng(0)
    far = 3 * rng.standard_normal((CHECKED_OBSERVATIONS, len(mean)), np.float32)
    obs = mean + np.where(std > 0, std, np.float32(1)) * far
    if isinstance(policy.method, FlowMatching):
        noise = rng.standard_normal((len(obs), policy.window_dims.act), np.float32)
        batch, single, expected = exported(obs, noise), exported(obs[:1], noise[:1]), act_from(policy, obs, noise)
    else:
        batch, single = exported(obs), exported(obs[:1])
        expected = policy.plan(obs.reshape(len(obs), history, -1)).reshape(len(obs), -1)
    if batch.shape != expected.shape or single.shape != expected[:1].shape:
        return float("inf")
    largest = np.maximum(np.abs(expected).max(0), to_numpy(normaliser.act_std))
    worst = np.maximum(np.abs(batch - expected).max(0), np.abs(single - expected[:1]).max(0))
    return float((worst / np.where(largest > 0, largest, 1)).max())


def act_from(policy: Policy, obs: Floats, noise: Floats) -> Floats:
    """Return the actions that one member of flow matching makes of noise: `Policy.act` with given random numbers."""
    method, normaliser = policy.method, policy.window_normaliser
    assert isinstance(method, FlowMatching)
    assert isinstance(policy.net, Denoiser)
    s, x = (torch.tensor(rows[None]).to(policy.device, normaliser.obs_mean.dtype) for rows in (obs, noise))
    with torch.no_grad():
        act = normaliser.restore_act(method.move(policy.net, normaliser.normalise_obs(s), x))
    return to_numpy((act if policy.window_bounds is None else act.clamp(*policy.window_bounds))[0])


def encode_numpy(policy: PolicyArrays) -> bytes:
    """Return the npz file that `diffclone.deploy.runtime` reads."""
    if policy.image is not None:
        raise InvalidSettings(
            "the NumPy runtime has no convolutions, which this policy needs for images. Use --to onnx."
        )
    about = {"format": 1, "layers": len(policy.layers), "activation": policy.activation, **policy.about}
    if policy.norms or policy.residual:  # which runtimes of format 1 do not have
        about |= {"format": 2, "layer_norm": bool(policy.norms), "residual": policy.residual}
    if "chunks" in policy.about:
        about["format"] = 3
    if policy.lengths is not None:
        about["format"] = 4
    unbounded = np.full_like(policy.act_mean, np.inf)
    low, high = (-unbounded, unbounded) if policy.bounds is None else policy.bounds
    arrays: dict[str, Any] = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "obs_mean": policy.obs_mean,
        "obs_std": policy.obs_std,
        "obs_limit": np.float32(policy.obs_limit),
        "act_mean": policy.act_mean,
        "act_std": policy.act_std,
        "low": low,
        "high": high,
    }
    for n, (weight, bias) in enumerate(policy.layers):
        arrays |= {f"weight_{n}": weight, f"bias_{n}": bias}
    for n, (gain, shift) in enumerate(policy.norms):
        arrays |= {f"gain_{n}": gain, f"shift_{n}": shift}
    if policy.lengths is not None:
        arrays["lengths"] = policy.lengths
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def encode_onnx(policy: PolicyArrays) -> bytes:
    """Return a graph from `observation` (batch, size) to `action` (batch, size), both float32.

    Of flow matching it has a second input, `noise`, with the size of the action.
    """
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise onnx_missing() from None
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"constant_{len(constants)}"))
        return constants[-1].name

    def node(operator: str, *inputs: str, **settings: Any) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [f"{operator.lower()}_{len(nodes)}"], **settings))
        return nodes[-1].output[0]

    def clip(x: str, low: Any, high: Any) -> str:
        # ONNX's Clip takes one bound for all dimensions.
        return node("Min", node("Max", x, constant(low)), constant(high))

    def activate(x: str) -> str:
        if policy.activation == "silu":
            return node("Mul", x, node("Sigmoid", x))
        if policy.activation == "gelu":  # x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
            cube = node("Mul", node("Mul", node("Mul", x, x), x), constant(np.float32(0.044715)))
            inner = node("Mul", node("Add", x, cube), constant(np.float32(np.sqrt(2 / np.pi))))
            upper = node("Add", node("Tanh", inner), constant(np.float32(1)))
            return node("Mul", node("Mul", x, constant(np.float32(0.5))), upper)
        if policy.activation == "leaky-relu":
            return node("LeakyRelu", x, alpha=0.01)
        return node({"tanh": "Tanh", "relu": "Relu"}[policy.activation], x)

    def network(x: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        last = len(weights) - 1
        for n, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            h = node("Gemm", x, weight, bias)
            if n < last:
                if policy.norms:
                    h = node("LayerNormalization", h, *map(constant, policy.norms[n]), epsilon=LAYER_NORM_EPS)
                h = activate(h)
            x = node("Add", x, h) if policy.residual and 0 < n < last else h
        return x

    varies = policy.obs_std > 0
    x = node("Sub", "observation", constant(policy.obs_mean))
    x = node("Div", x, constant(np.where(varies, policy.obs_std, np.float32(1))))
    if not varies.all():
        x = node("Where", constant(varies), x, constant(np.float32(0)))
    if np.isfinite(policy.obs_limit):
        x = clip(x, np.float32(-policy.obs_limit), np.float32(policy.obs_limit))
    else:  # infinity becomes NaN, which reaches the action; otherwise tanh makes a finite action of it
        x = node("Add", x, node("Sub", x, x))
    if policy.image is not None:
        numbers: str | None = None
        if policy.numbers:  # of each observation, after its pixels
            each = node("Reshape", x, constant(np.array([-1, policy.steps, len(varies) // policy.steps], np.int64)))
            edge, ends, axis = (constant(np.array([k], np.int64)) for k in (-policy.numbers, 2**62, 2))
            numbers = node("Flatten", node("Slice", each, edge, ends, axis))
            x = node("Slice", each, constant(np.array([0], np.int64)), edge, axis)
        x = node("Reshape", x, constant(np.array([-1, *policy.image], np.int64)))
        for weight, bias, stride in policy.convolutions:
            x = activate(node("Conv", x, constant(weight), constant(bias), strides=[stride, stride]))
        x = node("Flatten", x)
        x = x if numbers is None else node("Concat", x, numbers, axis=1)
    if policy.lengths is None:
        x = network(x, *([constant(array) for array in arrays] for arrays in zip(*policy.layers, strict=True)))
    else:
        *hidden, (_, last) = policy.layers
        seen, out = node("MatMul", x, constant(hidden[0][0][len(last) :])), constant(last)  # the same in all steps
        weights = [constant(policy.layers[0][0][: len(last)]), *(constant(weight) for weight, _ in policy.layers[1:])]
        x = "noise"
        for k, length in enumerate(policy.lengths):
            first, *others = (constant(bias[k]) for _, bias in hidden)
            velocity = network(x, weights, [node("Add", seen, first), *others, out])
            x = node("Add", x, node("Mul", velocity, constant(length)))
    x = node("Add", node("Mul", x, constant(policy.act_std)), constant(policy.act_mean))
    if policy.bounds is not None:
        x = clip(x, *policy.bounds)
    nodes.append(helper.make_node("Identity", [x], ["action"]))

    def batch_of(name: str, size: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])

    inputs, outputs = [batch_of("observation", len(policy.obs_mean))], [batch_of("action", len(policy.act_mean))]
    inputs += [] if policy.lengths is None else [batch_of("noise", len(policy.act_mean))]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="diffclone")
    helper.set_model_props(model, {name: json.dumps(value) for name, value in policy.about.items()})
    return model.SerializeToString()


def load_onnx(path: Path) -> ActFunction:
    """Return the policy of an ONNX file, run by onnxruntime on one thread."""
    try:
        import onnxruntime
    except ImportError:
        raise onnx_missing() from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])

    def act(obs: Floats, noise: Floats | None = None) -> Floats:
        return session.run(["action"], {"observation": obs} | ({} if noise is None else {"noise": noise}))[0]

    return act


def load_numpy(path: Path) -> ActFunction:
    """Return the policy of an npz file as a function of windows, each in one row."""
    policy = runtime.load(path)
    if policy.chunks is None:
        return policy

    def act(obs: Floats, noise: Floats | None = None) -> Floats:
        return policy.plan(obs.reshape(len(obs), policy.chunks.history, -1), noise=noise).reshape(len(obs), -1)

    return act


def onnx_missing() -> MissingPackage:
    """Return the error that says what to install."""
    return MissingPackage(f"--to onnx needs the packages onnx and onnxruntime. Try: {install_command('export')}.")


FORMATS: dict[Format, tuple[Callable[[PolicyArrays], bytes], Callable[[Path], ActFunction]]] = {
    "onnx": (encode_onnx, load_onnx),
    "numpy": (encode_numpy, load_numpy),
}
"""How each format is encoded and loaded."""
