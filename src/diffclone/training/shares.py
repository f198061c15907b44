"""Train the members of a stack on the cores of a CPU or on several GPUs: one thread per share of the members.

PyTorch's own threads synchronise after every operation. That gains little if operations are small, and loses much if
other programs run. Members are independent, so their shares need not synchronise at all. Each GPU has one share, with
its own copy of the data.
"""

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from diffclone.model import Dims, Model, part_dims
from diffclone.rng import Rng
from diffclone.training.feed import Flow
from diffclone.training.learner import Learner, join_results
from diffclone.training.members import Stack, select_members
from diffclone.training.step import BLOCK, Dataset, Precision, Updates, matmul_precision

SINGLE_THREAD_WEIGHTS = 500_000
"""Weights per member up to which a second PyTorch thread gains nothing."""


def split_members(members: int, shares: int) -> list[slice]:
    """Split members into shares of nearly equal size."""
    ends = [members * (k + 1) // shares for k in range(shares)]
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


def list_places(device: torch.device) -> list[torch.device]:
    """Return the devices of shares: the CPU once per core, the GPU that is named (cuda:1), or all visible GPUs."""
    if device.type == "cpu":
        return [device] * torch.get_num_threads()
    if str(device) == "cuda" and (count := torch.cuda.device_count()) > 1:
        return [torch.device("cuda", index) for index in range(count)]
    return [device]


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
        # Images are normalised by tensors on one GPU, when a batch is made.
        places = list_places(device) if data.decode is None or device.type == "cpu" else [device]
        shares = split_members(len(seeds), min(len(places), len(seeds)))
        self.shares: list[Updates] = []
        for share, place in zip(shares, places, strict=False):
            # Weights are made on the CPU, so that a GPU starts with the same ones.
            init = Rng(seeds[share], dtype=rng.dtype, path=rng.path)
            parts = {
                name: net if len(shares) == 1 else move_net(select_members(net, share), place)
                for name, net in fixed.items()
            }
            alongside = {
                name: Learner(
                    part,
                    part.init(part_dims(model, name, dims, parts), init[name]["init"]).to(place),
                    model.training.updates,
                )
                for name, part in model.needs().items()
                if part.trained == "alongside"
            }
            own = stack.slice_fields(stack.expand_fields(model, place, rng.dtype), share)
            main = Learner(own, own.init(dims, init["init"]).to(place), model.training.updates)
            seen = data.to(place) if data.obs.dim() == 2 else replace(data, obs=data.obs[share]).to(place)
            stream = Rng(seeds[share], device=place, dtype=rng.dtype, path=rng.path)
            self.shares.append(Updates(main, alongside, parts, seen, stream, precision, snapshots))
        large = self.shares[0].main.matrix.shape[1] > SINGLE_THREAD_WEIGHTS
        self.threads = max(1, len(places) // len(shares)) if large and device.type == "cpu" else 1
        self.cores = len(places)
        """CPU cores or GPUs that the members are divided over. The last digits of the weights depend on it."""
        self.pool = ThreadPoolExecutor(len(shares)) if len(shares) > 1 else None
        self.warm = device.type == "cpu" or self.pool is None
        """Whether shares may run at the same time: the first block on a GPU is compiled and captured."""
        self.copies: dict[torch.device, Dataset] = {}
        """Held-out data on the device of each share."""
        buffers = {share.data.obs.data_ptr(): share.data.buffer for share in self.shares}
        self.flow = None
        if data.feed is not None:
            self.flow = Flow(data.feed, list(buffers.values()), rng.path, model.training.batch)

    @property
    def done(self) -> int:
        """The number of updates done."""
        return int(self.shares[0].done)

    @property
    def places(self) -> str:
        """What the members are divided over, for people."""
        return "CPU cores" if self.device.type == "cpu" else "GPUs"

    @property
    def compiled(self) -> bool:
        """Whether the first updates are delayed by a compiler."""
        return self.shares[0].main.compiled

    @property
    def execution(self) -> str:
        """How the updates are run, for people."""
        if self.shares[0].done.device.type != "cpu":
            where = f" on {len(self.shares)} GPUs" * (len(self.shares) > 1)
            return ("compiled" if self.compiled else "not compiled") + where
        cores = self.threads * len(self.shares)
        return f"{cores} core" + "s" * (cores > 1)

    def run(self, count: int) -> dict[str, Tensor]:
        """Do `count` updates; return the mean of each logged value over them, one per member."""
        done, end, parts = self.done, self.done + count, list[tuple[int, dict[str, Tensor]]]()
        while done < end:
            length = end - done if self.warm else min(end - done, BLOCK)
            length = length if self.flow is None else min(length, self.flow.advance(done))
            parts.append((length, self._run(length)))
            self.warm, done = True, done + length
        if len(parts) == 1:
            return parts[0][1]
        return {name: sum((n / count * logs[name] for n, logs in parts), torch.zeros(())) for name in parts[0][1]}

    def _run(self, count: int) -> dict[str, Tensor]:
        before = torch.get_num_threads()

        def run_share(share: Updates) -> dict[str, Tensor]:
            torch.set_num_threads(self.threads)
            return share.run(count)

        together = map if self.pool is None or not self.warm else self.pool.map
        try:
            with matmul_precision(self.precision):
                logs = join_members(list(together(run_share, self.shares)))
        finally:
            torch.set_num_threads(before)
        taken = [share.take_snapshots() for share in self.shares]
        for update in taken[0]:
            self.snapshots[update] = torch.cat([own[update].to(taken[0][update].device) for own in taken])
        return logs

    def close(self) -> None:
        """End the thread that reads ahead, if there is one."""
        if self.flow is not None:
            self.flow.close()

    def losses_on(self, data: Dataset) -> dict[str, Tensor]:
        """Return the logged values on other data, always the same."""
        for share in self.shares:
            if (place := share.data.obs.device) not in self.copies:
                self.copies[place] = data.to(place)
        return join_members([share.losses_on(self.copies[share.data.obs.device]) for share in self.shares])

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
        name: torch.cat([share[name].to(first.device) for share in shares]) if first.dim() else first
        for name, first in shares[0].items()
    }


def move_net(net: nn.Module, device: torch.device) -> nn.Module:
    """Return a net on a device: itself if it is there, else a copy."""
    return net if next(net.parameters()).device == device else copy.deepcopy(net).to(device)
