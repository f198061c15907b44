"""What is timed on request: memory by members, variants of DBC, precisions, and the whole of Maze."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from benchmarks.speed.timing import Contestant, synchronise
from benchmarks.speed.training import SHORT_RUN, Case, Ground, by_sines, contestant, ground, lasting, updates_of
from diffclone.data import Demonstrations
from diffclone.experiments import PRESETS
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Model
from diffclone.rng import Rng
from diffclone.tasks import TASKS
from diffclone.training import Precision, Stack
from diffclone.training.loop import train_part, train_stage
from diffclone.training.session import prepare_session
from diffclone.training.step import BLOCK

MANY_TRANSITIONS = 10_000_000
FULL_SEEDS = (0, 1, 2)
PRECISION_UPDATES = {"cuda": 8_000, "cpu": 1_000}
"""After which losses are compared."""
CONDITIONING_UPDATES = 20_000
SHARES = (4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5)
"""Some shares for importance sampling: what they are does not matter to the time."""


def memory(device: torch.device, case: Case) -> int:
    """The most bytes of a GPU that a case takes, captured as it is and not compiled."""
    gc.collect()  # graphs hold on to memory until they are gone
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    given = ground(case, device)
    updates_of(given, lasting(given.model, SHORT_RUN)).run(2 * BLOCK)
    synchronise(device)
    return torch.cuda.max_memory_allocated(device) - before


def many_transitions(device: torch.device) -> dict[str, int]:
    """The most bytes that it takes to bring ten million transitions of Maze's sizes to a GPU, beside their own."""
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
    base = ground(Case("bc", "maze", 1), device)
    updates_of(replace(base, session=session), lasting(base.model, SHORT_RUN)).run(2 * BLOCK)
    synchronise(device)
    return {
        "transitions": MANY_TRANSITIONS,
        "data_bytes": obs.nbytes + act.nbytes,
        "preparing_bytes": preparing,
        "training_bytes": torch.cuda.max_memory_allocated(device) - before,
    }


def variants() -> dict[str, Model[Any]]:
    """DBC's brief settings on Maze with one thing changed at a time, and BC's."""
    base = cast(DBC, PRESETS["maze/dbc/brief"].method)
    guide = cast(DiffusionGuide, base.guide)
    importance = replace(guide, draws=8, t_sampling="importance", t_shares=SHARES)
    return {
        "BC": cast(BC, PRESETS["maze/bc/brief"].method),
        "DBC": base,
        "8 stratified draws": replace(base, guide=replace(guide, draws=8, t_sampling="stratified")),
        "8 draws by importance": replace(base, guide=importance),
        "without the Jacobian": replace(base, guide=replace(guide, jacobian=False)),
        "away 1": replace(base, away=1.0),
        "auto coefficient": replace(base, coefficient="auto"),
        "moving average": replace(base, training=replace(base.training, ema=0.999)),
    }


def variant_contestants(device: torch.device, members: int) -> Iterator[Contestant]:
    """One each."""
    base = ground(Case("dbc", "maze", members), device)
    for name, model in variants().items():
        fixed: dict[str, nn.Module] = {}
        for part_name, part in model.needs().items():
            net = part.init(base.session.dims, Rng([0], path=part_name)["init"]).to(device)
            fixed[part_name] = net.requires_grad_(requires_grad=False)
        yield contestant(name, members, updates_of(Ground(base.case, model, base.session, fixed)))


def precisions(device: torch.device) -> tuple[Precision, ...]:
    """Those that the device has."""
    return ("float32", "tf32", "bfloat16") if device.type == "cuda" else ("float32", "bfloat16")


def precision_contestants(
    case: Case, device: torch.device, losses: dict[str, float], *, updates: int
) -> Iterator[Contestant]:
    """One each; the mean loss of the last quarter of so many updates is written down by name, before any turn."""
    given = ground(case, device)
    for precision in precisions(device):
        made = updates_of(given, lasting(given.model, updates), precision)
        made.run(updates - updates // 4)
        losses[precision] = float(made.run(updates // 4)["loss"].mean())
        yield contestant(precision, case.members, made)


def conditioning_losses(case: Case, device: torch.device, *, updates: int) -> dict[str, list[float]]:
    """Of each member, the mean over the last quarter of so many updates at a learning rate that falls to nothing."""
    given, losses = ground(case, device), dict[str, list[float]]()
    for conditioning in ("table", "sinusoidal"):
        model = replace(cast(DiffusionGuide, given.model), conditioning=conditioning)
        model = replace(model, training=replace(model.training, updates=updates, lr=1e-3))
        made = updates_of(given, model)
        made.run(updates - updates // 4)
        losses[conditioning] = made.run(updates // 4)["loss"].tolist()
    return losses


def compiler_cases(*, quick: bool) -> list[Case]:
    """Where compiling on a CPU is tried: small and large, one member and many."""
    small = [Case("guide", "maze", 1)]
    more = [Case("guide", "maze", 24), Case("dbc", "maze", 1), Case("dbc", "maze", 24), Case("guide", "fetch-pick", 1)]
    return small if quick else small + more


def compiler_contestants(case: Case, device: torch.device) -> Iterator[Contestant]:
    """As the loop runs it, and compiled; a diffusion model by sines."""
    given = ground(case, device)
    model = by_sines(given.model)
    for name, compiled in (("plain", False), ("compiled", True)):
        yield contestant(name, case.members, updates_of(given, model, compiled=compiled))


def maze_in_full(
    device: torch.device, progress: Callable[[str, int, int], None], *, precision: Precision, shorten: int = 1
) -> Mapping[str, Any]:
    """Wall clock of the released Maze: a guide of 8000 epochs, then three seeds of DBC of 2000."""
    begun = time.monotonic()
    method = cast(DBC, PRESETS["maze/dbc/release"].method)
    guide = lasting(method.guide, method.guide.training.updates // shorten)
    method = cast(DBC, lasting(method, method.training.updates // shorten))
    _, session = prepare_session(TASKS["maze"].demonstrations(), method.normalisation, device, torch.float32)
    session = replace(session, precision=precision)
    fixed = finish(train_part("guide", guide, Stack((0,), {}), session), progress)
    between = time.monotonic()
    finish(train_stage("policy", method, Stack(FULL_SEEDS, {}), {"guide": fixed}, session), progress)
    ended = time.monotonic()
    return {
        "guide_seconds": between - begun,
        "policy_seconds": ended - between,
        "seconds": ended - begun,
        "guide_updates": guide.training.updates,
        "policy_updates": method.training.updates,
        "seeds": len(FULL_SEEDS),
    }


def finish(stage: Any, progress: Callable[[str, int, int], None]) -> Any:
    """Run a stage to its end, and hand on its value."""
    while True:
        try:
            now = next(stage)
        except StopIteration as end:
            return end.value
        progress(now.stage, now.update, now.updates)
