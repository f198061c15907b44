"""Checkpoints of a training, which can then be resumed, and a cache of trained parts."""

import dataclasses
import hashlib
import inspect
import json
import sys
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from diffclone.errors import DiffcloneWarning, InvalidFile
from diffclone.files import read_tensors, write_tensors
from diffclone.model import Model
from diffclone.records import versions
from diffclone.settings import differences, to_dict
from diffclone.training.lock import HELD, lock_folder
from diffclone.training.shares import Shares


@final
class Checkpoint:
    """The state of one stage, written regularly, and when the stage ends or is interrupted.

    The file before the last one is kept: if the last one is damaged, training resumes from the one before. Snapshots
    have a file each, written before the checkpoint that follows them.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], every_seconds: float = 30.0):
        self.path = path
        self.previous = previous_checkpoint(path)
        self.identity = json.loads(json.dumps(identity))
        self.every_seconds = every_seconds
        self.written = time.monotonic()
        self.saved: set[int] = set()
        path.parent.mkdir(parents=True, exist_ok=True)

    def restore(self, updates: Shares) -> None:
        """Resume from the newest file that is not damaged. A checkpoint of another training is refused."""
        if (found := read_newest(self.path)) is None:
            return
        path, state, identity = found
        cores = identity.pop("cores", updates.cores)
        if differing := differences(identity, self.identity):
            raise InvalidFile(
                f"{path} is a checkpoint of another training ({'; '.join(differing[:3])}). Choose another folder."
            )
        if cores != updates.cores:
            warnings.warn(
                f"this training was started on {cores} {updates.places} and is resumed on {updates.cores}: the last "
                "digits of the weights may differ from those of a training that was not interrupted.",
                DiffcloneWarning,
                stacklevel=2,
            )
        wanted = [update for update in updates.wanted if update <= int(state["done"])]
        try:
            snapshots = {update: read_tensors(self.snapshot_path(update))[0]["weights"] for update in wanted}
        except (InvalidFile, KeyError, OSError) as error:
            warnings.warn(f"{error} Training starts from the beginning.", DiffcloneWarning, stacklevel=2)
            return
        updates.restore(state)
        updates.snapshots |= {update: weights.to(updates.device) for update, weights in snapshots.items()}
        self.saved = set(snapshots)

    def snapshot_path(self, update: int) -> Path:
        """Return the file of a snapshot."""
        return self.path.with_suffix(f".{update}.safetensors")

    def save(self, updates: Shares) -> None:
        """Write the state now."""
        if not self.path.parent.exists():
            raise InvalidFile(
                f"{self.path.parent} was removed during training, so nothing can be saved there. Run the same command "
                "again to train from the beginning."
            )
        for update in updates.snapshots.keys() - self.saved:
            write_tensors(self.snapshot_path(update), {"weights": updates.snapshots[update]}, self.identity)
            self.saved.add(update)
        if self.path.exists():
            self.path.replace(self.previous)
        write_tensors(self.path, updates.state(), {**self.identity, "cores": updates.cores})
        self.written = time.monotonic()

    def save_if_due(self, updates: Shares, *, finished: bool) -> None:
        """Write the state if the stage is finished, or if the last checkpoint is old enough."""
        if finished or time.monotonic() - self.written > self.every_seconds:
            self.save(updates)


@contextmanager
def lock_checkpoints(folder: Path | None) -> Generator[None, None, None]:
    """Lock a folder of checkpoints, unless there is none or it is in a run's folder that the calling code has locked.

    Two trainings that wrote there would rename and overwrite each other's files.
    """
    if folder is None or folder.resolve().parent in HELD.get():
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder))
        except InvalidFile as error:  # its way out is an option of the command line
            raise InvalidFile(f"{str(error).removesuffix('--out.')}folder of checkpoints.") from None
        yield


def previous_checkpoint(path: Path) -> Path:
    """Return the path of the checkpoint before the last one."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def read_newest(path: Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """Return the newest checkpoint that is not damaged, with its path and its identity; None if there is none."""
    for candidate in (path, previous_checkpoint(path)):
        if not candidate.exists():
            continue
        try:
            state, identity = read_tensors(candidate)
            problem = None if isinstance(identity, dict) and "done" in state else f"{candidate} is not a checkpoint."
        except InvalidFile as error:
            state, identity, problem = {}, {}, str(error)
        if problem is not None:
            warnings.warn(f"{problem} An older checkpoint is used if there is one.", DiffcloneWarning, stacklevel=2)
            continue
        return candidate, state, identity
    return None


def started_groups(folder: Path, stage: str, seeds: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the groups of these seeds that an interrupted stage has checkpoints of, by the name of the checkpoint."""
    groups: dict[str, tuple[int, ...]] = {}
    files = [path.stem.removesuffix(".previous") for path in folder.glob(f"{stage}*.safetensors")]
    for name in sorted(set(files)):
        with warnings.catch_warnings():  # `Checkpoint.restore` reads the file again, and warns if it is damaged
            warnings.simplefilter("ignore", DiffcloneWarning)
            newest = read_newest(folder / f"{name}.safetensors")
        group = () if newest is None else tuple(newest[2].get("seeds", ()))
        if group and newest is not None and newest[2].get("stage") == stage and set(group) <= set(seeds):
            groups[name] = group
    return groups


