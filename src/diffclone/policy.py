"""A trained method that acts: it maps raw observations to raw actions."""

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar, final, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Normaliser
from diffclone.data.layout import native, to_rows
from diffclone.deploy import memory, policy_config, policy_text
from diffclone.deploy.card import model_card
from diffclone.deploy.hub import find_folder, upload
from diffclone.deploy.memory import Chunks, Memory, Session
from diffclone.deploy.monitor import CALIBRATION, Monitor, Score
from diffclone.errors import InvalidData, InvalidSettings
from diffclone.files import create_path, digest, write_atomically, write_json, write_tensors
from diffclone.model import Dims, Method
from diffclone.rng import Rng
from diffclone.training.guide import TrainedGuide
from diffclone.training.members import Member, from_matrix, to_matrix

Array = TypeVar("Array", Tensor, npt.NDArray[Any])
Observation: TypeAlias = npt.NDArray[Any] | Mapping[str, Any]
"""Rows of numbers, or a dict of parts such as an image and a state."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """One member, or several that act together. `policy[i]` is member i alone."""

    method: Method[Any]
    """The settings."""
    net: nn.Module
    """The weights, one set per member."""
    normaliser: Normaliser
    """Maps raw observations to normalised ones, and normalised actions to raw ones."""
    members: Sequence[Member]
    """The seed of each member, and its values of the fields that vary."""
    bounds: tuple[Tensor, Tensor] | None = None
    """Lowest and highest action. Actions are clipped to them."""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """Describes the demonstrations it was trained on."""
    calibrated_monitor: Monitor | None = None
    """The monitor, if one was calibrated."""
    guide: TrainedGuide | None = None
    """The trained guide, if the method has one. `fit` and `Run.policy` set it; `save` does not write it."""
    diverged: Sequence[int] = ()
    """Members whose weights are not finite."""
    calls: Iterator[int] = field(default_factory=count)
    """Numbers the calls: a method that samples draws new numbers in each call, and the same ones in each program."""
    chunks: Chunks = field(init=False)
    """How many observations a call sees, and how many actions it returns."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", self.method.chunks)
        policy_config.check_bounds(self.bounds, len(self.normaliser.act_mean))

    @cached_property
    def dims(self) -> Dims:
        """Sizes of observation and action."""
        return Dims(len(self.normaliser.obs_mean), len(self.normaliser.act_mean), self.normaliser.box)

    @cached_property
    def window_dims(self) -> Dims:
        """Sizes of what the method receives and returns: a window of observations and a chunk of actions."""
        return self.dims.windows(self.chunks)

    @cached_property
    def window_normaliser(self) -> Normaliser:
        """The normaliser of windows and chunks."""
        return self.normaliser.windows(self.chunks)

    @cached_property
    def window_bounds(self) -> tuple[Tensor, Tensor] | None:
        """The action bounds of a chunk."""
        horizon = self.chunks.horizon
        return None if self.bounds is None else (self.bounds[0].repeat(horizon), self.bounds[1].repeat(horizon))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.net.parameters()).device

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, member: int | slice) -> "Policy":
        """Return the policy of one member, or of the members of a slice."""
        return self.choose(range(len(self))[member] if isinstance(member, slice) else [member])

    def choose(self, members: Sequence[int]) -> "Policy":
        """Return a policy with some of the members."""
        members = policy_config.check_members(members, len(self))
        matrix = to_matrix(self.net)[members]
        net = self.method.init(self.window_dims, Rng([0], dtype=matrix.dtype)["init"]).to(matrix.device)
        return dataclasses.replace(
            self,
            net=from_matrix(net, matrix),
            members=[self.members[m] for m in members],
            guide=None if self.guide is None else self.guide.choose(members),
            diverged=[k for k, m in enumerate(members) if m in self.diverged],
            calls=count(),
        )

    def to(self, device: torch.device | str) -> "Policy":
        """Return the policy on another device; itself if it is there already."""
        if torch.device(device) == self.device:
            return self
        normaliser = self.normaliser.to(device, self.normaliser.obs_mean.dtype)
        return dataclasses.replace(
            self,
            net=copy.deepcopy(self.net).to(device),
            normaliser=normaliser,
            bounds=None if self.bounds is None else (self.bounds[0].to(device), self.bounds[1].to(device)),
            guide=None if self.guide is None else self.guide.to(normaliser.windows(self.chunks)),
            calls=count(),
        )

    def acting(self, **settings: Any) -> "Policy":
        """Return the policy with other settings of how it acts, e.g. `sampler="ddim", calls=10`, and equal weights."""
        method = dataclasses.replace(self.method, **policy_config.check_acting(self.method, settings))
        return dataclasses.replace(self, method=method, calls=count())

    def to_rows(self, obs: Any) -> npt.NDArray[Any]:
        """Return an observation or a batch as rows of numbers (…, size).

        A dict, such as {"image": …, "state": …}, has the parts that the demonstrations name. Rows of
        `Demonstrations.obs` with images and numbers are bytes, which become numbers.
        """
        return to_rows(obs, self.data.get("meta", {}))

    @overload
    def __call__(self, obs: Array) -> Array: ...
    @overload
    def __call__(self, obs: Mapping[str, Any]) -> npt.NDArray[Any]: ...
    def __call__(self, obs: Any) -> Any:
        """Return an action for an observation (size), or a batch of actions for a batch (batch, size).

        Several members return one action each, with the member axis first; they also take (members, batch, size).
        NumPy arrays and dicts of them return NumPy arrays, torch tensors return torch tensors. A policy with a history
        or with chunks has a memory and is called through `session` or `predict`.
        """
        if self.chunks.has_memory:
            raise InvalidSettings(
                f"this policy has a memory (history {self.chunks.history}, horizon {self.chunks.horizon}). Use "
                "policy.session(), which is called like this, or policy.predict(obs, state)."
            )
        x = (obs if isinstance(obs, Tensor) else torch.tensor(self.to_rows(obs))).to(
            self.device, self.normaliser.obs_mean.dtype
        )
        if not 1 <= x.dim() <= 3 or (x.dim() == 3 and x.shape[0] != len(self)):
            raise InvalidData(
                f"observations have shape {tuple(x.shape)}; expected (size), (batch, size) "
                f"or (members, batch, size) with {len(self)} members."
            )
        act = self.act(x.reshape((1,) * (3 - x.dim()) + x.shape), next(self.calls))
        self._check_finite(x)
        act = act[:, 0] if x.dim() == 1 else act
        act = act[0] if len(self) == 1 and x.dim() < 3 else act
        return act if isinstance(obs, Tensor) else act.cpu().numpy()

    def act(self, obs: Tensor, call: int) -> Tensor:
        """Map raw observations (members or 1, batch, size) to raw actions (members, batch, size).

        If the policy has a memory, these are windows (…, history · size) and chunks (…, horizon · size). Random numbers
        depend only on a member's seed, the call and the row: a member acts the same alone.
        """
        seeds = [int(member["seed"]) for member in self.members]
        rng = Rng(seeds, device=self.device, dtype=self.normaliser.obs_mean.dtype, path=f"act {call}")
        with torch.no_grad():
            normalised = self.window_normaliser.normalise_obs(obs).expand(len(self), -1, -1)
            act = self.window_normaliser.restore_act(self.method.act(self.net, normalised, rng))
        return act if self.window_bounds is None else act.clamp(*self.window_bounds)

    def monitor(self, obs: Observation, action: npt.NDArray[Any]) -> Score:
        """Return how far single pairs are from the demonstrations, and whether that is an alarm."""
        if self.calibrated_monitor is None:
            raise InvalidSettings("this policy has no calibrated monitor. Make one with: diffclone calibrate RUN.")
        return self.calibrated_monitor.score(self.to_rows(obs), action)

    def predict(
        self,
        observation: Observation,
        state: Memory | None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = True,  # noqa: FBT001, FBT002 (Stable-Baselines3's signature)
    ) -> tuple[npt.NDArray[Any], Memory | None]:
        """Return (action, state), with the signature of Stable-Baselines3, so that its tools can use the policy.

        The state, None if the policy has no memory, is for the next call. It is not changed, so that calls can be
        repeated. None begins an episode in every row, `episode_start` in some rows.
        """
        del deterministic
        self._check_single("predict")
        if not self.chunks.has_memory:
            return self(observation), None
        try:
            sizes, varies = (self.dims.obs, self.dims.act), self.normaliser.obs_std.cpu().numpy() > 0
            rows = self.to_rows(observation)
            return memory.predict(self.chunks, self.plan, sizes, rows, state, episode_start, varies)
        except memory.InvalidInput as error:
            raise InvalidData(str(error)) from None

    def plan(self, windows: npt.NDArray[Any], rows: Any = None) -> npt.NDArray[Any]:
        """Map raw windows (rows, history, size) to raw chunks of actions (rows, horizon, size)."""
        del rows
        self._check_single("plan")
        given, history, size = native(windows), self.chunks.history, self.dims.obs
        if given.ndim < 2 or math.prod(given.shape[1:]) != history * size:
            raise InvalidData(f"windows have shape {given.shape}; expected (rows, {history}, {size}).")
        x = torch.tensor(given).to(self.device, self.normaliser.obs_mean.dtype).flatten(1)
        act = self.act(x[None], next(self.calls))[0]
        self._check_finite(x)
        return act.unflatten(-1, (self.chunks.horizon, -1)).cpu().numpy()

    def _check_finite(self, obs: Tensor) -> None:
        """Refuse raw observations or windows (…, size) that are not finite after normalisation, which clips."""
        if not bool(obs.isfinite().all()) and not bool(self.window_normaliser.normalise_obs(obs).isfinite().all()):
            raise InvalidData("an observation contains NaN or infinity, for which no action is defined.")

    def _check_single(self, name: str) -> None:
        if len(self) != 1:
            raise InvalidData(f"this policy has {len(self)} members; choose one: policy[0].{name}(…).")

    def session(self) -> Session:
        """Return the policy with a memory of its own: call it with one observation after the other of an episode."""
        return Session(self.predict)

    def config(self) -> dict[str, Any]:
        """Return what `config.json` contains, apart from the hash of the weights."""
        return policy_config.make_config(self.method, self.members, self.dims, self.bounds, self.diverged, self.data)

    def save(self, folder: str | Path, *, half: bool = False) -> None:
        """Write `config.json`, `model.safetensors` and a model card, `README.md`, into a new or empty folder.

        With `half`, weights are stored in half precision, rounded to about three digits, and are loaded as float32.
        """
        tensors = policy_config.make_tensors(self.net, self.normaliser, self.bounds, half=half)
        config = self.config()
        # The folder appears only once all files are complete.
        with create_path(Path(folder), allow_empty_folder=True) as temporary:
            write_tensors(temporary / "model.safetensors", tensors, {"format": policy_config.FORMAT})
            config["sha256"] = digest(temporary / "model.safetensors")
            write_json(temporary / "config.json", config)
            write_atomically(temporary / "README.md", model_card(config).encode())
            if self.calibrated_monitor is not None and self.calibrated_monitor.calibration is not None:
                self.calibrated_monitor.save(temporary)

    @classmethod
    def load(cls, folder: str | Path, *, device: torch.device | str = "cpu", monitor: bool = True) -> "Policy":
        """Read a folder that `save` wrote, or the policy in the folder of a run; its monitor only if `monitor`."""
        folder = policy_config.find_policy_folder(folder)
        config = policy_config.PolicyConfig.read(folder / "config.json")
        net, normaliser, bounds = config.read_weights(folder)
        normaliser, chunks = normaliser.to(device, normaliser.obs_mean.dtype), config.method.chunks
        monitored = monitor and (folder / CALIBRATION).exists()
        return cls(
            config.method,
            net.to(device),
            normaliser,
            list(config.members),
            None if bounds is None else (bounds[0].to(device), bounds[1].to(device)),
            dict(config.data),
            Monitor.load(folder, config.method, normaliser.windows(chunks), config.data) if monitored else None,
            diverged=list(config.diverged),
        )

    save_pretrained = save
    """Another name of `save`, as in other libraries of the Hub."""

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: torch.device | str = "cpu", **options: Any) -> "Policy":
        """Read a local folder, or a model of the Hugging Face Hub: "org/name" (options: `deploy.hub.find_folder`)."""
        return cls.load(find_folder(name, **options), device=device)

    def push_to_hub(self, repo: str, **options: Any) -> str:
        """Upload the policy to the Hugging Face Hub as "organisation/name" (options: `deploy.hub.upload`)."""
        with TemporaryDirectory() as folder:
            self.save(folder)
            return upload(Path(folder), repo, **options)

    def __repr__(self) -> str:
        return policy_text.describe_policy(self)

    def _repr_html_(self) -> str:
        return policy_text.policy_table(self)
