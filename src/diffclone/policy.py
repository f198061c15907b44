"""A trained method that acts: it maps raw observations to raw actions."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Normaliser
from diffclone.deploy.card import model_card
from diffclone.deploy.hub import find_folder, upload
from diffclone.deploy.monitor import CALIBRATION, Monitor, Score
from diffclone.deploy.policy_config import FORMAT, PolicyConfig
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings, UnknownMember
from diffclone.files import create_path, digest, read_tensors, write_atomically, write_json, write_tensors
from diffclone.model import Dims, Method
from diffclone.records import versions
from diffclone.rng import Rng
from diffclone.settings import to_dict
from diffclone.training.guide import TrainedGuide
from diffclone.training.members import Member, from_matrix, to_matrix

Array = TypeVar("Array", Tensor, npt.NDArray[Any])


@final
@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """One member, or several that act together. `policy[i]` is member i alone."""

    method: Method[Any]
    """The settings."""
    net: nn.Module
    """The weights, one set per member."""
    normaliser: Normaliser
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

    def __post_init__(self) -> None:
        if self.bounds is None:
            return
        low, high = self.bounds
        if not low.shape == high.shape == self.normaliser.act_mean.shape or not bool((low <= high).all()):
            raise InvalidData(
                f"action bounds must be two rows of {len(self.normaliser.act_mean)} numbers, none of the first above "
                f"the second; they are {low.tolist()} and {high.tolist()}."
            )

    @property
    def dims(self) -> Dims:
        """Sizes of observation and action."""
        return Dims(len(self.normaliser.obs_mean), len(self.normaliser.act_mean), self.normaliser.box)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.net.parameters()).device

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, member: int) -> "Policy":
        if not -len(self) <= member < len(self):
            raise UnknownMember(f"member {member} does not exist; the policy has members 0 to {len(self) - 1}.")
        return self.choose([member % len(self)])

    def choose(self, members: Sequence[int]) -> "Policy":
        """Return a policy with some of the members."""
        matrix = to_matrix(self.net)[list(members)]
        net = self.method.init(self.dims, Rng([0], dtype=matrix.dtype)["init"]).to(matrix.device)
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
            guide=None if self.guide is None else self.guide.to(normaliser),
            calls=count(),
        )

    def acting(self, **settings: Any) -> "Policy":
        """Return the policy with other settings of how it acts, e.g. `sampler="ddim", calls=10`, and equal weights."""
        allowed = [f.name for f in dataclasses.fields(self.method) if f.metadata.get("acting")]
        if unknown := sorted(set(settings) - set(allowed)):
            raise InvalidSettings(
                f"{', '.join(unknown)} cannot be changed in a trained {type(self.method).__name__}; "
                f"these can: {', '.join(allowed) or 'none'}."
            )
        for name, value in settings.items():
            now = getattr(self.method, name)
            if type(value) is not type(now) and not (type(now) is float and type(value) is int):
                raise InvalidSettings(f"{name} is {now!r}; {value!r} is not of type {type(now).__name__}.")
            settings[name] = type(now)(value) if type(now) is float else value
        return dataclasses.replace(self, method=dataclasses.replace(self.method, **settings), calls=count())

    def __call__(self, obs: Array) -> Array:
        """Return an action for an observation (size), or a batch of actions for a batch (batch, size).

        Several members return one action each, with the member axis first; they also take (members, batch, size).
        NumPy arrays return NumPy arrays, torch tensors return torch tensors.
        """
        x = (obs if isinstance(obs, Tensor) else torch.tensor(np.asarray(obs))).to(
            self.device, self.normaliser.obs_mean.dtype
        )
        if not 1 <= x.dim() <= 3 or (x.dim() == 3 and x.shape[0] != len(self)):
            raise InvalidData(
                f"observations have shape {tuple(x.shape)}; expected (size), (batch, size) "
                f"or (members, batch, size) with {len(self)} members."
            )
        act = self.act(x.reshape((1,) * (3 - x.dim()) + x.shape), next(self.calls))
        # Infinity is clipped if observations are normalised, and a dimension that never varied is ignored.
        if not bool(x.isfinite().all()) and not bool(act.isfinite().all()):
            raise InvalidData("an observation contains NaN or infinity, for which no action is defined.")
        act = act[:, 0] if x.dim() == 1 else act
        act = act[0] if len(self) == 1 and x.dim() < 3 else act
        result: Any = act if isinstance(obs, Tensor) else act.cpu().numpy()
        return result

    def act(self, obs: Tensor, call: int) -> Tensor:
        """Map raw observations (members or 1, batch, size) to raw actions (members, batch, size).

        Random numbers depend only on a member's seed, the call and the row: a member acts the same alone.
        """
        seeds = [int(member["seed"]) for member in self.members]
        rng = Rng(seeds, device=self.device, dtype=self.normaliser.obs_mean.dtype, path=f"act {call}")
        with torch.no_grad():
            normalised = self.normaliser.normalise_obs(obs).expand(len(self), -1, -1)
            act = self.normaliser.restore_act(self.method.act(self.net, normalised, rng))
        return act if self.bounds is None else act.clamp(*self.bounds)

    def monitor(self, obs: npt.NDArray[Any], action: npt.NDArray[Any]) -> Score:
        """Return how far the pair is from the demonstrations, for state and action, and whether that is an alarm."""
        if self.calibrated_monitor is None:
            raise InvalidSettings("this policy has no calibrated monitor. Make one with: diffclone calibrate RUN.")
        return self.calibrated_monitor.score(obs, action)

    def predict(
        self,
        observation: npt.NDArray[Any],
        state: None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = True,  # noqa: FBT001, FBT002 (Stable-Baselines3's signature)
    ) -> tuple[npt.NDArray[Any], None]:
        """Return (action, None), with the signature of Stable-Baselines3, so that its tools can use the policy."""
        del state, episode_start, deterministic
        if len(self) != 1:
            raise InvalidData(f"this policy has {len(self)} members; choose one: policy[0].predict(…).")
        return self(observation), None

    def save(self, folder: str | Path, *, half: bool = False) -> None:
        """Write `config.json`, `model.safetensors` and a model card, `README.md`, into a new or empty folder.

        With `half`, weights are stored in half precision, rounded to about three digits, and are loaded as float32.
        """
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
            "diverged": list(self.diverged),
            "data": self.data,
            "versions": versions(),
        }
        # The folder appears only once all files are complete.
        with create_path(Path(folder), allow_empty_folder=True) as temporary:
            write_tensors(temporary / "model.safetensors", tensors, {"format": FORMAT})
            config["sha256"] = digest(temporary / "model.safetensors")
            write_json(temporary / "config.json", config)
            write_atomically(temporary / "README.md", model_card(config).encode())
            if self.calibrated_monitor is not None and self.calibrated_monitor.calibration is not None:
                self.calibrated_monitor.save(temporary)

    @classmethod
    def load(cls, folder: str | Path, *, device: torch.device | str = "cpu") -> "Policy":
        """Read a folder that `save` wrote."""
        folder = Path(folder)
        config = PolicyConfig.read(folder / "config.json")
        method: Method[Any] = config.method
        tensors, _ = read_tensors(folder / "model.safetensors")
        if (found := digest(folder / "model.safetensors")) != (config.sha256 or found):
            raise InvalidFile(
                f"{folder}: model.safetensors has hash {found[:12]}…, config.json says {(config.sha256 or '')[:12]}…: "
                "the two files belong to different policies, or one was changed. Copy the folder again."
            )
        sizes, members = {"obs": config.observation_size, "act": config.action_size}, config.members
        needs = [("obs", "mean"), ("obs", "std"), ("act", "mean"), ("act", "std"), ("act", "low"), ("act", "high")]
        wanted = {f"normaliser.{a}_{b}": torch.Size([sizes[a]]) for a, b in needs}
        if "normaliser.obs_limit" in tensors:  # older files have none
            wanted["normaliser.obs_limit"] = torch.Size([])
        if "bounds.low" in tensors or "bounds.high" in tensors:
            wanted |= {f"bounds.{edge}": torch.Size([sizes["act"]]) for edge in ("low", "high")}
        _check_shapes(folder, tensors, wanted)
        prefix = "normaliser."
        normaliser = Normaliser(**{n.removeprefix(prefix): tensors[n] for n in wanted if n.startswith(prefix)})
        dtype = normaliser.obs_mean.dtype
        dims, seeds = Dims(**sizes, box=normaliser.box), [0] * len(members)
        try:
            # Tensors on the device "meta" have a shape and no memory: a wrong size is found before anything is made.
            shapes = method.init(dims, Rng(seeds, dtype=dtype, device="meta")["init"]).state_dict()
        except (RuntimeError, MemoryError, OverflowError, InvalidSettings) as error:
            reason = str(error).split("\n")[0] or "out of memory"
            raise InvalidFile(f"{folder}: the networks of config.json cannot be made ({reason}).") from None
        wanted |= {f"net.{name}": t.shape for name, t in shapes.items()}
        _check_shapes(folder, tensors, wanted)
        if unknown := sorted(set(tensors) - set(wanted)):
            raise InvalidFile(f"{folder}: model.safetensors has {unknown[0]}, which config.json does not ask for.")
        net = method.init(dims, Rng([0], dtype=dtype)["init"])  # of one member: initial weights of many take seconds
        for name, value in net.state_dict(keep_vars=True).items():
            value.data = tensors[f"net.{name}"].to(value.dtype)  # files may have half precision
        low, high = tensors.get("bounds.low"), tensors.get("bounds.high")
        normaliser = normaliser.to(device, dtype)
        return cls(
            method,
            net.to(device),
            normaliser,
            list(members),
            None if low is None or high is None else (low.to(device), high.to(device)),
            dict(config.data),
            Monitor.load(folder, method, normaliser) if (folder / CALIBRATION).exists() else None,
            diverged=list(config.diverged),
        )

    save_pretrained = save

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
        members = f"{len(self)} member{'s' * (len(self) != 1)}"
        return f"Policy({type(self.method).__name__}, {members}, obs {self.dims.obs}, act {self.dims.act})"


def _check_shapes(folder: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, torch.Size]) -> None:
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise InvalidFile(
                f"{folder}: config.json requires {name} of shape {tuple(shape)}; model.safetensors has "
                f"{'none' if found is None else tuple(found)}."
            )
