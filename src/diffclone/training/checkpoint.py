"""Training that survives an interruption, and guides that are trained once."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from diffclone.errors import InvalidFile
from diffclone.files import read_tensors, write_tensors
from diffclone.model import Model
from diffclone.settings import differences
from diffclone.training.shares import Shares


@final
class Checkpoint:
    """The state of one stage in one file, written now and then, and when the stage ends or is interrupted."""

    def __init__(self, path: Path, identity: Mapping[str, Any], every_seconds: float = 30.0):
        self.path = path
        self.identity = dict(identity)
        self.every_seconds = every_seconds
        self.written = time.monotonic()

    def restore(self, updates: Shares) -> None:
        """Continue from the file, if there is one and it is of this very training."""
        if not self.path.exists():
            return
        state, identity = read_tensors(self.path)
        if found := differences(identity, json.loads(json.dumps(self.identity))):
            raise InvalidFile(
                f"{self.path} is a checkpoint of another training ({'; '.join(found[:3])}). Choose another folder."
            )
        updates.restore(state)

    def save(self, updates: Shares) -> None:
        """Write the state now."""
        write_tensors(self.path, updates.state(), self.identity)
        self.written = time.monotonic()

    def save_if_due(self, updates: Shares, *, finished: bool) -> None:
        """Write the state if the stage is finished, or the last time is long enough ago."""
        if finished or time.monotonic() - self.written > self.every_seconds:
            self.save(updates)


@final
class GuideCache:
    """Weights of trained guides, one file a seed, found by (settings, demonstrations, seed)."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, identity: Mapping[str, Any], seed: int) -> Path:
        """Where the guide of this identity and seed lies."""
        key = json.dumps([identity, seed], sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.safetensors"

    def load(self, identity: Mapping[str, Any], seed: int) -> Tensor | None:
        """One row of weights, or nothing."""
        path = self.path(identity, seed)
        return read_tensors(path)[0]["weights"] if path.exists() else None

    def save(self, identity: Mapping[str, Any], seed: int, weights: Tensor) -> None:
        """Keep one row of weights."""
        write_tensors(self.path(identity, seed), {"weights": weights}, [identity, seed])


def part_identity(
    part: Model[Any], settings: Mapping[str, Any], about: Mapping[str, Any], net: nn.Module
) -> dict[str, Any]:
    """What a part's weights depend on: its settings, less those that matter only when it judges, and the data.

    The shapes of the weights belong to it: a net that is laid out anew does not take an older one's for its own.
    """
    judging = {f.name for f in dataclasses.fields(part) if f.metadata.get("judging")}
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    shapes = [list(p.shape[1:]) for p in net.parameters()]
    learned = {k: v for k, v in settings.items() if k not in judging}
    return {"guide": learned, "class": kind, "shapes": shapes, **about}