def hash_seeds(seeds: Sequence[int]) -> str:
    """Return a short name of a group of seeds."""
    return hashlib.sha256(json.dumps(list(seeds)).encode()).hexdigest()[:8]


@final
class GuideCache:
    """Weights of trained parts, one file per identity and seed."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, identity: Mapping[str, Any], seed: int) -> Path:
        """Return the file for an identity and a seed."""
        key = json.dumps([identity, seed], sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.safetensors"

    def load(self, identity: Mapping[str, Any], seed: int) -> Tensor | None:
        """Return one row of weights, or None. A damaged file counts as absent."""
        path = self.path(identity, seed)
        try:
            return read_tensors(path)[0]["weights"] if path.exists() else None
        except (InvalidFile, KeyError, OSError) as error:
            warnings.warn(f"{error} The guide is trained again.", DiffcloneWarning, stacklevel=2)
            return None

    def save(self, identity: Mapping[str, Any], seed: int, weights: Tensor) -> None:
        """Write one row of weights. A cache that cannot be written does not end the training."""
        try:
            write_tensors(self.path(identity, seed), {"weights": weights}, [identity, seed])
        except OSError as error:
            warnings.warn(
                f"the trained guide is not kept for other runs ({error.filename}: {error.strerror}). Set "
                "DIFFCLONE_CACHE to another folder, or use --no-cache.",
                DiffcloneWarning,
                stacklevel=2,
            )


def part_identity(part: Model[Any], net: nn.Module, data_identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return everything that the weights of a part depend on; None if the source of a class cannot be read.

    This is the part's settings without those that only its cost depends on, the version of diffclone, the source code
    of the classes involved, and the data.
    """
    if (source := source_hash(part, net)) is None:
        return None
    scoring = {f.name for f in dataclasses.fields(part) if f.metadata.get("scoring")}
    return {
        "guide": {name: value for name, value in to_dict(part).items() if name not in scoring},
        "class": f"{type(part).__module__}.{type(part).__qualname__}",
        "shapes": [list(p.shape[1:]) for p in net.parameters()],
        "version": versions().get("diffclone"),
        "source": source,
        **data_identity,
    }


def source_hash(part: Model[Any], net: nn.Module) -> str | None:
    """Return a hash of the source code of a part's settings classes and network classes, with their base classes.

    Helper functions count too: the whole file of a class is hashed. Of a script that is run directly, only the source
    of the class is, so that other changes to the script keep the cache.
    """
    classes = {*settings_classes(part), *(type(module) for module in net.modules())}
    bases = {base for cls in classes for base in cls.__mro__}
    roots = ("builtins", "abc", "typing", "torch", "collections")
    own = [base for base in bases if base.__module__.split(".")[0] not in roots]
    try:
        sources = {
            inspect.getsource(base if base.__module__ == "__main__" else sys.modules[base.__module__]) for base in own
        }
    except (OSError, TypeError, KeyError):  # a class that was typed into an interpreter
        return None
    return hashlib.sha256("\0".join(sorted(sources)).encode()).hexdigest()[:16]


def settings_classes(settings: Any) -> Iterator[type[Any]]:
    """Yield the class of a settings object and of the settings objects in its fields."""
    if dataclasses.is_dataclass(settings):
        yield type(settings)
        for field in dataclasses.fields(settings):
            yield from settings_classes(getattr(settings, field.name))
