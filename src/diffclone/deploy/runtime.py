"""Acts with an exported policy, and needs NumPy only: copy this one file to the robot, beside the policy's.

    policy = load("policy.npz")            # what `diffclone export RUN --to numpy` wrote
    action = policy(observation)           # (size) to (size), or (batch, size) to (batch, size)

    z = clamp((s − mean) / std, ±limit)    a = clamp(π(z) · std + mean, low, high)

Small products are quickest on one core: set OMP_NUM_THREADS=1 before NumPy is imported.
"""

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

FORMAT = 1
"""Of the file."""
MOST_LAYERS = 100
LEAK = np.float32(0.01)

Floats: TypeAlias = npt.NDArray[np.float32]


class InvalidPolicy(ValueError):
    """A file that is damaged, or is no exported policy."""


class InvalidObservation(ValueError):
    """An observation that no action can be given for."""


def _relu(x: Floats, out: Floats) -> None:
    np.maximum(x, np.float32(0), out=out)


def _leaky_relu(x: Floats, out: Floats) -> None:
    np.maximum(x, x * LEAK, out=out)


ACTIVATIONS: dict[str, Callable[[Floats, Floats], Any]] = {"tanh": np.tanh, "relu": _relu, "leaky-relu": _leaky_relu}


@final
class Policy:
    """A multi-layer perceptron between the world's numbers. Threads may share it: they then act one after another."""

    def __init__(self, arrays: Mapping[str, Floats], about: Mapping[str, Any]):
        self.about = dict(about)
        """Where it comes from: method, member, data, versions."""
        self.observation_size, self.action_size = len(arrays["obs_mean"]), len(arrays["act_mean"])
        count, self._activation = int(about["layers"]), ACTIVATIONS[about["activation"]]
        self._mean, std, limit = arrays["obs_mean"], arrays["obs_std"], arrays["obs_limit"]
        self._std = np.where(std > 0, std, np.float32(1))
        self._varies = None if (std > 0).all() else std > 0
        self._limits = (-limit, limit) if np.isfinite(limit) else None
        self._layers = [(arrays[f"weight_{n}"], arrays[f"bias_{n}"]) for n in range(count - 1)]
        # The last layer gives the world's numbers at once.
        weight, bias = (arrays[f"{kind}_{count - 1}"].astype(np.float64) for kind in ("weight", "bias"))
        self._out = (weight * arrays["act_std"]).astype(np.float32)
        self._out_bias = (bias * arrays["act_std"] + arrays["act_mean"]).astype(np.float32)
        low, high = arrays["low"], arrays["high"]
        self._bounds = (low, high) if np.isfinite([low, high]).any() else None
        # A single observation goes through the same memory each time.
        self._seen = np.zeros_like(self._mean)
        self._hidden = [np.empty_like(bias) for _, bias in self._layers]
        self._lock = threading.Lock()

    def __call__(self, observation: npt.ArrayLike) -> Floats:
        """The action for an observation, or one for each of a batch."""
        x = np.asarray(observation, dtype=np.float32)
        if x.shape == self._mean.shape:
            with self._lock:
                action = self._act(x, self._seen, self._hidden)
            strange = math.isnan(action[0])
        elif x.ndim == 2 and x.shape[1] == self.observation_size:
            hidden = [np.empty((len(x), len(bias)), np.float32) for _, bias in self._layers]
            action = self._act(x, np.zeros_like(x), hidden)
            strange = bool(np.isnan(action[:, 0]).any())
        else:
            raise InvalidObservation(
                f"observations of shape {x.shape} do not fit: give ({self.observation_size}) or "
                f"(batch, {self.observation_size})."
            )
        if strange:  # a single NaN reaches every number of the action
            raise InvalidObservation("an observation holds NaN, for which there is no action.")
        return action

    def _act(self, x: Floats, seen: Floats, hidden: list[Floats]) -> Floats:
        """What never varied in the demonstrations is not looked at: its place in `seen` stays 0."""
        if self._varies is None:
            np.subtract(x, self._mean, out=seen)
        else:
            np.subtract(x, self._mean, out=seen, where=self._varies)
        np.divide(seen, self._std, out=seen)
        if self._limits is not None:
            np.maximum(seen, self._limits[0], out=seen)
            np.minimum(seen, self._limits[1], out=seen)
        for (weight, bias), h in zip(self._layers, hidden, strict=True):
            np.dot(seen, weight, out=h)
            np.add(h, bias, out=h)
            self._activation(h, h)
            seen = h
        action: Floats = np.dot(seen, self._out)
        np.add(action, self._out_bias, out=action)
        if self._bounds is not None:
            np.maximum(action, self._bounds[0], out=action)
            np.minimum(action, self._bounds[1], out=action)
        return action

    def __repr__(self) -> str:
        return f"Policy({self.about.get('method')}, obs {self.observation_size}, act {self.action_size})"


