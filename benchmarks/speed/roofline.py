"""Roofline model of an update: its arithmetic and its memory traffic, over the peak rates of the machine.

Arithmetic counts matrix products only. For a layer of m inputs and n outputs and a batch of B:
    2 B m n      forward; again for the gradient of the weights, and again for the gradient of the inputs if needed
Traffic is in numbers of 4 bytes. For a part with P trained weights:
    12 P         weights read forward and backward, the gradient written and read for its norm, and Adam's reads of
                 weights, gradient and two moments and writes of weights and moments
    2 P + 4 B n  instead of the two reads of the weights, for an embedding table of n columns: rows are gathered and
                 scattered (its gradient and Adam still touch all rows)
    4 B n        outputs of each hidden layer and their gradients, each written and read
    P            fixed weights, read once per pass, whatever the number of members
The lower bound of the time is the larger of the two, since arithmetic and traffic can overlap. Caches can
beat the bound of the traffic.
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

BYTES = 4
"""Bytes per number."""

Layer = tuple[int, int]
"""Inputs and outputs."""


@final
@dataclass(frozen=True)
class Work:
    """Arithmetic and traffic of one update of all members."""

    flops: int
    traffic: int
    """Bytes read and written."""

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.traffic + other.traffic)

    def __mul__(self, times: int) -> "Work":
        return Work(self.flops * times, self.traffic * times)


def count_work(model: Model[Any], dims: Dims, members: int) -> Work | None:
    """Count the work of an update of BC, DBC or the diffusion model; None for other models."""
    batch = model.training.batch
    if isinstance(model, DiffusionGuide):
        return trained_work(denoiser_layers(model, dims), batch, model) * members
    if isinstance(model, BC):
        return trained_work(policy_layers(model.network, dims), batch, None) * members
    if isinstance(model, DBC) and isinstance(model.guide, DiffusionGuide):
        guide, layers = model.guide, policy_layers(model.network, dims)
        rows, guide_layers = batch * guide.draws, denoiser_layers(guide, dims)
        actions = 2 if model.away else 1
        policy = trained_work(layers, batch * actions, None)
        # The policy's actions pass through the guide forward and backward, the expert's forward only.
        passes = fixed_work(guide_layers, rows * actions, backward=guide.jacobian) + fixed_work(
            guide_layers, rows, backward=False
        )
        fixed = BYTES * sum(m * n + n for m, n in guide_layers) * (actions * (1 + guide.jacobian) + 1)
        return (policy + passes) * members + Work(0, fixed)
    return None


def trained_work(layers: Sequence[Layer], batch: int, guide: DiffusionGuide | None) -> Work:
    """Count the work of trained layers and of the step embedding of a denoiser."""
    flops = sum(6 * batch * m * n for m, n in layers) - 2 * batch * layers[0][0] * layers[0][1]
    numbers = sum(12 * (m * n + n) for m, n in layers) + sum(4 * batch * n for _, n in layers[:-1])
    if guide is not None and guide.conditioning == "table":
        numbers += guide.depth * (10 * guide.steps * guide.width + 4 * batch * guide.width)
    elif guide is not None:
        flops += guide.depth * 4 * batch * FREQUENCIES * guide.width
        numbers += guide.depth * 12 * (FREQUENCIES * guide.width + guide.width)
    return Work(flops, BYTES * numbers)


def fixed_work(layers: Sequence[Layer], rows: int, *, backward: bool) -> Work:
    """Count the work of fixed layers; the backward pass computes the gradient of the inputs only."""
    passes = 2 if backward else 1
    flops = passes * sum(2 * rows * m * n for m, n in layers)
    return Work(flops, BYTES * passes * sum(2 * rows * n for _, n in layers[:-1]))


def denoiser_layers(guide: DiffusionGuide, dims: Dims) -> list[Layer]:
    """Return the sizes of its matrices."""
    size = dims.obs + dims.act
    return list(pairwise([size, *[guide.width] * guide.depth, size]))


def policy_layers(network: Network, dims: Dims) -> list[Layer]:
    """Return the sizes of its matrices."""
    return list(pairwise([dims.obs, *[network.width] * network.depth, dims.act]))


def measure_peaks(device: torch.device, *, quick: bool = False) -> dict[str, float]:
    """Measure the peak rates of the machine: products of large matrices, and a copy of a large array."""
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
        seconds = fastest_call(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device, budget)
        found[f"flops_{name}"] = 2 * size**3 / seconds
    torch.set_float32_matmul_precision(before)
    source = torch.ones(2**20 if quick else 2**28 if device.type == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)
    seconds = fastest_call(lambda: target.copy_(source), device, budget)
    return {**found, "bytes": 2 * BYTES * source.numel() / seconds}


def fastest_call(call: Callable[[], object], device: torch.device, budget: float) -> float:
    """Return the seconds of the fastest call within `budget` seconds."""
    call()
    synchronise(device)
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < budget:
        before = time.perf_counter()
        call()
        synchronise(device)
        best = min(best, time.perf_counter() - before)
    return best


def roofline_share(done: Mapping[str, Any], found: Mapping[str, float], precision: str, rate: float) -> dict[str, Any]:
    """Compare a measured rate with the roofline: lower bound of the time over the time taken, and what limits it."""
    arithmetic, traffic = done["flops"] / found[f"flops_{precision}"], done["traffic"] / found["bytes"]
    return {
        "share": max(arithmetic, traffic) * rate,
        "arithmetic": arithmetic * rate,
        "traffic": traffic * rate,
        "bound": "arithmetic" if arithmetic > traffic else "traffic",
    }
