"""Train the members of a stack on the cores of a CPU: one thread per share of the members, without synchronisation.

PyTorch's own threads synchronise after every operation. That gains little if operations are small, and loses much if
other programs run. Members are independent, so their shares need not synchronise at all. A GPU has one share.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from diffclone.model import Dims, Model, part_dims
from diffclone.rng import Rng
from diffclone.training.learner import Learner, join_results
from diffclone.training.members import Stack, select_members
from diffclone.training.step import Dataset, Precision, Updates, matmul_precision

SINGLE_THREAD_WEIGHTS = 500_000
"""Weights per member up to which a second PyTorch thread gains nothing."""


def split_members(members: int, shares: int) -> list[slice]:
    """Split members into shares of nearly equal size."""
    ends = [members * (k + 1) // shares for k in range(shares)]
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


@final
class Shares:
    """The state of a training, in one or several shares of its members."""

    def __init__(
        self,
        model: Model[Any],
        stack: Stack,
        fixed: Mapping[str, nn.Module],
        data: Dataset,
        dims: Dims,
        rng: Rng,
        precision: Precision = "float32",
        snapshots: Sequence[int] = (),
    ):
        seeds, device = rng.seeds, rng.device
        self.precision: Precision = precision
        self.device = device
        self.wanted = tuple(snapshots)
        self.snapshots: dict[int, Tensor] = {}
        """The trained weights of all members at the updates `wanted`, as matrices, once these are done."""
        cores = torch.get_num_threads() if device.type == "cpu" else 1
        shares = split_members(len(seeds), min(cores, len(seeds)))
        expanded = stack.expand_fields(model, device, rng.dtype)
        self.shares: list[Updates] = []
        for share in shares:
            # Weights are made on the CPU, so that a GPU starts with the same ones.
            init = Rng(seeds[share], dtype=rng.dtype, path=rng.path)
            parts = {name: net if len(shares) == 1 else select_members(net, share) for name, net in fixed.items()}
            alongside = {
                name: Learner(
                    part,
                    part.init(part_dims(model, name, dims, parts), init[name]["init"]).to(device),
                    model.training.updates,
                )
                for name, part in model.needs().items()
                if part.trained == "alongside"
            }
            own = stack.slice_fields(expanded, share)
            main = Learner(own, own.init(dims, init["init"]).to(device), model.training.updates)
            seen = data if data.obs.dim() == 2 else replace(data, obs=data.obs[share])
            stream = Rng(seeds[share], device=device, dtype=rng.dtype, path=rng.path)
            self.shares.append(Updates(main, alongside, parts, seen, stream, precision, snapshots))
        large = self.shares[0].main.matrix.shape[1] > SINGLE_THREAD_WEIGHTS
        self.threads = max(1, cores // len(shares)) if large else 1
        self.cores = cores
        """CPU cores that the members are divided over. The last digits of the weights depend on it."""
        self.pool = ThreadPoolExecutor(len(shares)) if len(shares) > 1 else None

    @property
    def done(self) -> int:
        """The number of updates done."""
        return int(self.shares[0].done)

    @property
    def compiled(self) -> bool:
        """Whether the first updates are delayed by a compiler."""
        return self.shares[0].main.compiled

    @property
    def execution(self) -> str:
        """How the updates are run, for people."""
        if self.shares[0].done.device.type != "cpu":
            return "compiled" if self.compiled else "not compiled"
        cores = self.threads * len(self.shares)
        return f"{cores} core" + "s" * (cores > 1)

    def run(self, count: int) -> dict[str, Tensor]:
        """Do `count` updates; return the mean of each logged value over them, one per member."""
        before = torch.get_num_threads()

        def run_share(share: Updates) -> dict[str, Tensor]:
            torch.set_num_threads(self.threads)
            return share.run(count)

        try:
            with matmul_precision(self.precision):
                logs = join_members(list((map if self.pool is None else self.pool.map)(run_share, self.shares)))
        finally:
            torch.set_num_threads(before)
        taken = [share.take_snapshots() for share in self.shares]
        self.snapshots |= {update: torch.cat([own[update] for own in taken]) for update in taken[0]}
        return logs

    def losses_on(self, data: Dataset) -> dict[str, Tensor]:
        """Return the logged values on other data."""
        return join_members([share.losses_on(data) for share in self.shares])

    def state(self) -> dict[str, Tensor]:
        """Return everything that is needed to resume from here bit for bit."""
        return join_members([share.state() for share in self.shares])

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state."""
        begin = 0
        for share in self.shares:
            end = begin + len(share.main.matrix)
            share.restore({name: t[begin:end] if t.dim() else t for name, t in state.items()})
            begin = end

    def results(self) -> tuple[nn.Module, dict[str, nn.Module]]:
        """Return the trained weights of all members: the model's, and those of the parts trained alongside."""
        names = self.shares[0].alongside
        alongside = {name: join_results([share.alongside[name] for share in self.shares]) for name in names}
        return join_results([share.main for share in self.shares]), alongside


def join_members(shares: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Concatenate the tensors of all shares by name. Scalars are equal in all shares."""
    return {
        name: torch.cat([share[name] for share in shares]) if first.dim() else first
        for name, first in shares[0].items()
    }
