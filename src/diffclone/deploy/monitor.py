"""How unlike the demonstrations a state and an action are, at run time: the guide's denoising error, part by part.

x      = [s, a]                            D = D_s + D_a numbers, normalised
r_k    = ε_k − ε̂(x_{t_k}, t_k)             k = 1 … 2K: t in each of K equal parts of its range, with ε and with −ε
state  = mean over k of r_k², over the first D_s dimensions
action = mean over k of r_k², over the last D_a
both   = (D_s state + D_a action) / D      the guide's cost, with these draws

The draws of (t, ε) come from a fixed seed, so that a pair has one score, today and tomorrow.

Where scores are too high is a matter of calibration (conformal.py).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Demonstrations, Normaliser
from diffclone.deploy.conformal import PARTS, Calibration
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings
from diffclone.files import read_json, read_tensors, write_json, write_tensors
from diffclone.guides.diffusion import DiffusionGuide, pair, stratified
from diffclone.model import Dims, Model
from diffclone.nn.diffusion import Diffusion
from diffclone.nn.encoder import Encoder, EncoderNet
from diffclone.rng import Rng

LEVELS = 32
"""K."""
SEED = 0
"""Of the draws."""
ROWS = 256
"""Pairs judged at once."""
FORMAT = 1
"""Of the weights that `save` writes."""
CALIBRATION, WEIGHTS = "calibration.json", "monitor.safetensors"

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@final
@dataclass(frozen=True, eq=False)
class Alarm:
    """Which scores are above their thresholds, shaped like the scores. Each part alone keeps to α, not all together."""

    state: Flags
    """An unknown state."""
    action: Flags
    """An odd action, the more so where the state is known."""
    both: Flags
    """An odd pair."""


@final
@dataclass(frozen=True, eq=False)
class Score:
    """How unlike the demonstrations pairs are: about as large as on the demonstrations where they are like them."""

    state: Numbers
    action: Numbers
    both: Numbers
    alarm: Alarm | None = None
    """None as long as nothing was calibrated."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: numbers for one pair, lists for several, null for NaN, which JSON lacks."""
        null: Any = None
        scores: dict[str, Numbers] = {name: getattr(self, name) for name in PARTS}
        parts = {name: np.where(np.isfinite(v), v.astype(object), null).tolist() for name, v in scores.items()}
        raised = None if self.alarm is None else {name: getattr(self.alarm, name).tolist() for name in PARTS}
        return {**parts, "alarm": raised}


