"""Prepare demonstrations for training: normalised tensors on the training device."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from diffclone.data import AnyDemonstrations, Demonstrations, Normaliser, Streamed
from diffclone.data.normaliser import split_rows
from diffclone.deploy.memory import Chunks
from diffclone.model import Dims, Normalisation
from diffclone.shapes import Seen
from diffclone.training.checkpoint import GuideCache
from diffclone.training.feed import Feed
from diffclone.training.step import Dataset, Precision
from diffclone.training.windows import Windows

NORMALISERS: Mapping[Normalisation, Callable[[AnyDemonstrations], Normaliser]] = {
    "z-score": Normaliser.from_demonstrations,
    "robust": Normaliser.robust,
    "none": Normaliser.identity,
}

SINGLE_STEPS = Chunks()


@final
@dataclass(frozen=True, eq=False)
class Session:
    """The data, the device and the files of one training."""

    data: Dataset
    dims: Dims
    data_identity: Mapping[str, Any]
    """Identifies the data and its precision, in checkpoints and in the cache."""
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    checkpoints: Path | None = None
    """Folder of checkpoints; none to write no checkpoints."""
    cache: GuideCache | None = None
    """Guides trained earlier."""
    identity: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further values that a checkpoint must agree with."""
    held_out: Dataset | None = None
    """Data that is not trained on; the policy's losses on it are reported next to the training losses."""
    checkpoint_seconds: float = 30.0
    """Longest time between two checkpoints."""
    precision: Precision = "float32"
    guide_seed: int | None = None
    """Seed of the parts if all members share them; none to train them once per seed."""
    snapshots: Sequence[int] = ()
    """Updates of the policy at which its weights are copied."""
    enough: Callable[[Any], bool] | None = None
    """Called with each report (`Progress`); True ends the stage there."""


def prepare_session(
    demos: AnyDemonstrations,
    normalisation: Normalisation,
    device: torch.device,
    dtype: torch.dtype,
    chunks: Chunks = SINGLE_STEPS,
) -> tuple[Normaliser, Session]:
    """Fit the normaliser to single steps and return it with a session on the normalised demonstrations."""
    normaliser = NORMALISERS[normalisation](demos).to(device, dtype)
    if isinstance(demos, Streamed):
        feed = Feed.of(demos, normaliser, chunks, dtype)
        obs, act, *real = feed.make_buffer(device)
        data = Dataset(obs, act, real=next(iter(real), None), feed=feed)
    else:
        data = normalise_demonstrations(demos, normaliser, device, dtype, chunks)
    dims = Dims(demos.obs_size, demos.act.shape[1], normaliser.box)
    known = {"demonstrations": demos.fingerprint, "normaliser": normalisation, "box": dims.box, "precision": str(dtype)}
    if chunks.has_memory:
        known |= {"horizon": chunks.horizon, "history": chunks.history}
    if data.feed is not None:
        known |= {"blocks": data.feed.identity()}
    return normaliser, Session(data, dims.windows(chunks), known, device, dtype)


def normalise_demonstrations(
    demos: Demonstrations,
    normaliser: Normaliser,
    device: torch.device,
    dtype: torch.dtype,
    chunks: Chunks = SINGLE_STEPS,
) -> Dataset:
    """Copy demonstrations to the device, normalised. Training makes no other copy of them.

    Images stay bytes, which a CPU does not even copy; they are normalised in each batch.
    """

    def copy_normalised(values: Seen, normalise: Callable[[Tensor], Tensor]) -> Tensor:
        copy, done = torch.empty(values.shape, dtype=dtype, device=device), 0
        for part in split_rows(values):
            copy[done : done + len(part)] = normalise(torch.tensor(part, device=device).to(dtype))
            done += len(part)
        return copy

    windows = Windows.of(demos, chunks, device)
    act = copy_normalised(demos.act, normaliser.normalise_act)
    if demos.obs.dtype == np.uint8:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array is read-only; nothing writes to the tensor
            stored = torch.from_numpy(demos.obs).to(device)
        return Dataset(stored, act, windows, partial(normaliser.normalise_stored, layout=demos.layout))
    return Dataset(copy_normalised(demos.obs, normaliser.normalise_obs), act, windows)


def describe_data(demos: AnyDemonstrations) -> dict[str, Any]:
    """Return what a policy and a Record store about their demonstrations."""
    return {
        "fingerprint": demos.fingerprint,
        "episodes": demos.num_episodes,
        "steps": demos.num_steps,
        "meta": dict(demos.meta),
    }
