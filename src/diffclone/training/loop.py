"""The training loop: train the parts of a model, then the model.

`train` is a generator of `Progress` whose value is the result.
"""

import copy
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.errors import DiffcloneError, InvalidData, InvalidSettings
from diffclone.model import Model, Parts
from diffclone.rng import Rng
from diffclone.settings import to_dict
from diffclone.training.checkpoint import Checkpoint, hash_seeds, part_identity, source_hash, started_groups
from diffclone.training.members import Stack, from_matrix, select_members, to_matrix
from diffclone.training.session import Session
from diffclone.training.shares import Shares
from diffclone.training.step import BLOCK, Dataset

T = TypeVar("T")

ENCODED_ROWS = 256
"""Rows of the demonstrations that a part's observations are computed for at once."""

OBSERVED_BY = "observed_by"
"""In the identity of a part: the models whose `part_obs` made the observations that the part is trained on."""

REPORTS = 400
"""Reports per stage: enough for a smooth curve, few enough to cost nothing."""


class Diverged(DiffcloneError, ArithmeticError):
    """No member ended with finite weights."""


@final
@dataclass(frozen=True, eq=False)
class Progress:
    """A report on a stage of training."""

    stage: str
    """What is trained: "policy", or the name of a part, e.g. "guide"."""
    update: int
    """Updates done."""
    updates: int
    """Updates of the stage."""
    losses: Mapping[str, npt.NDArray[np.float64]]
    """Means since the last report, one number per member. Empty in a report that announces a stage."""
    seconds: float
    """Time spent on this stage so far."""
    rate: float
    """Updates per second."""
    members: int = 1
    """Members that are trained together."""
    execution: str = ""
    """How the updates are run: "2 cores", "compiled", or "compiling" before the first update."""


@final
@dataclass(frozen=True)
class Trained:
    """The result of training."""

    net: nn.Module
    """Weights of the model, one set per member."""
    parts: Mapping[str, nn.Module]
    """Weights of its parts: one set that all members share, or one per member."""
    snapshots: Mapping[int, nn.Module]
    """Weights of the model at earlier updates."""


def run_reporting(training: Generator[Progress, None, T], progress: Callable[[Progress], None]) -> T:
    """Run a training to its end, call `progress` with each report, and return the result.

    If `progress` raises an exception, the training writes a checkpoint, unless a file could not be written: a
    resumed training would start after the report that was lost, and never write it.
    """
    try:
        while True:
            now = next(training)
            try:
                progress(now)
            except OSError as error:
                training.throw(error)
    except StopIteration as end:
        return end.value
    finally:
        training.close()


def train(model: Model[Any], stack: Stack, session: Session) -> Generator[Progress, None, Trained]:
    """Train the parts of the model, then every member of the model."""
    seeds = stack.seeds if session.guide_seed is None else (session.guide_seed,)
    parts = yield from train_parts(model, seeds, session)
    # A part with one seed is shared by all members. Several are arranged along the member axis.
    rows = [stack.seeds.index(seed) for seed in stack.member_seeds]
    fixed = parts if len(seeds) == 1 else {name: select_members(net, rows) for name, net in parts.items()}
    updates = yield from train_stage("policy", model, stack, fixed, session)
    net, alongside = updates.results()
    snapshots = {n: from_matrix(copy.deepcopy(net), matrix) for n, matrix in sorted(updates.snapshots.items())}
    return Trained(net, {**fixed, **alongside}, snapshots)


def train_parts(
    model: Model[Any], seeds: tuple[int, ...], session: Session, prefix: str = ""
) -> Generator[Progress, None, dict[str, nn.Module]]:
    """Train everything that a model needs, one set of weights per seed, and return it by name."""
    parts: dict[str, nn.Module] = {}
    for name, part in model.needs().items():
        if part.trained == "alongside" and prefix:
            raise InvalidSettings(
                f"{type(part).__name__} is trained alongside a policy; it cannot be a part of {type(model).__name__}."
            )
        own = session_of_part(model, name, parts, session)
        nested = yield from train_parts(part, seeds, own, f"{prefix}{name}.")
        parts |= {f"{name}.{key}": net for key, net in nested.items()}
        if part.trained == "before":
            parts[name] = yield from train_part(f"{prefix}{name}", part, seeds, own, nested)
            if not to_matrix(parts[name]).isfinite().all(1).any():  # every policy would learn NaN from it
                raise Diverged(
                    f"the {prefix}{name} diverged: no member has finite weights. Try a smaller "
                    f"{prefix}{name}.training.lr."
                )
    return parts


