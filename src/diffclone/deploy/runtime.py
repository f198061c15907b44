"""Run an exported policy with NumPy alone. This file has no other dependency: copy it to the robot with the policy.

    policy = load("policy.npz")            # written by `diffclone export RUN --to numpy`
    action = policy(observation)           # (size) to (size), or (batch, size) to (batch, size)

A policy with chunks or a history is called through a session; copy memory.py, too:

    act = policy.session()
    action = act(observation)              # act.reset() begins a new episode

    z = clip((s − mean) / std, ±limit)     a = clip(π(z) · std + mean, low, high)
    π(z) of flow matching: x ~ N(0, I), then Euler steps x ← x + d v(x, τ, z). `load(path, seed)` repeats the draws.

Small matrix products are fastest on one core: set OMP_NUM_THREADS=1 before you import NumPy.
"""

import contextlib
import importlib
import io
import json
import math
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, final

import numpy as np
import numpy.typing as npt

FORMATS = (1, 2, 3, 4)
"""Versions of the file format. 2 has layer normalisation and residual connections, 3 has chunks, 4 is flow matching."""
LAYER_NORM_EPS = np.float32(1e-5)
MAX_LAYERS, MAX_CALLS = 100, 128
NEGATIVE_SLOPE = np.float32(0.01)  # of the leaky ReLU

Floats: TypeAlias = npt.NDArray[np.float32]


class InvalidPolicy(ValueError):
    """The file is damaged or is not an exported policy."""


class MissingMemory(InvalidPolicy):
    """The policy has a memory, but memory.py was not copied with this file."""


class InvalidObservation(ValueError):
    """The observation or the noise has the wrong shape, or contains NaN or infinity that is not clipped."""