@final
@dataclass(frozen=True, eq=False, repr=False)
class Monitor:
    """Judges pairs of the world by the guide of one member."""

    guide: DiffusionGuide
    weights: Diffusion
    """Of one member."""
    normaliser: Normaliser
    encoder: tuple[Encoder, EncoderNet] | None = None
    """What the guide sees pictures through."""
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        """Weights and thresholds must belong together."""
        members = next(self.weights.parameters()).shape[0]
        if members != 1:
            raise InvalidSettings(f"a monitor judges by one member's guide; these weights are of {members}.")
        if self.calibration is not None and self.calibration.guide != self.fingerprint:
            raise InvalidFile(
                f"the calibration is of guide {self.calibration.guide}, the weights are those of {self.fingerprint}. "
                "Calibrate anew: diffclone calibrate RUN --again."
            )

    @classmethod
    def of(
        cls,
        method: Model[Any],
        parts: Mapping[str, nn.Module],
        normaliser: Normaliser,
        calibration: Calibration | None = None,
    ) -> "Monitor":
        """Of a method that is guided by a diffusion model, from the weights of its parts."""
        guide, encoder = guide_of(method), method.needs().get("encoder")
        weights, features = parts["guide"], parts.get("encoder")
        assert isinstance(weights, Diffusion)
        seen = (encoder, features) if isinstance(encoder, Encoder) and isinstance(features, EncoderNet) else None
        return cls(guide, weights, normaliser, seen, calibration)

    def calibrated(self, calibration: Calibration) -> "Monitor":
        """The same, with thresholds."""
        return replace(self, calibration=calibration)

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def draws(self) -> tuple[Tensor, Tensor]:
        """(t, ε): steps (2K) and noises (2K, D)."""
        like, size = self.weights.beta, self.weights.denoiser.out.weight.shape[-1]
        rng = Rng([SEED], dtype=like.dtype)["monitor"]
        t, eps = stratified(rng["t"], LEVELS, 0, self.guide.steps)[0], rng["noise"].normal(LEVELS, size)[0]
        return torch.cat([t, t]).to(like.device), torch.cat([eps, -eps]).to(like)

    @cached_property
    def embedded(self) -> list[Tensor]:
        """What the denoiser makes of t, which is the same for every pair."""
        with torch.no_grad():
            return self.weights.denoiser.embed(self.draws[0][None])

    def score(self, obs: npt.ArrayLike, act: npt.ArrayLike) -> Score:
        """Of one pair (size), (size), or of a batch (rows, size), (rows, size), in the world's numbers."""
        s, a = np.asarray(obs), np.asarray(act)
        sizes = (len(self.normaliser.obs_mean), len(self.normaliser.act_mean))
        if s.ndim not in (1, 2) or s.shape[:-1] != a.shape[:-1] or (s.shape[-1], a.shape[-1]) != sizes:
            raise InvalidData(
                f"an observation of shape {s.shape} and an action of shape {a.shape} are no pair; this monitor judges "
                f"({sizes[0]},) with ({sizes[1]},), or as many rows of both."
            )
        like = self.normaliser.obs_mean
        chunks = zip(*(torch.tensor(x.reshape(-1, x.shape[-1])).split(ROWS) for x in (s, a)), strict=True)
        with torch.no_grad():
            found = [self.parts(s_rows.to(like), a_rows.to(like)) for s_rows, a_rows in chunks]
        values = torch.cat(found, -1).numpy()
        state, action, both = (v.reshape(s.shape[:-1]) for v in values)
        return Score(state, action, both, self.alarm(state, action, both))

    def parts(self, obs: Tensor, act: Tensor) -> Tensor:
        """State, action and both of some rows, (3, rows)."""
        s, a = self.normaliser.normalise_obs(obs)[None], self.normaliser.normalise_act(act)[None]
        if self.encoder is not None:
            s = self.encoder[0].encode(self.encoder[1], s)
        x, (t, eps) = pair(s, a)[0], self.draws
        rows, draws, size = len(x), *eps.shape
        x_t = self.weights.noised(x[:, None, :].expand(rows, draws, size), t, eps).reshape(1, rows * draws, size)
        eps_hat = self.weights.denoiser.through(x_t, [e.repeat(1, rows, 1) for e in self.embedded])
        squares = (eps - eps_hat.reshape(rows, draws, size)).square().double().mean(1).cpu()
        d_s, d_a = s.shape[-1], a.shape[-1]
        state, action = squares[:, :d_s].mean(-1), squares[:, d_s:].mean(-1)
        return torch.stack([state, action, (d_s * state + d_a * action) / (d_s + d_a)])

    def alarm(self, state: Numbers, action: Numbers, both: Numbers) -> Alarm | None:
        """Which scores are too high, where that is known."""
        if (q := self.calibration) is None:
            return None
        # Not "above": a score that is NaN is no reason to be calm.
        return Alarm(*(np.asarray(~(m <= top)) for m, top in ((state, q.state), (action, q.action), (both, q.both))))

    def maxima(self, demos: Demonstrations) -> dict[str, Numbers]:
        """M of each part and episode."""
        scores = self.score(demos.obs, demos.act)
        begins = demos.episode_ends - demos.lengths
        return {name: np.maximum.reduceat(getattr(scores, name), begins) for name in PARTS}

    def tensors(self) -> dict[str, Tensor]:
        """Weights by name, as they are saved."""
        nets: dict[str, nn.Module] = {"guide": self.weights}
        nets |= {} if self.encoder is None else {"encoder": self.encoder[1]}
        return {f"{part}.{name}": t for part, net in nets.items() for name, t in net.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write weights and calibration into a policy's folder, in this order: a calibration knows its weights."""
        if self.calibration is None:
            raise InvalidSettings("a monitor is saved once it is calibrated: diffclone calibrate RUN.")
        write_tensors(folder / WEIGHTS, self.tensors(), {"format": FORMAT})
        write_json(folder / CALIBRATION, self.calibration.to_dict())

    @classmethod
    def load(cls, folder: Path, method: Model[Any], normaliser: Normaliser) -> "Monitor":
        """Read what `save` wrote beside a policy; a mismatch names both sides."""
        calibration = Calibration.from_dict(read_json(folder / CALIBRATION), where=str(folder / CALIBRATION))
        tensors, _ = read_tensors(folder / WEIGHTS)
        parts, like = dict[str, nn.Module](), normaliser.obs_mean
        for name, (model, dims) in judging_parts(method, normaliser).items():
            net = model.init(dims, Rng([0], dtype=like.dtype)["init"])
            ours = {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}
            wanted = {n: tuple(t.shape) for n, t in net.state_dict().items()}
            if wrong := [n for n, shape in wanted.items() if n not in ours or tuple(ours[n].shape) != shape]:
                n = wrong[0]
                found = tuple(ours[n].shape) if n in ours else "none"
                raise InvalidFile(f"{folder}: config.json asks for {name}.{n} {wanted[n]}, {WEIGHTS} has {found}.")
            net.load_state_dict({n: ours[n] for n in wanted})
            parts[name] = net.to(like.device)
        return cls.of(method, parts, normaliser, calibration)


def guide_of(method: Model[Any]) -> DiffusionGuide:
    """The diffusion model that guides a method."""
    guide = method.needs().get("guide")
    if not isinstance(guide, DiffusionGuide):
        has = "no guide" if guide is None else type(guide).__name__
        raise InvalidSettings(
            f"a monitor judges by a DiffusionGuide; {type(method).__name__} has {has} here. "
            "Train one that has: diffclone train DATA --method dbc --guide diffusion."
        )
    return guide


def judging_parts(method: Model[Any], normaliser: Normaliser) -> dict[str, tuple[Model[Any], Dims]]:
    """What a monitor needs the weights of, and the sizes they are for."""
    guide, encoder = guide_of(method), method.needs().get("encoder")
    dims = Dims(len(normaliser.obs_mean), len(normaliser.act_mean), normaliser.box)
    if not isinstance(encoder, Encoder):
        return {"guide": (guide, dims)}
    return {"encoder": (encoder, dims), "guide": (guide, replace(dims, obs=encoder.features))}
