"""The files of a saved policy: config.json and model.safetensors. Keys, types and tensors are checked when read."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from diffclone.data import Normaliser
from diffclone.errors import DiffcloneError, InvalidData, InvalidFile, InvalidSettings, UnknownMember
from diffclone.files import digest, read_json, read_tensors
from diffclone.methods import METHODS
from diffclone.model import Dims, Method
from diffclone.records import versions
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.training.members import Member

FORMAT = 1
"""Version of the folder that `Policy.save` writes."""


@final
@dataclass(frozen=True)
class PolicyConfig:
    """The keys of config.json that loading a policy needs."""

    method: Method[Any]
    members: tuple[Member, ...]
    observation_size: int
    action_size: int
    data: Mapping[str, Any]
    diverged: tuple[int, ...] = ()
    """Members with weights that are not finite."""
    sha256: str | None = None
    """The hash of model.safetensors."""

    def __post_init__(self) -> None:
        if min(self.observation_size, self.action_size, len(self.members)) < 1:
            raise InvalidSettings("observation_size, action_size and the number of members must be at least 1.")
        if not isinstance(meta := self.data.get("meta", {}), dict):
            raise InvalidSettings(f"data.meta must be an object; it is {str(meta)[:40]}.")
        for k, member in enumerate(self.members):
            if not isinstance(member.get("seed"), int):
                raise InvalidSettings(f"members[{k}].seed must be a whole number; it is {member.get('seed')!r}.")

    @classmethod
    def read(cls, path: Path) -> "PolicyConfig":
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

    def read_weights(self, folder: Path) -> tuple[nn.Module, Normaliser, tuple[Tensor, Tensor] | None]:
        """Read model.safetensors: the weights of all members, the normaliser and the action bounds."""
        tensors, _ = read_tensors(folder / "model.safetensors")
        if (found := digest(folder / "model.safetensors")) != (self.sha256 or found):
            raise InvalidFile(
                f"{folder}: model.safetensors has hash {found[:12]}…, config.json says {(self.sha256 or '')[:12]}…: "
                "the two files belong to different policies, or one was changed. Copy the folder again."
            )
        sizes = {"obs": self.observation_size, "act": self.action_size}
        needs = [("obs", "mean"), ("obs", "std"), ("act", "mean"), ("act", "std"), ("act", "low"), ("act", "high")]
        wanted = {f"normaliser.{a}_{b}": torch.Size([sizes[a]]) for a, b in needs}
        if "normaliser.obs_limit" in tensors:  # older files have none
            wanted["normaliser.obs_limit"] = torch.Size([])
        if "bounds.low" in tensors or "bounds.high" in tensors:
            wanted |= {f"bounds.{edge}": torch.Size([sizes["act"]]) for edge in ("low", "high")}
        check_shapes(folder, tensors, wanted)
        prefix = "normaliser."
        normaliser = Normaliser(**{n.removeprefix(prefix): tensors[n] for n in wanted if n.startswith(prefix)})
        dtype, seeds = normaliser.obs_mean.dtype, [0] * len(self.members)
        try:
            dims = Dims(**sizes, box=normaliser.box).windows(self.method.chunks)
            # Tensors on the device "meta" have a shape and no memory: a wrong size is found before anything is made.
            shapes = self.method.init(dims, Rng(seeds, dtype=dtype, device="meta")["init"]).state_dict()
        except (RuntimeError, MemoryError, OverflowError, InvalidSettings) as error:
            reason = str(error).split("\n")[0] or "out of memory"
            raise InvalidFile(f"{folder}: the networks of config.json cannot be made ({reason}).") from None
        wanted |= {f"net.{name}": t.shape for name, t in shapes.items()}
        check_shapes(folder, tensors, wanted)
        if unknown := sorted(set(tensors) - set(wanted)):
            raise InvalidFile(f"{folder}: model.safetensors has {unknown[0]}, which config.json does not ask for.")
        net = self.method.init(dims, Rng([0], dtype=dtype)["init"])  # one member: initial weights of many take seconds
        for name, value in net.state_dict(keep_vars=True).items():
            value.data = tensors[f"net.{name}"].to(value.dtype)  # files may have half precision
        low, high = tensors.get("bounds.low"), tensors.get("bounds.high")
        return net, normaliser, None if low is None or high is None else (low, high)


def check_shapes(folder: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, torch.Size]) -> None:
    """Refuse a file in which a tensor is missing or has another shape."""
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise InvalidFile(
                f"{folder}: config.json requires {name} of shape {tuple(shape)}; model.safetensors has "
                f"{'none' if found is None else tuple(found)}."
            )


def make_config(
    method: Method[Any],
    members: Sequence[Member],
    dims: Dims,
    bounds: tuple[Tensor, Tensor] | None,
    diverged: Sequence[int],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what config.json contains, apart from the hash of the weights."""
    return {
        "format": FORMAT,
        "method": to_dict(method),
        "members": list(members),
        "observation_size": dims.obs,
        "action_size": dims.act,
        "action_bounds": None if bounds is None else [edge.tolist() for edge in bounds],
        "diverged": list(diverged),
        "data": dict(data),
        "versions": versions(),
    }


