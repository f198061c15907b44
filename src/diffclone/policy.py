"""A trained method that acts: observations of the world in, actions of the world out."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Normaliser
from diffclone.deploy.card import model_card
from diffclone.deploy.monitor import CALIBRATION, Monitor, Score
from diffclone.errors import DiffcloneError, InvalidData, InvalidFile, InvalidSettings, UnknownMember
from diffclone.files import create_path, digest, read_json, read_tensors, write_atomically, write_json, write_tensors
from diffclone.methods import METHODS
from diffclone.model import Dims, Method
from diffclone.records import versions
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.training.members import Member, from_matrix, to_matrix

Array = TypeVar("Array", Tensor, npt.NDArray[Any])

FORMAT = 1
"""Of the folder that `save` writes."""


@final
@dataclass(frozen=True)
class Config:
    """The part of a policy's config.json that loading the policy needs, with its types checked."""

    method: Method[Any]
    members: tuple[Member, ...]
    observation_size: int
    action_size: int
    data: Mapping[str, Any]
    sha256: str | None = None
    """The hash of model.safetensors."""

    def __post_init__(self) -> None:
        if min(self.observation_size, self.action_size, len(self.members)) < 1:
            raise InvalidSettings("observation_size, action_size and the number of members must be at least 1.")

    @classmethod
    def read(cls, path: Path) -> "Config":
        """Read and check a file. An error names the file and the key."""
        values = read_json(path)
        if not isinstance(values, dict) or "format" not in values:
            raise InvalidFile(f"{path} is not the config.json of a policy: it has no format.")
        found = cast(dict[str, Any], values)
        if found["format"] != FORMAT:
            raise InvalidFile(
                f"{path.parent} has format {found['format']}; this version of diffclone reads format {FORMAT}."
            )
        known = {f.name: found[f.name] for f in dataclasses.fields(cls) if f.name in found}
        try:
            method = from_dict(METHODS, found.get("method"), "method")
            return from_dict(cls, known | {"method": method})
        except DiffcloneError as error:
            raise InvalidFile(f"{path}: {error}") from None


