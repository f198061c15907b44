"""Measurements on request: memory by members, variants of DBC, precisions, and Maze at full length."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from benchmarks.speed.cases import (
    SHORT_RUN,
    Case,
    TrainingSetup,
    candidate,
    initial_parts,
    make_updates,
    prepare_setup,
    with_updates,
)
from benchmarks.speed.timing import Candidate, synchronise
from diffclone.data import Demonstrations
from diffclone.experiments import PRESETS
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Model
from diffclone.tasks import TASKS
from diffclone.training import Precision, Stack
from diffclone.training.loop import train_part, train_stage
from diffclone.training.session import prepare_session
from diffclone.training.step import BLOCK

MANY_TRANSITIONS = 10_000_000
FULL_SEEDS = (0, 1, 2)
PRECISION_UPDATES = {"cuda": 8_000, "cpu": 1_000}
"""Updates after which losses are compared."""
CONDITIONING_UPDATES = 20_000


def peak_memory(device: torch.device, case: Case) -> int:
    """Return the peak GPU memory of a case in bytes, captured in a CUDA graph and not compiled."""
    gc.collect()  # CUDA graphs keep their memory until they are freed
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    setup = prepare_setup(case, device)
    make_updates(setup, with_updates(setup.model, SHORT_RUN)).run(2 * BLOCK)
    synchronise(device)
    return torch.cuda.max_memory_allocated(device) - before


def many_transitions(device: torch.device) -> dict[str, int]:
    """Return the peak GPU memory when training on ten million transitions with the sizes of Maze."""
    task = TASKS["maze"]
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((MANY_TRANSITIONS, task.obs_size), dtype=np.float32)
    act = rng.standard_normal((MANY_TRANSITIONS, task.act_size), dtype=np.float32)
    demos = Demonstrations.from_arrays(obs, act, episode_ends=[MANY_TRANSITIONS])
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    _, session = prepare_session(demos, "z-score", device, torch.float32)
    preparing = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.reset_peak_memory_stats(device)
    base = prepare_setup(Case("bc", "maze", 1), device)
    make_updates(replace(base, session=session), with_updates(base.model, SHORT_RUN)).run(2 * BLOCK)
    synchronise(device)
    return {
        "transitions": MANY_TRANSITIONS,
        "data_bytes": obs.nbytes + act.nbytes,
        "preparing_bytes": preparing,
        "training_bytes": torch.cuda.max_memory_allocated(device) - before,
    }


def variants() -> dict[str, Model[Any]]:
    """Return the `brief` settings of DBC on Maze with one option changed at a time, and those of BC."""
    base = cast(DBC, PRESETS["maze/dbc/brief"].method)
    guide = cast(DiffusionGuide, base.guide)
    return {
        "BC": cast(BC, PRESETS["maze/bc/brief"].method),
        "DBC": base,
        "8 stratified draws": replace(base, guide=replace(guide, draws=8, t_sampling="stratified")),
        "without the Jacobian": replace(base, guide=replace(guide, jacobian=False)),
        "away 1": replace(base, away=1.0),
        "auto coefficient": replace(base, coefficient="auto"),
        "moving average": replace(base, training=replace(base.training, ema=0.999)),
    }


def variant_candidates(device: torch.device, members: int) -> Iterator[Candidate]:
    """Yield one candidate per variant."""
    base = prepare_setup(Case("dbc", "maze", members), device)
    for name, model in variants().items():
        parts = initial_parts(model, base.session)
        yield candidate(name, members, make_updates(TrainingSetup(base.case, model, base.session, parts)))


def precisions(device: torch.device) -> tuple[Precision, ...]:
    """Return the precisions that the device supports."""
    return ("float32", "tf32", "bfloat16") if device.type == "cuda" else ("float32", "bfloat16")


def precision_candidates(
    case: Case, device: torch.device, losses: dict[str, float], *, updates: int
) -> Iterator[Candidate]:
    """Yield one candidate per precision; `losses` receives the mean loss over the last quarter of `updates`."""
    setup = prepare_setup(case, device)
    for precision in precisions(device):
        made = make_updates(setup, with_updates(setup.model, updates), precision)
        made.run(updates - updates // 4)
        losses[precision] = float(made.run(updates // 4)["loss"].mean())
        yield candidate(precision, case.members, made)


def conditioning_losses(case: Case, device: torch.device, *, updates: int) -> dict[str, list[float]]:
    """Return the mean loss of each member over the last quarter of `updates`, with linear decay, per embedding."""
    setup, losses = prepare_setup(case, device), dict[str, list[float]]()
    for conditioning in ("table", "sinusoidal"):
        model = replace(cast(DiffusionGuide, setup.model), conditioning=conditioning)
        model = replace(model, training=replace(model.training, updates=updates, lr=1e-3))
        made = make_updates(setup, model)
        made.run(updates - updates // 4)
        losses[conditioning] = made.run(updates // 4)["loss"].tolist()
    return losses


def full_maze(
    device: torch.device, progress: Callable[[str, int, int], None], *, precision: Precision, shorten: int = 1
) -> Mapping[str, Any]:
    """Time the released Maze training: a guide of 8000 epochs, then three seeds of DBC of 2000 epochs."""
    start = time.monotonic()
    method = cast(DBC, PRESETS["maze/dbc/release"].method)
    guide = with_updates(method.guide, method.guide.training.updates // shorten)
    method = cast(DBC, with_updates(method, method.training.updates // shorten))
    _, session = prepare_session(TASKS["maze"].demonstrations(), method.normalisation, device, torch.float32)
    session = replace(session, precision=precision)
    fixed = run_stage(train_part("guide", guide, (0,), session, {}), progress)
    guide_done = time.monotonic()
    run_stage(train_stage("policy", method, Stack(FULL_SEEDS, {}), {"guide": fixed}, session), progress)
    ended = time.monotonic()
    return {
        "guide_seconds": guide_done - start,
        "policy_seconds": ended - guide_done,
        "seconds": ended - start,
        "guide_updates": guide.training.updates,
        "policy_updates": method.training.updates,
        "seeds": len(FULL_SEEDS),
    }


def run_stage(stage: Any, progress: Callable[[str, int, int], None]) -> Any:
    """Run a stage to its end and return its result."""
    while True:
        try:
            now = next(stage)
        except StopIteration as end:
            return end.value
        progress(now.stage, now.update, now.updates)
