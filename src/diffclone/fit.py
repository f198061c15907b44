"""`fit`: demonstrations in, a policy out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from diffclone.data import Demonstrations, Normaliser
from diffclone.data.normaliser import in_parts
from diffclone.errors import DiffcloneError, InvalidSettings
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Dims, Method, Normalisation
from diffclone.policy import Policy
from diffclone.settings import to_dict
from diffclone.shapes import Seen
from diffclone.training import Precision, Progress, Stack, train
from diffclone.training.checkpoint import GuideCache
from diffclone.training.loop import Session, Trained
from diffclone.training.step import Pairs


class Diverged(DiffcloneError, ArithmeticError):
    """No member ended with finite weights."""


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """A policy, and what came with it."""

    policy: Policy
    trained: Trained
    diverged: list[int]
    """Members whose weights are not finite; the others are not touched by it."""
    seconds: float


def fit(
    method: Method[Any],
    demos: Demonstrations,
    *,
    seeds: Sequence[int] = (0,),
    vary: Mapping[str, Sequence[float]] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    held_out: Demonstrations | None = None,
    checkpoints: str | Path | None = None,
    cache: str | Path | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Policy:
    """Train one member for each seed (and each combination of `vary`), all at once.

    Args:
        method: what to train, with its settings: `BC()`, `DBC(coefficient=10.0)`, …
        demos: what to learn from.
        seeds: a member each.
        vary: values of stackable fields, e.g. `{"coefficient": [0, 10, 30]}`; members are all combinations.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        precision: of matrix products: "float32", or "tf32" and "bfloat16", which are faster on a GPU for wide networks.
        held_out: demonstrations that nothing learns from; losses on them are reported beside the others.
        checkpoints: a folder to save the state of training to, and to continue from.
        cache: a folder of trained guides, looked up before a guide is trained.
        progress: called some hundred times with how far training is.
    """
    return fit_fully(
        method,
        demos,
        seeds=seeds,
        vary=vary,
        device=device,
        precision=precision,
        held_out=held_out,
        checkpoints=checkpoints,
        cache=cache,
        progress=progress,
    ).policy


def fit_fully(
    method: Method[Any],
    demos: Demonstrations,
    *,
    seeds: Sequence[int] = (0,),
    vary: Mapping[str, Sequence[float]] | None = None,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    precision: Precision = "float32",
    held_out: Demonstrations | None = None,
    checkpoints: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    cache: str | Path | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Fitted:
    """`fit`, with the guide's weights and what went wrong."""
    begun = time.monotonic()
    where = choose_device(device)
    normaliser, session = prepare(demos, method.normalisation, where, dtype)
    stack = Stack.of(method, seeds, vary)
    session = replace(
        session,
        checkpoints=None if checkpoints is None else Path(checkpoints),
        cache=None if cache is None else GuideCache(Path(cache)),
        identity={"method": to_dict(method, METHODS, GUIDES), "vary": {k: list(v) for k, v in stack.vary.items()}},
        held_out=None if held_out is None else normalised(held_out, normaliser, where, dtype),
        checkpoint_seconds=checkpoint_seconds,
        precision=precision,
        about=session.about if precision == "float32" else {**session.about, "precision": precision},
    )
    run = train(method, stack, session)
    try:
        while True:
            progress(next(run))
    except StopIteration as end:
        trained: Trained = end.value
    finally:
        run.close()  # an exception in `progress` still leaves a checkpoint
    rows = torch.cat([p.detach().flatten(1) for p in trained.net.parameters()], 1)
    diverged = [m for m, finite in enumerate(rows.isfinite().all(1).tolist()) if not finite]
    if len(diverged) == len(rows):
        raise Diverged("training diverged: no member has finite weights. Try a smaller learning rate.")
    bounds = demos.action_bounds
    policy = Policy(
        method,
        trained.net,
        normaliser,
        stack.members,
        None if bounds is None else (torch.tensor(bounds[0]).to(where), torch.tensor(bounds[1]).to(where)),
        about(demos),
    )
    return Fitted(policy, trained, diverged, time.monotonic() - begun)


def prepare(
    demos: Demonstrations, normalisation: Normalisation, device: torch.device, dtype: torch.dtype
) -> tuple[Normaliser, Session]:
    """Demonstrations as models see them, on the device."""
    fitted = Normaliser.identity if normalisation == "none" else Normaliser.from_demonstrations
    normaliser = fitted(demos).to(device, dtype)
    pairs = normalised(demos, normaliser, device, dtype)
    dims = Dims(demos.obs.shape[1], demos.act.shape[1], normaliser.box)
    known = {"demonstrations": demos.fingerprint, "normaliser": normalisation, "box": dims.box, "precision": str(dtype)}
    return normaliser, Session(pairs, dims, known, device, dtype)


def normalised(demos: Demonstrations, normaliser: Normaliser, device: torch.device, dtype: torch.dtype) -> Pairs:
    """Pairs as models see them: the one copy of the demonstrations that training makes."""

    def filled(values: Seen, normalise: Callable[[Tensor], Tensor]) -> Tensor:
        copy, done = torch.empty(values.shape, dtype=dtype, device=device), 0
        for part in in_parts(values):
            copy[done : done + len(part)] = normalise(torch.tensor(part, device=device).to(dtype))
            done += len(part)
        return copy

    return Pairs(filled(demos.obs, normaliser.normalise_obs), filled(demos.act, normaliser.normalise_act))


def about(demos: Demonstrations) -> dict[str, Any]:
    """What a policy and a Record remember of demonstrations."""
    return {
        "fingerprint": demos.fingerprint,
        "episodes": demos.num_episodes,
        "steps": demos.num_steps,
        "meta": dict(demos.meta),
    }


def choose_device(name: str) -> torch.device:
    """By name, where "auto" is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise InvalidSettings(f"unknown device {name!r}; known are auto, cpu and cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidSettings("no CUDA device is available; use --device cpu or auto.")
    return torch.device(name)
