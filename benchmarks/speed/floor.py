"""How fast an update could be: its arithmetic and its memory traffic, over what the machine can do of each.

Arithmetic, by matrix products alone, for a layer of m inputs and n outputs and a batch of B:
    2 B m n      forward;  as much again for the gradient of the weights, and again for that of the inputs where asked
Traffic, in numbers of 4 bytes, for a part that learns P weights:
    12 P         weights read forward and backward, the gradient written, read for its norm, and Adam's reading of
                 weights, gradient and two moments and writing of weights and moments
    2 P + 4 B n  instead of the weights' two readings, for a table of n columns: rows gathered, and scattered on the way
                 back (its gradient and Adam still go over all rows)
    4 B n        for each hidden layer's outputs and their gradients, each written and read
    P            where the weights are fixed, read once a pass, whatever the members
The floor of a time is the larger of the two: arithmetic and traffic can overlap. Caches can beat the traffic's part.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import torch

from benchmarks.speed.timing import synchronise
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Dims, Model
from diffclone.nn.layers import FREQUENCIES, Network

NUMBER = 4
"""Bytes."""

Layer = tuple[int, int]
"""Inputs, outputs."""


@final
@dataclass(frozen=True)
class Work:
    """Of one update of all members."""

    flops: int
    traffic: int
    """In bytes."""

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.traffic + other.traffic)

    def __mul__(self, times: int) -> "Work":
        return Work(self.flops * times, self.traffic * times)


def work(model: Model[Any], dims: Dims, members: int) -> Work | None:
    """Of an update, for the models that are counted: BC, DBC and the diffusion model."""
    batch = model.training.batch
    if isinstance(model, DiffusionGuide):
        return learned(denoiser_layers(model, dims), batch, model) * members
    if isinstance(model, BC):
        return learned(policy_layers(model.network, dims), batch, None) * members
    if isinstance(model, DBC) and isinstance(model.guide, DiffusionGuide):
        guide, layers = model.guide, policy_layers(model.network, dims)
        rows, judged = batch * guide.draws, denoiser_layers(guide, dims)
        answers = 2 if model.away else 1
        policy = learned(layers, batch * answers, None)
        # The policy's answers are judged and, through the guide or around it, blamed; the expert's are judged.
        passes = passed(judged, rows * answers, backward=guide.jacobian) + passed(judged, rows, backward=False)
        fixed = NUMBER * sum(m * n + n for m, n in judged) * (answers * (1 + guide.jacobian) + 1)
        return (policy + passes) * members + Work(0, fixed)
    return None


def learned(layers: Sequence[Layer], batch: int, guide: DiffusionGuide | None) -> Work:
    """Of layers that learn, and of what tells a denoiser its step."""
    flops = sum(6 * batch * m * n for m, n in layers) - 2 * batch * layers[0][0] * layers[0][1]
    numbers = sum(12 * (m * n + n) for m, n in layers) + sum(4 * batch * n for _, n in layers[:-1])
    if guide is not None and guide.conditioning == "table":
        numbers += guide.depth * (10 * guide.steps * guide.width + 4 * batch * guide.width)
    elif guide is not None:
        flops += guide.depth * 4 * batch * FREQUENCIES * guide.width
        numbers += guide.depth * 12 * (FREQUENCIES * guide.width + guide.width)
    return Work(flops, NUMBER * numbers)


def passed(layers: Sequence[Layer], rows: int, *, backward: bool) -> Work:
    """Of layers that are fixed; on the way back only the gradient of the inputs."""
    ways = 2 if backward else 1
    flops = ways * sum(2 * rows * m * n for m, n in layers)
    return Work(flops, NUMBER * ways * sum(2 * rows * n for _, n in layers[:-1]))


def denoiser_layers(guide: DiffusionGuide, dims: Dims) -> list[Layer]:
    """Its matrices."""
    size = dims.obs + dims.act
    return list(pairwise([size, *[guide.width] * guide.depth, size]))


def policy_layers(network: Network, dims: Dims) -> list[Layer]:
    """Its matrices."""
    return list(pairwise([dims.obs, *[network.width] * network.depth, dims.act]))


def peaks(device: torch.device, *, quick: bool = False) -> dict[str, float]:
    """What the machine does at best: products of large matrices, and a copy of a large array, a second."""
    size = 256 if quick else 8192 if device.type == "cuda" else 1536
    budget = 0.01 if quick else 0.5
    found: dict[str, float] = {}
    settings: dict[str, tuple[torch.dtype, str]] = {"float32": (torch.float32, "highest")}
    if device.type == "cuda":
        settings["tf32"] = (torch.float32, "high")
    settings["bfloat16"] = (torch.bfloat16, "highest")
    before = torch.get_float32_matmul_precision()
    for name, (dtype, precision) in settings.items():
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        seconds = best_of(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device, budget)
        found[f"flops_{name}"] = 2 * size**3 / seconds
    torch.set_float32_matmul_precision(before)
    source = torch.ones(2**20 if quick else 2**28 if device.type == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)
    seconds = best_of(lambda: target.copy_(source), device, budget)
    return {**found, "bytes": 2 * NUMBER * source.numel() / seconds}


def best_of(call: Callable[[], object], device: torch.device, budget: float) -> float:
    """Seconds of the fastest call among those of `budget` seconds."""
    call()
    synchronise(device)
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < budget:
        before = time.perf_counter()
        call()
        synchronise(device)
        best = min(best, time.perf_counter() - before)
    return best


def floor_share(done: Mapping[str, Any], found: Mapping[str, float], precision: str, rate: float) -> dict[str, Any]:
    """How near the floor a measured rate is: the time at the floor over the time taken, and what binds there."""
    arithmetic, traffic = done["flops"] / found[f"flops_{precision}"], done["traffic"] / found["bytes"]
    return {
        "share": max(arithmetic, traffic) * rate,
        "arithmetic": arithmetic * rate,
        "traffic": traffic * rate,
        "bound": "arithmetic" if arithmetic > traffic else "traffic",
    }
