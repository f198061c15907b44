"""Where the time of an update goes: a profiler's operations of a CPU or kernels of a GPU, by what they are for.

What is left of the time without a profiler is spent between them: in Python, or waiting for the next to start.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.speed.timing import Contestant, seconds_of, synchronise
from benchmarks.speed.training import LESS, Case, by_sines, contestant, ground, updates_of

KINDS = {
    "products": r"mm\b|gemm|cutlass|splitKreduce|aten::linear\b",
    "Adam": r"fused_adam|addcdiv",
    "gathering gradients": r"aten::cat\b|vector_norm|_norm|triton_for_|aten::linalg",
    "autograd": r"^autograd::|Backward\d*$|^torch::autograd",
}
"""By what is found in a name, the first that fits; all else is other operations, most of them element by element."""

OTHER, BETWEEN = "other operations", "between operations"

LONGEST = 12
"""Operations that a Record lists."""


@final
@dataclass(frozen=True)
class Operation:
    """What a profiler saw of one, in an update."""

    name: str
    calls: float
    microseconds: float


def kind_of(name: str) -> str:
    """What an operation or kernel is for."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHER)


def profiled(runner: Contestant, device: torch.device, rounds: int) -> Mapping[str, Any]:
    """Operations, and the time without a profiler, in turns: a busy machine then hurts both alike."""
    seconds, seen = 0.0, list[Operation]()
    for _ in range(rounds):
        seconds += seconds_of(runner, runner.block, device) / rounds
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


def operations(runner: Contestant, device: torch.device) -> list[Operation]:
    """Of a block; each without those that it calls."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells the terminal when it starts and stops
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
    """Calls and microseconds of each."""
    found: dict[str, list[tuple[float, float]]] = {}
    for operation in seen:
        found.setdefault(operation.name, []).append((operation.calls, operation.microseconds))
    return found


def shares(seen: Sequence[Operation], microseconds: float) -> dict[str, float]:
    """Of an update's time, the part of each kind; a profiler slows things down, so that they may exceed the whole."""
    sums = dict.fromkeys((*KINDS, OTHER), 0.0)
    for operation in seen:
        sums[kind_of(operation.name)] += operation.microseconds
    between = max(0.0, microseconds - sum(sums.values()))
    whole = sum(sums.values()) + between
    return {kind: taken / whole for kind, taken in {**sums, BETWEEN: between}.items()}


def contestants(case: Case, device: torch.device) -> Iterator[Contestant]:
    """A diffusion model by sines, with exact products and with faster ones; on a CPU not compiled, so as to be seen."""
    given, compiled = ground(case, device), None if device.type == "cuda" else False
    for precision in ("float32", LESS[device.type]):
        updates = updates_of(given, by_sines(given.model), precision, compiled=compiled)
        yield contestant(precision, case.members, updates)


def profiled_cases(device: torch.device, *, quick: bool) -> list[Case]:
    """Small and wide. Of a CPU one member, whose operations one thread calls: a profiler sees that of its own alone."""
    small = [Case("guide", "maze", 1)]
    more = [Case("guide", "fetch-pick", 1), Case("dbc", "maze", 1)]
    if device.type == "cuda":
        more += [Case("guide", "maze", 24), Case("guide", "fetch-pick", 8), Case("dbc", "maze", 24)]
    return small if quick else small + more
