"""Break down the time of an update: CPU operations or GPU kernels seen by a profiler, grouped by purpose.

The rest of the time measured without a profiler is spent between operations: in Python, or waiting for a launch.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.speed.cases import (
    FAST_PRECISION,
    Case,
    candidate,
    make_updates,
    prepare_setup,
    with_sinusoidal_embedding,
)
from benchmarks.speed.timing import Candidate, synchronise, time_updates

KINDS = {
    "products": r"mm\b|gemm|cutlass|splitKreduce|aten::linear\b",
    "Adam": r"fused_adam|addcdiv",
    "gathering gradients": r"aten::cat\b|vector_norm|_norm|triton_for_|aten::linalg",
    "autograd": r"^autograd::|Backward\d*$|^torch::autograd",
}
"""Patterns of names; the first match counts. Everything else is other operations, most of them element-wise."""

OTHER, BETWEEN = "other operations", "between operations"

LONGEST = 12
"""Number of operations that a Record lists."""


@final
@dataclass(frozen=True)
class Operation:
    """Calls and time of one operation per update."""

    name: str
    calls: float
    microseconds: float


def kind_of(name: str) -> str:
    """Return the purpose of an operation or kernel."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHER)


def profile_updates(runner: Candidate, device: torch.device, rounds: int) -> Mapping[str, Any]:
    """Profile updates, alternating with runs without a profiler, so that load affects both alike."""
    seconds, seen = 0.0, list[Operation]()
    for _ in range(rounds):
        seconds += time_updates(runner, runner.block, device) / rounds
        seen += operations(runner, device)
    means = [
        Operation(name, *(sum(numbers) / rounds for numbers in zip(*found, strict=True)))
        for name, found in by_name(seen).items()
    ]
    means.sort(key=lambda operation: -operation.microseconds)
    microseconds = 1e6 * seconds / runner.block
    return {
        "microseconds": microseconds,
        "operations": sum(operation.calls for operation in means),
        "shares": shares(means, microseconds),
        "longest": [asdict(operation) for operation in means[:LONGEST]],
    }


def operations(runner: Candidate, device: torch.device) -> list[Operation]:
    """Profile one block; the time of an operation excludes the operations that it calls."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs when it starts and stops
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        runner.run(runner.block)
        synchronise(device)
    found: list[Operation] = []
    for event in seen.key_averages():
        taken = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found.append(Operation(event.key, event.count / runner.block, taken / runner.block))
    return [operation for operation in found if operation.microseconds > 0]


def by_name(seen: Sequence[Operation]) -> dict[str, list[tuple[float, float]]]:
    """Group calls and microseconds by name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for operation in seen:
        found.setdefault(operation.name, []).append((operation.calls, operation.microseconds))
    return found


def shares(seen: Sequence[Operation], microseconds: float) -> dict[str, float]:
    """Return the share of each kind in the time of an update. The profiler adds time, so the sum may exceed it."""
    sums = dict.fromkeys((*KINDS, OTHER), 0.0)
    for operation in seen:
        sums[kind_of(operation.name)] += operation.microseconds
    between = max(0.0, microseconds - sum(sums.values()))
    whole = sum(sums.values()) + between
    return {kind: taken / whole for kind, taken in {**sums, BETWEEN: between}.items()}


def candidates(case: Case, device: torch.device) -> Iterator[Candidate]:
    """Yield the case with exact and with faster matrix products; a diffusion model has a sinusoidal embedding."""
    setup = prepare_setup(case, device)
    for precision in ("float32", FAST_PRECISION[device.type]):
        updates = make_updates(setup, with_sinusoidal_embedding(setup.model), precision)
        yield candidate(precision, case.members, updates)


def profiling_cases(device: torch.device, *, quick: bool) -> list[Case]:
    """Return small and wide cases. On a CPU they have one member: the profiler sees only its own thread."""
    small = [Case("guide", "maze", 1)]
    more = [Case("guide", "fetch-pick", 1), Case("dbc", "maze", 1)]
    if device.type == "cuda":
        more += [Case("guide", "maze", 24), Case("guide", "fetch-pick", 8), Case("dbc", "maze", 24)]
    return small if quick else small + more