@final
@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """One member, or several that answer together. `policy[i]` is member i alone."""

    method: Method[Any]
    """Its settings."""
    net: nn.Module
    """Its weights, one set a member."""
    normaliser: Normaliser
    members: Sequence[Member]
    """What tells the members apart."""
    bounds: tuple[Tensor, Tensor] | None = None
    """Lowest and highest action; answers are cut to them."""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """What it was trained on."""
    guard: Monitor | None = None
    """Tells how unlike the demonstrations an observation and an action are, where it was calibrated."""
    calls: Iterator[int] = field(default_factory=count)
    """How often it was asked: a method that samples draws anew each time, the same numbers from the same beginning."""

    @property
    def dims(self) -> Dims:
        """Sizes of observation and action."""
        return Dims(len(self.normaliser.obs_mean), len(self.normaliser.act_mean), self.normaliser.box)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.net.parameters()).device

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, member: int) -> "Policy":
        if not -len(self) <= member < len(self):
            raise UnknownMember(f"member {member} does not exist; the policy has members 0 to {len(self) - 1}.")
        return self.choose([member % len(self)])

    def choose(self, members: Sequence[int]) -> "Policy":
        """Some of the members, as a policy of their own."""
        matrix = to_matrix(self.net)[list(members)]
        net = self.method.init(self.dims, Rng([0], dtype=matrix.dtype)["init"]).to(matrix.device)
        chosen = [self.members[m] for m in members]
        known = (self.normaliser, chosen, self.bounds, self.data, self.guard)
        return Policy(self.method, from_matrix(net, matrix), *known)

    def to(self, device: torch.device | str) -> "Policy":
        """Return the policy on another device; itself if it is there already."""
        if torch.device(device) == self.device:
            return self
        net, normaliser = copy.deepcopy(self.net).to(device), self.normaliser
        bounds = None if self.bounds is None else (self.bounds[0].to(device), self.bounds[1].to(device))
        return dataclasses.replace(
            self, net=net, normaliser=normaliser.to(device, normaliser.obs_mean.dtype), bounds=bounds, calls=count()
        )

    def acting(self, **settings: Any) -> "Policy":
        """The same weights with other settings of how it acts, e.g. `sampler="ddim", calls=10`."""
        allowed = [f.name for f in dataclasses.fields(self.method) if f.metadata.get("acting")]
        if unknown := sorted(set(settings) - set(allowed)):
            raise InvalidSettings(
                f"{', '.join(unknown)} cannot be changed in a trained {type(self.method).__name__}; "
                f"what can: {', '.join(allowed) or 'nothing'}."
            )
        for name, value in settings.items():
            now = getattr(self.method, name)
            if type(value) is not type(now) and not (type(now) is float and type(value) is int):
                raise InvalidSettings(
                    f"{name} is {now!r}, and cannot become {value!r}, which is no {type(now).__name__}."
                )
            settings[name] = type(now)(value) if type(now) is float else value
        method = dataclasses.replace(self.method, **settings)
        return Policy(method, self.net, self.normaliser, self.members, self.bounds, self.data, self.guard)

    def __call__(self, obs: Array) -> Array:
        """Act. An observation (size) gives an action, a batch (batch, size) gives a batch.

        Several members give an action each, with members leading; they may be given (members, batch, size).
        NumPy in, NumPy out; torch in, torch out.
        """
        x = (obs if isinstance(obs, Tensor) else torch.tensor(np.asarray(obs))).to(
            self.device, self.normaliser.obs_mean.dtype
        )
        if not 1 <= x.dim() <= 3 or (x.dim() == 3 and x.shape[0] != len(self)):
            raise InvalidData(
                f"observations of shape {tuple(x.shape)} do not fit: give (size), (batch, size) "
                f"or (members, batch, size) with {len(self)} members."
            )
        act = self.act(x.reshape((1,) * (3 - x.dim()) + x.shape), next(self.calls))
        act = act[:, 0] if x.dim() == 1 else act
        act = act[0] if len(self) == 1 and x.dim() < 3 else act
        answer: Any = act if isinstance(obs, Tensor) else act.cpu().numpy()
        return answer

    def act(self, obs: Tensor, call: int) -> Tensor:
        """(members or 1, batch, size) to (members, batch, size), in the world's numbers.

        What a method draws is a function of a member's seed, the call and the row, so a member plays the same alone.
        """
        seeds = [int(member["seed"]) for member in self.members]
        rng = Rng(seeds, device=self.device, dtype=self.normaliser.obs_mean.dtype, path=f"act {call}")
        with torch.no_grad():
            seen = self.normaliser.normalise_obs(obs).expand(len(self), -1, -1)
            chosen = self.method.act(self.net, seen, rng)
            act = self.normaliser.restore_act(chosen)
        return act if self.bounds is None else act.clamp(*self.bounds)

    def monitor(self, obs: npt.NDArray[Any], action: npt.NDArray[Any]) -> Score:
        """How unlike the demonstrations these are: state and action apart, and whether that is an alarm."""
        if self.guard is None:
            raise InvalidSettings("this policy has no calibrated monitor. Make one with: diffclone calibrate RUN.")
        return self.guard.score(obs, action)

    def predict(
        self,
        observation: npt.NDArray[Any],
        state: None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = True,  # noqa: FBT001, FBT002 (Stable-Baselines3's signature)
    ) -> tuple[npt.NDArray[Any], None]:
        """As Stable-Baselines3 has it, so that its tools can use a policy."""
        del state, episode_start, deterministic
        if len(self) != 1:
            raise InvalidData(f"this policy has {len(self)} members; choose one: policy[0].predict(…).")
        return self(observation), None

    def save(self, folder: str | Path, *, half: bool = False) -> None:
        """Write `config.json`, `model.safetensors` and a card, `README.md`, into a new or empty folder.

        Half precision halves the file; weights are rounded to about three digits, and single again once loaded.
        """
        folder = Path(folder)
        tensors = {f"net.{name}": t.half() if half else t for name, t in self.net.state_dict().items()}
        tensors |= {f"normaliser.{name}": t for name, t in self.normaliser.tensors().items()}
        if self.bounds is not None:
            tensors |= {"bounds.low": self.bounds[0], "bounds.high": self.bounds[1]}
        config = {
            "format": FORMAT,
            "method": to_dict(self.method),
            "members": list(self.members),
            "observation_size": self.dims.obs,
            "action_size": self.dims.act,
            "action_bounds": None if self.bounds is None else [edge.tolist() for edge in self.bounds],
            "data": self.data,
            "versions": versions(),
        }
        with create_path(folder, allow_empty_folder=True) as temporary:
            write_tensors(temporary / "model.safetensors", tensors, {"format": FORMAT})
            config["sha256"] = digest(temporary / "model.safetensors")
            write_json(temporary / "config.json", config)
            write_atomically(temporary / "README.md", model_card(config).encode())
            if self.guard is not None and self.guard.calibration is not None:
                self.guard.save(temporary)

    @classmethod
    def load(cls, folder: str | Path, *, device: torch.device | str = "cpu") -> "Policy":
        """Read what `save` wrote; a mismatch names both sides."""
        folder = Path(folder)
        config = Config.read(folder / "config.json")
        method: Method[Any] = config.method
        tensors, _ = read_tensors(folder / "model.safetensors")
        if (found := digest(folder / "model.safetensors")) != (config.sha256 or found):
            raise InvalidFile(
                f"{folder}: model.safetensors has hash {found[:12]}…, config.json says {(config.sha256 or '')[:12]}…: "
                "the two are not of one policy, or one was changed. Copy the folder again."
            )
        sizes, members = {"obs": config.observation_size, "act": config.action_size}, config.members
        needs = [("obs", "mean"), ("obs", "std"), ("act", "mean"), ("act", "std"), ("act", "low"), ("act", "high")]
        wanted = {f"normaliser.{a}_{b}": torch.Size([sizes[a]]) for a, b in needs}
        if "normaliser.obs_limit" in tensors:  # older files have none
            wanted["normaliser.obs_limit"] = torch.Size([])
        if "bounds.low" in tensors or "bounds.high" in tensors:
            wanted |= {f"bounds.{edge}": torch.Size([sizes["act"]]) for edge in ("low", "high")}
        _check(folder, tensors, wanted)
        prefix = "normaliser."
        normaliser = Normaliser(**{n.removeprefix(prefix): tensors[n] for n in wanted if n.startswith(prefix)})
        dtype = normaliser.obs_mean.dtype
        try:
            net = method.init(Dims(**sizes, box=normaliser.box), Rng([0] * len(members), dtype=dtype)["init"])
        except (RuntimeError, MemoryError, InvalidSettings) as error:
            reason = str(error).split("\n")[0] or "out of memory"
            raise InvalidFile(f"{folder}: the networks of config.json cannot be made ({reason}).") from None
        wanted |= {f"net.{name}": t.shape for name, t in net.state_dict().items()}
        _check(folder, tensors, wanted)
        if unknown := sorted(set(tensors) - set(wanted)):
            raise InvalidFile(f"{folder}: model.safetensors has {unknown[0]}, which config.json does not ask for.")
        net.load_state_dict({n.removeprefix("net."): t for n, t in tensors.items() if n.startswith("net.")})
        low, high = tensors.get("bounds.low"), tensors.get("bounds.high")
        bounds = None if low is None or high is None else (low.to(device), high.to(device))
        normaliser = normaliser.to(device, dtype)
        guard = Monitor.load(folder, method, normaliser) if (folder / CALIBRATION).exists() else None
        return cls(method, net.to(device), normaliser, list(members), bounds, dict(config.data), guard)

    save_pretrained = save
    from_pretrained = load

    def __repr__(self) -> str:
        seeds = f"{len(self)} member{'s' * (len(self) != 1)}"
        return f"Policy({type(self.method).__name__}, {seeds}, obs {self.dims.obs}, act {self.dims.act})"


def _check(folder: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, torch.Size]) -> None:
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise InvalidFile(
                f"{folder}: config.json asks for {name} of shape {tuple(shape)}, model.safetensors has "
                f"{'none' if found is None else tuple(found)}."
            )