def _memory() -> Any:
    """Return the module memory.py: of the package, or beside this file where the package is not installed."""
    for name in ("diffclone.deploy.memory", "memory"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise MissingMemory("the policy has chunks or a history: copy memory.py beside runtime.py.")


HALF, ROOT, CUBIC = np.float32(0.5), np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
ACTIVATIONS: dict[str, Callable[[Floats, Floats], Any]] = {
    "tanh": np.tanh,
    "relu": lambda x, out: np.maximum(x, np.float32(0), out=out),
    "leaky-relu": lambda x, out: np.maximum(x, x * NEGATIVE_SLOPE, out=out),
    "silu": lambda x, out: np.multiply(x, HALF + HALF * np.tanh(HALF * x), out=out),
    "gelu": lambda x, out: np.multiply(x, HALF + HALF * np.tanh(ROOT * (x + CUBIC * x * x * x)), out=out),
}


def _layer_norm(x: Floats, gain: Floats, shift: Floats) -> None:
    """Normalise the last axis in place."""
    x -= x.mean(-1, keepdims=True)
    x *= gain / np.sqrt(np.square(x).mean(-1, keepdims=True) + LAYER_NORM_EPS)
    x += shift


@final
class Policy:
    """A multi-layer perceptron from raw observations to raw actions. Threads may share it; a lock serialises calls."""

    def __init__(self, arrays: Mapping[str, Floats], about: Mapping[str, Any], seed: int | None = None):
        self.about = dict(about)
        """Its origin: method, member, data, versions, action bounds, and the model card as Markdown (`card`)."""
        self.observation_size, self.action_size = len(arrays["obs_mean"]), len(arrays["act_mean"])
        self.chunks: Any = None
        """`memory.Chunks`: the observations that a call sees and the actions that it returns; None for one of each."""
        if "chunks" in about:
            self.chunks = _memory().Chunks.from_dict(about["chunks"])
            self.observation_size //= self.chunks.history
            self.action_size //= self.chunks.horizon
        count, self._activation = int(about["layers"]), ACTIVATIONS[about["activation"]]
        self._mean, std, limit = arrays["obs_mean"], arrays["obs_std"], arrays["obs_limit"]
        self._std = np.where(std > 0, std, np.float32(1))
        self._varies: Any = (std > 0).all() or std > 0
        self._limits = (-limit, limit) if np.isfinite(limit) else None
        self._weights, self._biases = ([arrays[f"{kind}_{n}"] for n in range(count - 1)] for kind in ("weight", "bias"))
        normalised = (count - 1) * bool(about.get("layer_norm"))
        self._norms = [(arrays[f"gain_{n}"], arrays[f"shift_{n}"]) for n in range(normalised)]
        self._residual = bool(about.get("residual"))
        self._out, self._out_bias = arrays[f"weight_{count - 1}"], arrays[f"bias_{count - 1}"]
        self._scale, self._shift = arrays["act_std"], arrays["act_mean"]
        self._steps: list[tuple[Any, Any]] = []
        if "calls" in about:  # flow matching: the first layer sees the action before the observation
            self._rng = np.random.default_rng(seed)
            self._seen = np.ascontiguousarray(self._weights[0][len(self._shift) :])
            self._weights[0] = np.ascontiguousarray(self._weights[0][: len(self._shift)])
            self._steps = list(zip(arrays["lengths"], zip(*self._biases, strict=True), strict=True))
        else:  # the last layer includes the scaling of the action to raw units
            weight, bias = self._out.astype(np.float64), self._out_bias.astype(np.float64)
            self._out = (weight * self._scale).astype(np.float32)
            self._out_bias = (bias * self._scale + self._shift).astype(np.float32)
        low, high = arrays["low"], arrays["high"]
        self._bounds = (low, high) if np.isfinite([low, high]).any() else None
        # Buffers that calls with a single observation reuse.
        self._normalised = np.zeros_like(self._mean)
        self._hidden = [np.empty(weight.shape[1], np.float32) for weight in self._weights]
        self._lock = threading.Lock()

    def __call__(self, observation: npt.ArrayLike, noise: npt.ArrayLike | None = None) -> Floats:
        """Return the action for an observation, or one per row of a batch. Noise that is given replaces drawn noise."""
        if self.chunks is not None:
            raise InvalidObservation(f"this policy has a memory, {self.chunks}. Use policy.session().")
        return self._call(observation, noise)

    def predict(
        self, observation: npt.ArrayLike, state: Any = None, episode_start: npt.ArrayLike | None = None
    ) -> tuple[Floats, Any]:
        """Return the action and the state, which is passed to the next call. None begins an episode."""
        if self.chunks is None:
            return self._call(observation), None
        size, varies = self.observation_size, np.broadcast_to(self._varies, self._mean.shape)
        sizes = (size, self.action_size)
        return _memory().predict(self.chunks, self.plan, sizes, observation, state, episode_start, varies[-size:])

    def plan(self, windows: Floats, rows: Any = None, noise: npt.ArrayLike | None = None) -> Floats:
        """Map windows (rows, history, size) to chunks (rows, horizon, size); noise is (rows, horizon · size)."""
        del rows
        return self._call(windows.reshape(len(windows), -1), noise).reshape(len(windows), -1, self.action_size)

    def session(self) -> Any:
        """Return the policy with a memory: call it with one observation after the other. `reset` ends an episode."""
        return _memory().Session(self.predict)

    def _call(self, observation: npt.ArrayLike, noise: npt.ArrayLike | None = None) -> Floats:
        x, size = np.asarray(observation, dtype=np.float32), self.observation_size
        if x.ndim not in (1, 2) or x.shape[-1] != len(self._mean):
            raise InvalidObservation(f"the observation has shape {x.shape}; expected ({size}) or (batch, {size}).")
        start = self._start((*x.shape[:-1], len(self._shift)), noise) if self._steps else None
        if x.ndim == 1:
            with self._lock:
                action = self._act(x, self._normalised, self._hidden, start)
            has_nan = math.isnan(action[0])
        else:
            hidden = [np.empty((len(x), weight.shape[1]), np.float32) for weight in self._weights]
            action = self._act(x, np.zeros_like(x), hidden, start)
            has_nan = bool(np.isnan(action[:, 0]).any())
        if has_nan:  # a NaN in the observation reaches every dimension of the action
            raise InvalidObservation("the observation contains NaN.")
        return action

    def _start(self, shape: tuple[int, ...], noise: npt.ArrayLike | None) -> Floats:
        """Return the noise that flow matching starts from."""
        if noise is None:
            with self._lock:  # threads cannot share a generator
                return self._rng.standard_normal(shape, np.float32)
        x = np.asarray(noise, np.float32)
        if x.shape != shape or not np.isfinite(x).all():
            raise InvalidObservation(f"the noise has shape {x.shape}; expected finite numbers of shape {shape}.")
        return x

    def _act(self, x: Floats, z: Floats, hidden: list[Floats], start: Floats | None) -> Floats:
        """Compute actions in the buffers `z` and `hidden`. Dimensions that never varied in the data stay 0 in `z`."""
        np.subtract(x, self._mean, out=z, where=self._varies)
        np.divide(z, self._std, out=z)
        if self._limits is not None:
            np.maximum(z, self._limits[0], out=z)
            np.minimum(z, self._limits[1], out=z)
        elif not np.isfinite(z).all():  # otherwise tanh makes a finite action of infinity
            raise InvalidObservation("the observation contains NaN or infinity.")
        if start is None:
            action = self._network(z, self._biases, hidden)
        else:
            action, seen = start, np.dot(z, self._seen)  # `seen` is the same in all steps
            for length, (first, *others) in self._steps:
                action = action + length * self._network(action, [seen + first, *others], hidden)
            action = action * self._scale + self._shift
        if self._bounds is not None:
            np.maximum(action, self._bounds[0], out=action)
            np.minimum(action, self._bounds[1], out=action)
        return action

    def _network(self, z: Floats, biases: list[Floats], hidden: list[Floats]) -> Floats:
        for n, (weight, bias, h) in enumerate(zip(self._weights, biases, hidden, strict=True)):
            np.dot(z, weight, out=h)
            np.add(h, bias, out=h)
            if self._norms:
                _layer_norm(h, *self._norms[n])
            self._activation(h, h)
            if self._residual and n:
                np.add(h, z, out=h)
            z = h
        return np.dot(z, self._out) + self._out_bias

    def __repr__(self) -> str:
        return f"Policy({self.about.get('method')}, obs {self.observation_size}, act {self.action_size})"


def load(path: str | Path, seed: int | None = None) -> Policy:
    """Read the policy that `diffclone export RUN --to numpy` wrote to `path`. The seed is that of its noise, if any.

    An invalid file raises `InvalidPolicy`; nothing in the file is executed.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidPolicy(f"no such file: {path}.")
    content = path.read_bytes()
    try:
        arrays = _arrays(content)
        about = json.loads(arrays.pop("about").tobytes())
        _check(arrays, about)
    except MissingMemory:
        raise
    except KeyError as missing:
        raise InvalidPolicy(f"{path} is not an exported policy: {missing.args[0]} is missing.") from None
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]  # some errors quote the file at length
        raise InvalidPolicy(f"{path} is damaged or not an exported policy ({reason}).") from None
    return Policy(arrays, about, seed)


def _arrays(content: bytes) -> dict[str, Any]:
    """Read all arrays. No array can be larger than the file itself."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if any(e.compress_type != zipfile.ZIP_STORED for e in entries):
            raise ValueError("its entries are compressed, unlike those of an export")
        if sum(e.file_size for e in entries) > len(content):
            raise ValueError("its entries claim more bytes than the file has")
        found: dict[str, Any] = {}
        for entry in entries:
            with archive.open(entry) as file:
                found[entry.filename.removesuffix(".npy")] = read_array(file, entry.file_size)
    return found


def read_array(file: BinaryIO | Any, size: int) -> npt.NDArray[Any]:
    """Read an npy file of `size` bytes, after checking that its header agrees with that size."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("the npy version is not 1.0")
    try:
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception:  # the header is a Python literal; its parsers raise many types of errors
        raise ValueError("the npy header cannot be parsed") from None
    if dtype.kind not in "iuf":
        raise ValueError(f"the array has type {dtype}; expected integers or floats")
    content = file.read(size)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"the npy header claims {shape} of {dtype}; the file has {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def _check(arrays: Mapping[str, Any], about: Any) -> None:
    """Check that shapes are consistent and that values are finite."""
    flow = isinstance(about, dict) and "calls" in about
    if not isinstance(about, dict) or about.get("format") not in (FORMATS[3:] if flow else FORMATS[:3]):
        raise ValueError(f"this runtime reads the formats {', '.join(map(str, FORMATS))}; only the last has calls")
    layers, activation, calls = about["layers"], about["activation"], about.get("calls", 1)
    for name, count, least, most in (("layers", layers, 1 + flow, MAX_LAYERS), ("calls", calls, 1, MAX_CALLS)):
        if type(count) is not int or not least <= count <= most:
            raise ValueError(f"it has {count!r} {name}; expected {least} to {most}")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"its activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    obs, act = arrays["obs_mean"].shape, arrays["act_mean"].shape
    if len(obs) != 1 or len(act) != 1 or not obs[0] or not act[0]:
        raise ValueError(f"obs_mean and act_mean have shapes {obs} and {act}; expected one dimension each")
    if "chunks" in about:
        chunks = _memory().Chunks.from_dict(about["chunks"])
        if obs[0] % chunks.history or act[0] % chunks.horizon:
            raise ValueError(f"{obs[0]} and {act[0]} numbers are not {chunks.history} and {chunks.horizon} equal steps")
    shapes = {"obs_mean": obs, "obs_std": obs, "obs_limit": (), **({"lengths": (calls,)} if flow else {})}
    shapes |= dict.fromkeys(("act_mean", "act_std", "low", "high"), act)
    before = (act[0] + obs[0],) if flow else obs
    for n in range(layers):
        bias = act if n == layers - 1 else arrays[f"bias_{n}"].shape[flow : flow + 1] or (0,)
        shapes |= {f"weight_{n}": before + bias, f"bias_{n}": (calls, *bias) if flow and n < layers - 1 else bias}
        if about.get("layer_norm") and n < layers - 1:
            shapes |= {f"gain_{n}": bias, f"shift_{n}": bias}
        if about.get("residual") and 0 < n < layers - 1 and before != bias:
            raise ValueError(f"bias_{n} has shape {bias}; a residual layer needs {before}")
        before = bias
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float32:
            raise ValueError(f"{name} is {arrays[name].shape} of {arrays[name].dtype}; expected {shape} of float32")
        finite = name not in ("obs_limit", "low", "high")
        if np.isnan(arrays[name]).any() or (finite and not np.isfinite(arrays[name]).all()):
            raise ValueError(f"{name} contains values that are not finite")
    if (arrays["obs_std"] < 0).any() or not arrays["obs_limit"] > 0 or (arrays["low"] > arrays["high"]).any():
        raise ValueError("a standard deviation or limit is negative, or a lower action bound exceeds the upper one")
    if flow and ((arrays["lengths"] <= 0).any() or abs(arrays["lengths"].sum() - 1) > 1e-3):
        raise ValueError("the lengths of its steps are not positive numbers with the sum 1")