def check_acting(method: Method[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return new values of settings of how a trained method acts, with the types that its fields have."""
    allowed, checked = [f.name for f in dataclasses.fields(method) if f.metadata.get("acting")], dict(settings)
    if unknown := sorted(set(settings) - set(allowed)):
        raise InvalidSettings(
            f"{', '.join(unknown)} cannot be changed in a trained {type(method).__name__}; "
            f"these can: {', '.join(allowed) or 'none'}."
        )
    for name, value in settings.items():
        now = getattr(method, name)
        if name == "ensemble":
            if value is not None and type(value) not in (int, float):
                raise InvalidSettings(f"ensemble must be a number or None; it is {value!r}.")
            continue
        if type(value) is not type(now) and not (type(now) is float and type(value) is int):
            raise InvalidSettings(f"{name} is {now!r}; {value!r} is not of type {type(now).__name__}.")
        checked[name] = type(now)(value) if type(now) is float else value
    return checked


def find_policy_folder(given: str | Path) -> Path:
    """Return the folder of a policy: `given/policy` if `given` is the folder of a run that has one, else `given`."""
    try:
        path = Path(given)
    except TypeError:
        raise InvalidFile(f"a policy is read from a folder; it was given a {type(given).__name__}.") from None
    for folder in (path / "policy", path):
        if (folder / "config.json").exists():
            return folder
    if (path / "run.json").exists():
        found = "a run that has not finished training"
    else:
        found = "a folder without config.json" if path.is_dir() else "a file" if path.exists() else "not there"
    raise InvalidFile(f"{path} is {found}. Give the folder of a finished run, or one that Policy.save wrote.")


def check_members(members: Any, count: int) -> list[int]:
    """Return the indices of members; negative ones are counted from the end."""
    if not isinstance(members, Iterable):
        raise UnknownMember(f"members are chosen by a list such as [0, 1]; it is {members!r}.")
    chosen = list[Any](members)
    unknown = [member for member in chosen if member not in range(-count, count)]
    if unknown or not chosen:
        wrong = f"member {unknown[0]} does not exist" if unknown else "no member was chosen"
        raise UnknownMember(f"{wrong}; the policy has members 0 to {count - 1}.")
    return [int(member) % count for member in chosen]


def make_tensors(
    net: nn.Module, normaliser: Normaliser, bounds: tuple[Tensor, Tensor] | None, *, half: bool
) -> dict[str, Tensor]:
    """Return the tensors of model.safetensors by name; with `half`, weights in half precision."""
    tensors = {f"net.{name}": t.half() if half else t for name, t in net.state_dict().items()}
    tensors |= {f"normaliser.{name}": t for name, t in normaliser.tensors().items()}
    if bounds is not None:
        tensors |= {"bounds.low": bounds[0], "bounds.high": bounds[1]}
    return tensors


def check_bounds(bounds: tuple[Tensor, Tensor] | None, size: int) -> None:
    """Raise `InvalidData` if the lowest and highest action of a policy do not fit its actions."""
    if bounds is None:
        return
    low, high = bounds
    if not low.shape == high.shape == (size,) or not bool((low <= high).all()):
        raise InvalidData(
            f"action bounds must be two rows of {size} numbers, none of the first above the second; they are "
            f"{low.tolist()} and {high.tolist()}."
        )