def session_of_part(model: Model[Any], name: str, parts: Parts, session: Session) -> Session:
    """Return the session with the observations that the part `name` receives."""
    data, steps = session.data, len(session.data.act)
    with torch.no_grad():
        first = data.observe(slice(0, ENCODED_ROWS))
        seen = model.part_obs(name, first, parts)
        if seen is first:
            return session
        if data.feed is not None:
            raise InvalidSettings(
                f"the {name} learns from encoded observations of all demonstrations, which must be in memory; use a "
                "method without an encoder, or a larger --memory."
            )
        rest = (data.observe(slice(k, k + ENCODED_ROWS)) for k in range(ENCODED_ROWS, steps, ENCODED_ROWS))
        obs = torch.cat([seen, *(model.part_obs(name, rows, parts) for rows in rest)], -2)
    before: dict[str, Any] = {key: to_dict(part) for key, part in model.needs().items() if key in parts}
    if not type(model).part_obs.__module__.startswith("diffclone."):  # ours depend on earlier parts only
        own = {key: value for key, value in to_dict(model).items() if key not in model.needs()}
        outer = session.data_identity.get(OBSERVED_BY, [])
        before[OBSERVED_BY] = [*outer, {"settings": own, "source": source_hash(model, nn.Identity())}]
    return replace(
        session,
        data=Dataset(obs, data.act, None if data.windows is None else replace(data.windows, history=1)),
        dims=replace(session.dims, obs=obs.shape[-1]),
        data_identity={**session.data_identity, **before},
    )


def train_part(
    stage: str, part: Model[Any], seeds: tuple[int, ...], session: Session, nested: Parts
) -> Generator[Progress, None, nn.Module]:
    """Train a part once per seed, or take it from the cache.

    Seeds that have a checkpoint are resumed from it, whatever is in the cache by now. The others come from the cache,
    and those that are not there are trained.
    """
    net = part.init(session.dims, Rng([0], device=session.device, dtype=session.dtype)["init"])
    identity, rows = part_identity(part, net, session.data_identity), dict[int, Tensor]()
    cache = None if identity is None else session.cache
    groups = {} if session.checkpoints is None else started_groups(session.checkpoints, stage, seeds)
    rest = [seed for seed in seeds if not any(seed in group for group in groups.values())]
    if cache is not None and identity is not None:
        cached = {seed: cache.load(identity, seed) for seed in rest}
        rows = {seed: row for seed, row in cached.items() if row is not None}
    if missing := tuple(seed for seed in rest if seed not in rows):
        groups[stage if missing == seeds else f"{stage}-{hash_seeds(missing)}"] = missing
    for name, group in groups.items():
        chosen = [seeds.index(seed) for seed in group]
        own = {key: select_members(net, chosen) for key, net in nested.items()}
        data = session.data
        if data.obs.dim() == 3:
            data = replace(data, obs=data.obs[chosen])
        updates = yield from train_stage(stage, part, Stack(group, {}), own, replace(session, data=data), name)
        trained, _ = updates.results()
        for seed, row in zip(group, to_matrix(trained), strict=True):
            rows[seed] = row
            whole = updates.done == part.training.updates and bool(row.isfinite().all())
            if cache is not None and identity is not None and whole:
                cache.save(identity, seed, row)
    matrix = torch.stack([rows[seed].to(session.device, session.dtype) for seed in seeds])
    return from_matrix(net, matrix).requires_grad_(requires_grad=False)


def train_stage(
    stage: str,
    model: Model[Any],
    stack: Stack,
    fixed: Mapping[str, nn.Module],
    session: Session,
    checkpoint_name: str | None = None,
) -> Generator[Progress, None, Shares]:
    """Do all updates of one model and of the parts trained alongside it, and return their state."""
    seeds, total = stack.member_seeds, model.training.updates
    rng = Rng(seeds, device=session.device, dtype=session.dtype, path=stage)
    snapshots = session.snapshots if stage == "policy" else ()
    updates = Shares(model, stack, fixed, session.data, session.dims, rng, session.precision, snapshots)
    checkpoint = None
    if session.checkpoints is not None:
        # A checkpoint has all settings of the method, which include those that its parts are observed by.
        data = {key: value for key, value in session.data_identity.items() if key != OBSERVED_BY}
        identity = {**session.identity, "stage": stage, "seeds": list(seeds), **data}
        path = session.checkpoints / f"{checkpoint_name or stage}.safetensors"
        checkpoint = Checkpoint(path, identity, session.checkpoint_seconds)
        checkpoint.restore(updates)

    begun, done = time.monotonic(), updates.done
    first, every = done, max(BLOCK, total // REPORTS // BLOCK * BLOCK)
    if done < total and updates.compiled:
        yield Progress(stage, done, total, {}, 0.0, 0.0, len(seeds), "compiling")
    with closing(updates):  # ends the thread that reads ahead, after an error as well
        while done < total:
            count = min(every - done % every, total - done)
            try:
                losses = {name: means.numpy() for name, means in updates.run(count).items()}
            except (
                InvalidData
            ):  # a file of the demonstrations cannot be read; the state is that of the last whole update
                if checkpoint is not None:
                    checkpoint.save(updates)
                raise
            if session.held_out is not None and stage == "policy":
                held_out = updates.losses_on(session.held_out)
                losses |= {f"held_out/{name}": values.numpy() for name, values in held_out.items()}
            done += count
            seconds = time.monotonic() - begun
            now = Progress(stage, done, total, losses, seconds, (done - first) / seconds, len(seeds), updates.execution)
            try:
                yield now
            except GeneratorExit:
                # The caller stops the training. Only between two updates is the state consistent.
                if checkpoint is not None:
                    checkpoint.save(updates)
                raise
            ended = session.enough is not None and session.enough(now)
            if checkpoint is not None:  # a stage that ends early may be continued: a sweep does so
                checkpoint.save_if_due(updates, finished=ended or done == total)
            if ended:
                break
    return updates