def load(path: str | Path) -> Policy:
    """Read an exported policy; whatever is wrong with the file is said in one line, and nothing in it is executed."""
    path = Path(path)
    if not path.is_file():
        raise InvalidPolicy(f"no such file: {path}.")
    content = path.read_bytes()
    try:
        arrays = _arrays(content)
        about = json.loads(arrays.pop("about").tobytes())
        _check(arrays, about)
    except KeyError as missing:
        raise InvalidPolicy(f"{path} is no exported policy: it holds no {missing.args[0]}.") from None
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError, OverflowError) as fault:
        found = " ".join(str(fault).split())[:200]  # some faults quote the file at length
        raise InvalidPolicy(f"{path} is damaged or no exported policy ({found}).") from None
    return Policy(arrays, about)


def _arrays(content: bytes) -> dict[str, Any]:
    """Every array of the file, none of which can be larger than the file itself."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if any(e.compress_type != zipfile.ZIP_STORED for e in entries):
            raise ValueError("its parts are compressed, which an export's are not")
        if sum(e.file_size for e in entries) > len(content):
            raise ValueError("its parts claim more bytes than it has")
        found: dict[str, Any] = {}
        for entry in entries:
            with archive.open(entry) as file:
                found[entry.filename.removesuffix(".npy")] = read_array(file, entry.file_size)
    return found


def read_array(file: BinaryIO | Any, size: int) -> npt.NDArray[Any]:
    """The numbers of an npy file of `size` bytes, once they are known to be as many as its header claims."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("its npy version is not 1.0")
    try:
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception:  # a header is a Python literal, and a bad one raises what its parsers raise
        raise ValueError("its npy header cannot be read") from None
    if dtype.kind not in "iuf":
        raise ValueError(f"it holds {dtype}, and must hold plain numbers")
    content = file.read(size)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"its header claims {shape} of {dtype}; there are {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def _check(arrays: Mapping[str, Any], about: Any) -> None:
    """Sizes that follow from each other, and numbers that can be computed with."""
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"this runtime reads format {FORMAT}")
    layers, activation = about["layers"], about["activation"]
    if type(layers) is not int or not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"it claims {layers!r} layers; 1 … {MOST_LAYERS} are possible")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"its activation is {activation!r}; known are {', '.join(ACTIVATIONS)}")
    obs, act = arrays["obs_mean"].shape, arrays["act_mean"].shape
    if len(obs) != 1 or len(act) != 1 or not obs[0] or not act[0]:
        raise ValueError(f"its means have shapes {obs} and {act}, and must be rows")
    shapes = {"obs_mean": obs, "obs_std": obs, "obs_limit": ()}
    shapes |= dict.fromkeys(("act_mean", "act_std", "low", "high"), act)
    before = obs
    for n in range(layers):
        bias = act if n == layers - 1 else arrays[f"bias_{n}"].shape[:1]
        shapes |= {f"weight_{n}": before + bias, f"bias_{n}": bias}
        before = bias
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float32:
            raise ValueError(f"{name} is {arrays[name].shape} of {arrays[name].dtype}, and must be {shape} of float32")
        finite = name not in ("obs_limit", "low", "high")
        if np.isnan(arrays[name]).any() or (finite and not np.isfinite(arrays[name]).all()):
            raise ValueError(f"{name} holds numbers that are not finite")
    if (arrays["obs_std"] < 0).any() or not arrays["obs_limit"] > 0 or (arrays["low"] > arrays["high"]).any():
        raise ValueError("a standard deviation or limit is negative, or a lowest action is above the highest")
