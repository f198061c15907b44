"""The monitor of a policy: scores of pairs at run time, compared with calibrated thresholds.

    score = policy.monitor(obs, action)                        one step, or unrelated rows
    watch = EpisodeMonitor(policy.calibrated_monitor)          then watch(obs, action) at each step of an episode

The scores are in `monitors/`, one file each; `monitors/thresholds.py` has the equations of the thresholds.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diffclone.data import Demonstrations, Normaliser
from diffclone.data.layout import to_rows
from diffclone.deploy.monitors import SCORES, GuideScore
from diffclone.deploy.monitors.base import Context, FittedScore
from diffclone.deploy.monitors.calibrated import AGAIN, FORMAT, Calibration
from diffclone.deploy.monitors.following import Follower, Recent
from diffclone.deploy.monitors.results import Alarm, Numbers, Score
from diffclone.deploy.monitors.thresholds import agree, moving_average
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings
from diffclone.files import read_json, read_tensors, write_json, write_tensors
from diffclone.model import Dims, Model
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.training.guide import parts_from_tensors

CALIBRATION, WEIGHTS = "calibration.json", "monitor.safetensors"

Observation: TypeAlias = npt.ArrayLike | Mapping[str, Any]
"""Rows of numbers, or a dict of parts such as an image and a state."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Monitor:
    """Scores pairs in raw units, by one score or by several that must agree."""

    context: Context
    """The parts of the policy that the scores use."""
    scores: Sequence[FittedScore]
    """The scores with their weights. If there are several, an alarm is raised where all of them are high."""
    calibration: Calibration | None = None
    """The thresholds; None before calibration."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Metadata of the policy's demonstrations: the parts of an observation, which may then be a dict or stored rows."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return hash_tensors(self.tensors())

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The numbers that have thresholds: those of the score, or "both" alone if several must agree."""
        return self.scores[0].settings.parts if len(self.scores) == 1 else ("both",)

    def score(self, obs: Observation, act: npt.ArrayLike) -> Score:
        """Score one pair (size), (size) or a batch (batch, size), (batch, size), in raw units.

        Alarms use the constant thresholds of single steps: rows need not belong to one episode. `EpisodeMonitor`
        follows an episode with the calibrated window and band.
        """
        values, q = self.values(obs, act), self.calibration
        if q is None:
            return Score(values)
        # `~(score <= threshold)` instead of `score > threshold`: NaN scores raise an alarm.
        return Score(values, Alarm({name: np.asarray(~(values[name] <= q.single[name])) for name in self.parts}))

    def values(self, obs: Observation, act: npt.ArrayLike) -> dict[str, Numbers]:
        """Return the scores of single steps by name."""
        rows = to_rows(obs, self.meta)
        with torch.no_grad():
            batches = [[f.score(self.context, s, a) for f in self.scores] for s, a in self.context.batches(rows, act)]
        joined = [torch.cat(column, -1).cpu().numpy() for column in zip(*batches, strict=True)]
        shape = rows.shape[:-1]
        if len(self.scores) == 1:
            return {name: row.reshape(shape) for name, row in zip(self.parts, joined[0], strict=True)}
        own = {
            fitted.name: rows[fitted.settings.parts.index("both")].reshape(shape)
            for fitted, rows in zip(self.scores, joined, strict=True)
        }
        return {"both": self.combine(list(own.values())), **own}

    def combine(self, values: Sequence[Numbers]) -> Numbers:
        """Return min over scores j of (y_j − c_j) / u_j: high only if all scores are."""
        units = self.calibration.units if self.calibration is not None else [(0.0, 1.0)] * len(values)
        return agree(values, units)

    def score_episodes(self, demos: Demonstrations) -> Score:
        """Score all steps of whole episodes as `EpisodeMonitor` would, all at once."""
        q = self.checked_calibration
        values = {
            name: np.concatenate([moving_average(y, q.window) for y in split_episodes(scores, demos)])
            for name, scores in self.values(*self.context.windows(demos)).items()
        }
        step = np.concatenate([np.arange(n) for n in demos.lengths])
        return Score(values, Alarm({name: q.thresholds[name].exceeded(values[name], step) for name in self.parts}))

    @property
    def checked_calibration(self) -> Calibration:
        """The calibration, which must exist."""
        if self.calibration is None:
            raise InvalidSettings("this monitor is not calibrated. Calibrate it: diffclone calibrate RUN.")
        return self.calibration

    @property
    def follower(self) -> Follower:
        """What turns scores of single steps into those of an episode."""
        own = tuple(fitted.name for fitted in self.scores) if len(self.scores) > 1 else ()
        return Follower(self.checked_calibration, self.parts, (*self.parts, *own))

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by name, as in the saved file: those of the policy that the scores use, and their own."""
        keep_parts = any(fitted.settings.uses_parts for fitted in self.scores) or self.context.encodes
        nets = {f"parts.{name}": net for name, net in self.context.parts.items() if keep_parts}
        if self.context.net is not None and any(fitted.settings.uses_members for fitted in self.scores):
            nets["net"] = self.context.net
        nets |= {f"scores.{fitted.name}": fitted.weights for fitted in self.scores}
        return {f"{prefix}.{key}": tensor for prefix, net in nets.items() for key, tensor in net.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write weights, then calibration, into a policy's folder."""
        if self.calibration is None:
            raise InvalidSettings("only a calibrated monitor can be saved. Calibrate it: diffclone calibrate RUN.")
        write_tensors(folder / WEIGHTS, self.tensors(), {"format": FORMAT})
        scores = {fitted.name: to_dict(fitted.settings) for fitted in self.scores}
        calibration = replace(self.calibration, fingerprint=self.fingerprint)  # older versions named tensors otherwise
        write_json(folder / CALIBRATION, {**calibration.to_dict(), "scores": scores})

    @classmethod
    def load(
        cls, folder: Path, method: Model[Any], normaliser: Normaliser, data: Mapping[str, Any] | None = None
    ) -> "Monitor":
        """Load a monitor saved in a policy's folder, by this version or by an older one.

        `data` describes the demonstrations of the policy.
        """
        path, source = folder / CALIBRATION, str(folder / WEIGHTS)
        values = read_json(path)
        calibration = Calibration.from_dict(values, where=str(path))
        tensors = read_tensors(folder / WEIGHTS)[0]
        if (found := hash_tensors(tensors)) != calibration.fingerprint:
            raise InvalidFile(
                f"the calibration belongs to weights {calibration.fingerprint}, {source} has weights {found}. {AGAIN}"
            )
        scores: Any = values.get("scores")
        if values["format"] == 1:  # one score, and tensors without a prefix
            scores, tensors = {"guide": to_dict(GuideScore())}, {f"parts.{key}": t for key, t in tensors.items()}
            tensors |= {f"scores.guide.{key}": t for key, t in GuideScore().plain().state_dict().items()}
        if not isinstance(scores, dict) or not scores or (calibration.units and len(calibration.units) != len(scores)):
            raise InvalidFile(f"{path}: scores missing or invalid. {AGAIN}")
        try:
            settings = {name: from_dict(SCORES, value, f"scores.{name}") for name, value in scores.items()}
        except DiffcloneError as error:
            raise InvalidFile(f"{path}: {error}") from None
        context = cls.load_context(method, normaliser, tensors, source)
        fitted = [
            FittedScore.load(name, score, context, below(tensors, f"scores.{name}."), source)
            for name, score in settings.items()
        ]
        monitor = cls(context, fitted, calibration, (data or {}).get("meta", {}))
        if not set(monitor.parts) <= {*calibration.single} & {*calibration.thresholds} or (
            len(fitted) > 1 and not calibration.units
        ):
            raise InvalidFile(f"{path} lacks thresholds of {', '.join(monitor.parts)}. {AGAIN}")
        return monitor

    @staticmethod
    def load_context(method: Model[Any], normaliser: Normaliser, tensors: Mapping[str, Tensor], source: str) -> Context:
        """Return the weights of the policy that a saved monitor has."""
        dims = Dims(len(normaliser.obs_mean), len(normaliser.act_mean), normaliser.box)
        like, net = normaliser.obs_mean, None
        nested: dict[str, dict[str, Tensor]] = {}
        for key, tensor in below(tensors, "parts.").items():
            words = key.split(".")
            for k in range(1, len(words)):  # the name of a part may contain dots
                nested.setdefault(".".join(words[:k]), {})[".".join(words[k:])] = tensor
        parts = parts_from_tensors(method, dims, nested, source) if nested else {}
        if members := below(tensors, "net."):
            net = method.init(dims, Rng([0], dtype=like.dtype)["init"])
            wanted = net.state_dict(keep_vars=True)
            for key in sorted({*wanted, *members}):
                found, value = members.get(key), wanted.get(key)
                if found is None or value is None or (found.dim(), found.shape[1:]) != (value.dim(), value.shape[1:]):
                    raise InvalidFile(f"{source}: net.{key} does not fit the settings of the policy.")
                value.data = found.to(value.dtype)
            if len({tensor.shape[0] for tensor in members.values()}) != 1:
                raise InvalidFile(f"{source}: the tensors of net have different numbers of members.")
        moved = {name: part.to(like.device, like.dtype) for name, part in parts.items()}
        return Context(method, normaliser, moved, None if net is None else net.to(like.device))

    def __repr__(self) -> str:
        about = "not calibrated" if self.calibration is None else f"calibrated, alpha {self.calibration.alpha:g}"
        return f"Monitor({', '.join(fitted.name for fitted in self.scores)}, {about})"


@final
class EpisodeMonitor:
    """Follows one episode, or several that run in step: call it once per step with the pair or the rows of pairs."""

    def __init__(self, monitor: Monitor | None):
        if monitor is None:
            raise InvalidSettings("this policy has no calibrated monitor. Make one with: diffclone calibrate RUN.")
        self.monitor, self.follow = monitor, monitor.follower
        self.reset()

    def reset(self) -> None:
        """Begin a new episode."""
        self.recent: Recent = {}
        self.step = 0

    def __call__(self, obs: Observation, act: npt.ArrayLike) -> Score:
        """Return the scores of the last steps, averaged over the window, and the alarms of this step."""
        score, self.recent = self.follow(self.recent, self.monitor.values(obs, act), self.step)
        self.step += 1
        return score


def split_episodes(values: Numbers, demos: Demonstrations) -> Iterator[Numbers]:
    """Return the numbers of each episode, given one per step."""
    return iter(np.split(values, demos.episode_ends[:-1]))


def below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a short hash of names, shapes and numbers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
