"""The one loop. Train what a model needs, then the model; a generator of Progress whose value is the result."""

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.model import Model
from diffclone.nn.encoder import Encoder, EncoderNet
from diffclone.rng import Rng
from diffclone.settings import to_dict
from diffclone.training.checkpoint import Checkpoint, part_identity
from diffclone.training.members import Stack, from_matrix, to_matrix
from diffclone.training.session import Session
from diffclone.training.shares import Shares
from diffclone.training.step import BLOCK, Dataset

REPORTS = 400
"""Reports a stage: enough for a smooth curve, few enough to cost nothing."""


@final
@dataclass(frozen=True, eq=False)
class Progress:
    """How far a stage of training is."""

    stage: str
    """What is being trained: "policy", or the name of what it needs, "guide"."""
    update: int
    """Updates done."""
    updates: int
    """Updates of the whole stage."""
    losses: Mapping[str, npt.NDArray[np.float64]]
    """Means since the last report, one number a member."""
    seconds: float
    """Spent on this stage so far."""
    rate: float
    """Updates a second."""
    members: int = 1
    how: str = ""
    """What runs the updates, in words."""

    @property
    def remaining_seconds(self) -> float:
        """Until the stage ends, at the rate so far."""
        return (self.updates - self.update) / self.rate if self.rate else float("inf")


@final
@dataclass(frozen=True)
class Trained:
    """What training gives."""

    net: nn.Module
    """Weights of the model, one set a member."""
    parts: Mapping[str, nn.Module]
    """Weights of what it needed; one set, or one a member."""


def train(model: Model[Any], stack: Stack, session: Session) -> Generator[Progress, None, Trained]:
    """Train the model's parts, then every member of the model."""
    needed: dict[str, nn.Module] = {}
    seen = session
    for name, part in model.needs().items():
        if part.trained == "before":
            needed[name] = yield from train_part(name, part, stack, seen)
        if isinstance(part, Encoder):
            seen = encoded(session, part, needed[name], stack)
    net, alongside = yield from train_stage("policy", model, stack, needed, session)
    return Trained(net, {**needed, **alongside})


def encoded(session: Session, encoder: Encoder, weights: nn.Module, stack: Stack) -> Session:
    """The same with features instead of observations, for the parts trained after an encoder."""
    features = encoder.encode_all(cast(EncoderNet, weights), session.data.obs)[: len(stack.seeds)]
    return replace(
        session,
        data=Dataset(features, session.data.act),
        dims=replace(session.dims, obs=encoder.features),
        about={**session.about, "encoder": to_dict(encoder)},
    )


def train_part(name: str, part: Model[Any], stack: Stack, session: Session) -> Generator[Progress, None, nn.Module]:
    """One a seed, from the cache where it has them. Members that differ in other fields share it."""
    net = part.init(session.dims, Rng([0], device=session.device, dtype=session.dtype)["init"])
    identity = part_identity(part, to_dict(part), session.about, net)
    rows: dict[int, Tensor] = {}
    if session.cache is not None:
        found = {seed: session.cache.load(identity, seed) for seed in stack.seeds}
        rows = {seed: row for seed, row in found.items() if row is not None}
    if missing := tuple(seed for seed in stack.seeds if seed not in rows):
        if session.data.obs.dim() == 3:
            own = session.data.obs[[stack.seeds.index(seed) for seed in missing]]
            session = replace(session, data=Dataset(own, session.data.act))
        trained, _ = yield from train_stage(name, part, Stack(missing, {}), {}, session)
        for seed, row in zip(missing, to_matrix(trained), strict=True):
            rows[seed] = row
            if session.cache is not None:
                session.cache.save(identity, seed, row)
    # One serves all members by broadcasting; several are laid out along the member axis.
    seeds = stack.seeds if len(stack.seeds) == 1 else stack.member_seeds
    matrix = torch.stack([rows[seed].to(session.device, session.dtype) for seed in seeds])
    return from_matrix(net, matrix).requires_grad_(requires_grad=False)


def train_stage(
    stage: str, model: Model[Any], stack: Stack, fixed: Mapping[str, nn.Module], session: Session
) -> Generator[Progress, None, tuple[nn.Module, dict[str, nn.Module]]]:
    """All updates of one model and of the parts trained alongside it."""
    seeds, total = stack.member_seeds, model.training.updates
    rng = Rng(seeds, device=session.device, dtype=session.dtype, path=stage)
    updates = Shares(model, stack, fixed, session.data, session.dims, rng, session.precision)
    checkpoint = None
    if session.checkpoints is not None:
        identity = {**session.identity, "stage": stage, "seeds": list(seeds), **session.about}
        path = session.checkpoints / f"{stage}.safetensors"
        checkpoint = Checkpoint(path, identity, session.checkpoint_seconds)
        checkpoint.restore(updates)

    begun, done = time.monotonic(), updates.done
    first, every = done, max(BLOCK, total // REPORTS // BLOCK * BLOCK)
    if done < total and updates.compiled:
        yield Progress(stage, done, total, {}, 0.0, 0.0, len(seeds), "compiling")
    while done < total:
        count = min(every - done % every, total - done)
        losses = {name: means.numpy() for name, means in updates.run(count).items()}
        if session.held_out is not None and stage == "policy":
            unseen = updates.losses_on(session.held_out)
            losses |= {f"held_out/{name}": values.numpy() for name, values in unseen.items()}
        done += count
        seconds = time.monotonic() - begun
        try:
            yield Progress(stage, done, total, losses, seconds, (done - first) / seconds, len(seeds), updates.how)
        except GeneratorExit:
            # The caller stops half-way, here between two updates; inside one, the state would be torn.
            if checkpoint is not None:
                checkpoint.save(updates)
            raise
        if checkpoint is not None:
            checkpoint.save_if_due(updates, finished=done == total)
    return updates.results()
