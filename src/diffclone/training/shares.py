"""The members of a stack shared out over the cores of a CPU: a thread a share, which waits for no other.

PyTorch's own threads meet after every operation. That gains little where operations are small, and loses much where
something else runs on the machine. Members have nothing to tell each other, so their shares need not meet at all.
A GPU has one share.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn

from diffclone.model import Dims, Model, part_dims
from diffclone.rng import Rng
from diffclone.training.members import Stack, from_matrix, select_members
from diffclone.training.step import Dataset, Part, Precision, Updates

T = TypeVar("T")

SMALL = 500_000
"""Weights of a member up to which a second thread of PyTorch's own gains nothing."""


def cuts(members: int, shares: int) -> list[slice]:
    """`members` in as many parts as equal as can be."""
    ends = [members * (k + 1) // shares for k in range(shares)]
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


@final
class Shares:
    """All that an update touches, in one or several parts."""

    def __init__(
        self,
        model: Model[Any],
        stack: Stack,
        fixed: Mapping[str, nn.Module],
        pairs: Dataset,
        dims: Dims,
        rng: Rng,
        precision: Precision = "float32",
        *,
        compiled: bool | None = None,
    ):
        seeds, device = rng.seeds, rng.device
        cores = torch.get_num_threads() if device.type == "cpu" else 1
        chosen = cuts(len(seeds), min(cores, len(seeds)))
        spread = stack.spread(model, device, rng.dtype)
        self.shares: list[Updates] = []
        for some in chosen:
            # Weights are made on the CPU, so that a GPU starts from the very same ones.
            make = Rng(seeds[some], dtype=rng.dtype, path=rng.path)
            total, own = model.training.updates, stack.share(spread, some)

            def part(model: Model[Any], sizes: Dims, stream: Rng, total: int = total) -> Part:
                return Part(model, model.init(sizes, stream["init"]).to(device), total, compiled=compiled)

            theirs = {name: net if len(chosen) == 1 else select_members(net, some) for name, net in fixed.items()}
            alongside = {
                name: part(guide, part_dims(model, name, dims, theirs), make[name])
                for name, guide in model.needs().items()
                if guide.trained == "alongside"
            }
            seen = pairs if pairs.obs.dim() == 2 else replace(pairs, obs=pairs.obs[some])
            stream = Rng(seeds[some], device=device, dtype=rng.dtype, path=rng.path)
            self.shares.append(Updates(part(own, dims, make), alongside, theirs, seen, stream, precision))
        large = self.shares[0].main.matrix.shape[1] > SMALL
        self.threads = max(1, cores // len(chosen)) if large else 1
        self.pool = ThreadPoolExecutor(len(chosen)) if len(chosen) > 1 else None

    @property
    def done(self) -> int:
        """Updates."""
        return int(self.shares[0].done)

    @property
    def how(self) -> str:
        """In words, what runs the updates."""
        if self.shares[0].done.is_cuda:
            return "compiled" if self.compiled else "not compiled"
        cores = self.threads * len(self.shares)
        words = f"{cores} core" + "s" * (cores > 1)
        if not self.compiled:
            return words
        faults = [share.traced.fault for share in self.shares if share.traced and share.traced.fault]
        return f"{words}, not compiled: {faults[0][:80]}" if faults else f"{words}, compiled"

    @property
    def compiled(self) -> bool:
        """Whether the first updates wait for a compiler."""
        return any(share.main.compiled if share.done.is_cuda else share.to_trace for share in self.shares)

    def run(self, count: int) -> dict[str, Tensor]:
        """Do `count` updates; the mean of each logged number over them, one a member."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)  # compiled code keeps to as many as there were
        try:
            for share in self.shares:
                share.prepare()
        finally:
            torch.set_num_threads(before)
        return joined(self._each(lambda share: share.run(count)))

    def losses_on(self, pairs: Dataset) -> dict[str, Tensor]:
        """What would be logged on other pairs."""
        return joined([share.losses_on(pairs) for share in self.shares])

    def _each(self, work: Callable[[Updates], T]) -> list[T]:
        before = torch.get_num_threads()

        def alone(share: Updates) -> T:
            torch.set_num_threads(self.threads)
            return work(share)

        try:
            return [alone(self.shares[0])] if self.pool is None else list(self.pool.map(alone, self.shares))
        finally:
            torch.set_num_threads(before)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, bit for bit."""
        return joined([share.state() for share in self.shares])

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state."""
        begin = 0
        for share in self.shares:
            end = begin + len(share.main.matrix)
            share.restore({name: t[begin:end] if t.dim() else t for name, t in state.items()})
            begin = end

    def results(self) -> tuple[nn.Module, dict[str, nn.Module]]:
        """The weights that count, of all members: the model's, and those of the parts trained alongside."""
        alongside = {name: whole([s.alongside[name] for s in self.shares]) for name in self.shares[0].alongside}
        return whole([share.main for share in self.shares]), alongside


def joined(shares: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Members one after another; what is one number for all is the same in each share."""
    return {
        name: torch.cat([share[name] for share in shares]) if first.dim() else first
        for name, first in shares[0].items()
    }


def whole(parts: Sequence[Part]) -> nn.Module:
    """One net of all members."""
    if len(parts) == 1:
        return parts[0].result()
    return from_matrix(parts[0].net, torch.cat([part.best for part in parts]))
