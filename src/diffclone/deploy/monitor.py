"""Score at run time how far an observation and an action are from the demonstrations: the guide's denoising error.

x      = [s, a]                            D = D_s + D_a dimensions, normalised
r_k    = ε_k − ε̂(x_{t_k}, t_k)             k = 1 … 2K: one t in each of K equal intervals, with ε and with −ε
state  = mean over k of r_k², over the first D_s dimensions
action = mean over k of r_k², over the last D_a
both   = (D_s state + D_a action) / D      the guide's cost, with these draws

The draws of (t, ε) come from a fixed seed, so the score of a pair is always the same. Calibration (calibration.py)
finds the thresholds above which scores raise an alarm.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diffclone.data import Demonstrations, Normaliser
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.files import read_json, read_tensors, write_json, write_tensors
from diffclone.guides.diffusion import DiffusionGuide, join_pair, stratified
from diffclone.model import Dims, Method, Model
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng
from diffclone.training.guide import TrainedGuide, parts_from_tensors
from diffclone.training.windows import gather_all

PARTS = ("state", "action", "both")
"""The scores of a pair. Each has its own threshold."""
NOISE_LEVELS = 32
"""K."""
SEED = 0
"""Seed of the draws (t, ε)."""
FORMAT = 1
"""Version of the two saved files."""
CALIBRATION, WEIGHTS = "calibration.json", "monitor.safetensors"

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@final
@dataclass(frozen=True)
class Calibration:
    """Thresholds of a monitor, and the episodes they come from.

    A new episode of the calibrated distribution exceeds each threshold with probability at most α. The probability that
    it exceeds any of the three is larger. The calibration gives no bound on missed failures.
    """

    alpha: float
    episodes: int
    """n, the number of calibration episodes."""
    state: float
    action: float
    both: float
    member: int
    """Index of the member whose guide computes the scores."""
    guide: str
    """Fingerprint of the guide's weights."""
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Origin of the calibration episodes."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of calibration.json."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Any, *, where: str = "the calibration") -> "Calibration":
        """Return the calibration of a dictionary made by `to_dict`."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            found = values.get("format") if isinstance(values, dict) else None
            raise InvalidFile(f"{where} has format {found}; this version of diffclone reads format {FORMAT}.")
        types = {"alpha": float, "episodes": int, "member": int, "guide": str, "source": dict}
        types |= dict.fromkeys(PARTS, float)
        if wrong := [name for name, expected in types.items() if type(values.get(name)) is not expected]:
            raise InvalidFile(
                f"{where}: {', '.join(wrong)} missing or invalid. Calibrate again: diffclone calibrate RUN --again."
            )
        return cls(**{name: values[name] for name in types})


@final
@dataclass(frozen=True, eq=False)
class Alarm:
    """Whether each score exceeds its threshold. Arrays have the shape of the scores."""

    state: Flags
    """The state is out of distribution."""
    action: Flags
    """The action is unusual; in a familiar state, it is unusual for that state."""
    both: Flags
    """The pair is out of distribution."""


@final
@dataclass(frozen=True, eq=False)
class Score:
    """Denoising errors of pairs. Out-of-distribution pairs usually have larger errors than the demonstrations."""

    state: Numbers
    action: Numbers
    both: Numbers
    alarm: Alarm | None = None
    """None if the monitor is not calibrated."""

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON: numbers for one pair, lists for a batch, None instead of NaN."""
        none: Any = None
        scores: dict[str, Numbers] = {name: getattr(self, name) for name in PARTS}
        values = {name: np.where(np.isfinite(v), v.astype(object), none).tolist() for name, v in scores.items()}
        alarm = None if self.alarm is None else {name: getattr(self.alarm, name).tolist() for name in PARTS}
        return {**values, "alarm": alarm}


@final
@dataclass(frozen=True, eq=False, repr=False)
class Monitor:
    """Scores pairs in raw units by the diffusion guide of one member."""

    guide: TrainedGuide
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        """Check that the guide is a diffusion model of one member and that the calibration belongs to it."""
        if not isinstance(guide := self.guide.guide, DiffusionGuide):
            raise InvalidSettings(
                f"a monitor needs a DiffusionGuide; this guide is {type(guide).__name__}. "
                "Train a policy with one: diffclone train DATA --method dbc --guide diffusion."
            )
        if len(self.guide) != 1:
            raise InvalidSettings(f"a monitor uses the guide of one member; this guide has {len(self.guide)}.")
        if self.calibration is not None and self.calibration.guide != self.fingerprint:
            raise InvalidFile(
                f"the calibration belongs to guide {self.calibration.guide}, the weights are guide {self.fingerprint}. "
                "Calibrate again: diffclone calibrate RUN --again."
            )

    @property
    def weights(self) -> Diffusion:
        """The weights of the guide."""
        return cast(Diffusion, self.guide.weights)

    @property
    def chunks(self) -> Chunks:
        """The windows of observations and chunks of actions that are scored, each in one row."""
        method = self.guide.method
        return method.chunks if isinstance(method, Method) else Chunks()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def draws(self) -> tuple[Tensor, Tensor]:
        """(t, ε): diffusion steps (2K) and noise (2K, D)."""
        like, size = self.weights.beta, self.weights.denoiser.out.weight.shape[-1]
        rng = Rng([SEED], dtype=like.dtype)["monitor"]
        steps = cast(DiffusionGuide, self.guide.guide).steps
        t, eps = stratified(rng["t"], NOISE_LEVELS, 0, steps)[0], rng["noise"].normal(NOISE_LEVELS, size)[0]
        return torch.cat([t, t]).to(like.device), torch.cat([eps, -eps]).to(like)

    @cached_property
    def step_embedding(self) -> list[Tensor]:
        """The denoiser's embedding of t, which is the same for every pair."""
        with torch.no_grad():
            return self.weights.denoiser.embed(self.draws[0][None])

    def score(self, obs: npt.ArrayLike, act: npt.ArrayLike) -> Score:
        """Score one pair (size), (size) or a batch (batch, size), (batch, size), in raw units."""
        with torch.no_grad():
            scores = torch.cat([self.score_tensors(s, a) for s, a in self.guide.batches(obs, act)], -1)
        state, action, both = (values.reshape(np.shape(obs)[:-1]) for values in scores.numpy())
        return Score(state, action, both, self.compare(state, action, both))

    def score_tensors(self, s: Tensor, a: Tensor) -> Tensor:
        """Return the three scores of normalised pairs, (3, rows)."""
        x, (t, eps) = join_pair(s, a)[0], self.draws
        rows, draws, size = len(x), *eps.shape
        x_t = self.weights.add_noise(x[:, None, :].expand(rows, draws, size), t, eps).reshape(1, rows * draws, size)
        eps_hat = self.weights.denoiser.denoise(x_t, [e.repeat(1, rows, 1) for e in self.step_embedding])
        squares = (eps - eps_hat.reshape(rows, draws, size)).square().double().mean(1).cpu()
        d_s, d_a = s.shape[-1], a.shape[-1]
        state, action = squares[:, :d_s].mean(-1), squares[:, d_s:].mean(-1)
        return torch.stack([state, action, (d_s * state + d_a * action) / (d_s + d_a)])

    def compare(self, state: Numbers, action: Numbers, both: Numbers) -> Alarm | None:
        """Compare scores with the thresholds."""
        if (q := self.calibration) is None:
            return None
        # `~(score <= threshold)` instead of `score > threshold`: NaN scores raise an alarm.
        return Alarm(*(np.asarray(~(v <= top)) for v, top in ((state, q.state), (action, q.action), (both, q.both))))

    def episode_maxima(self, demos: Demonstrations) -> dict[str, Numbers]:
        """Return the largest value of each score in each episode."""
        scores = self.score(*gather_all(demos, self.chunks))
        starts = demos.episode_ends - demos.lengths
        return {name: np.maximum.reduceat(getattr(scores, name), starts) for name in PARTS}

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by name, as in the saved file."""
        parts = self.guide.parts.items()
        return {f"{part}.{name}": tensor for part, net in parts for name, tensor in net.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write weights, then calibration, into a policy's folder."""
        if self.calibration is None:
            raise InvalidSettings("only a calibrated monitor can be saved. Calibrate it: diffclone calibrate RUN.")
        write_tensors(folder / WEIGHTS, self.tensors(), {"format": FORMAT})
        write_json(folder / CALIBRATION, self.calibration.to_dict())

    @classmethod
    def load(cls, folder: Path, method: Model[Any], normaliser: Normaliser) -> "Monitor":
        """Load a monitor saved in a policy's folder."""
        calibration = Calibration.from_dict(read_json(folder / CALIBRATION), where=str(folder / CALIBRATION))
        tensors: dict[str, dict[str, Tensor]] = {}
        for key, tensor in read_tensors(folder / WEIGHTS)[0].items():
            words = key.split(".")
            for k in range(1, len(words)):  # the name of a part may contain dots
                tensors.setdefault(".".join(words[:k]), {})[".".join(words[k:])] = tensor
        dims = Dims(len(normaliser.obs_mean), len(normaliser.act_mean), normaliser.box)
        parts = parts_from_tensors(method, dims, tensors, str(folder / WEIGHTS))
        return cls(TrainedGuide(method, normaliser, lambda: parts), calibration)
