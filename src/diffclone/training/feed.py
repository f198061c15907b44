"""Training data larger than memory: a buffer of pairs that moves over a random order of all pairs.

    order    the N pairs of each epoch, in blocks of neighbours whose order is random and differs between epochs
    buffer   pairs c·t … c·t + M − 1 of the order, where t = ⌊update / R⌋
    c        = R · batch, but at most an eighth of the buffer

Batches are drawn from the buffer as they are from all pairs in memory: uniformly, with replacement. Every R updates the
oldest c pairs are replaced by the next c. So each pair enters the buffer once per epoch of N / batch updates and stays
for the same time. Its expected number of draws is that of uniform draws from all pairs; if an eighth of the buffer is
less than R · batch, epochs are longer, and pairs are drawn more often while they are in the buffer.

The buffer is a function of the stage and the number of updates done, and of nothing else: members of all seeds share
it, an interrupted training resumes bit for bit, and a checkpoint needs no position. A thread reads the next pairs while
the device works.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diffclone.data import Normaliser, Streamed
from diffclone.data.formats.memory import format_bytes
from diffclone.data.streamed import available
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidSettings
from diffclone.rng import hash_key
from diffclone.training.windows import Windows

EVERY = 128
"""R: a multiple of the updates that a CUDA graph contains."""
BUFFER = 4
"""The buffer takes this part of the available memory: 1 / 4."""
BLOCK_BYTES = 1 << 17
"""Bytes of a block of neighbouring pairs, unless more are stored together."""
LEAST_BLOCKS, LEAST_STORED = 64, 16
"""The buffer has at least so many blocks. Those of pairs that are stored together, and so read together, may be larger:
then it has at least 16."""
MOST_REPLACED = 8
"""At most this part of the buffer is replaced at once: 1 / 8."""
AHEAD = 2
"""Replacements that are read ahead."""

Pairs: TypeAlias = tuple[Tensor, ...]
"""Normalised observations, actions and, if there are windows, where actions are real."""


def choose_sizes(demos: Streamed, chunks: Chunks, dtype: torch.dtype) -> tuple[int, int]:
    """Return the pairs of the buffer and of a block, or raise an error if the memory is too small for them."""
    obs, act = demos.obs.shape[1] * chunks.history, demos.act.shape[1] * chunks.horizon
    pair = (obs + act) * dtype.itemsize + act * (chunks.horizon > 1)
    memory = available(demos.memory) // BUFFER
    size = min(memory // pair, demos.num_steps)
    if size < LEAST_STORED:
        raise InvalidSettings(
            f"{format_bytes(demos.memory)} of memory leave {format_bytes(memory)} for pairs of {format_bytes(pair)}. "
            "Use a larger --memory."
        )
    small = min(BLOCK_BYTES // demos.row_bytes, size // LEAST_BLOCKS)
    return size, max(1, small, min(max(demos.obs.step, demos.act.step), size // LEAST_STORED))


@final
@dataclass(frozen=True, eq=False)
class Feed:
    """The demonstrations that a buffer is filled from, and the sizes that the order depends on."""

    demos: Streamed
    normaliser: Normaliser
    """On the CPU."""
    chunks: Chunks
    dtype: torch.dtype
    size: int
    """M"""
    block: int
    """Pairs of a block."""

    @classmethod
    def of(cls, demos: Streamed, normaliser: Normaliser, chunks: Chunks, dtype: torch.dtype) -> "Feed":
        """Choose the sizes for the memory that training may use."""
        return cls(demos, normaliser.to("cpu", dtype), chunks, dtype, *choose_sizes(demos, chunks, dtype))

    def make_buffer(self, device: torch.device) -> Pairs:
        """Return the tensors of an empty buffer."""
        obs, act = self.demos.obs.shape[1] * self.chunks.history, self.demos.act.shape[1] * self.chunks.horizon
        pairs = tuple(torch.zeros(self.size, width, dtype=self.dtype, device=device) for width in (obs, act))
        if self.chunks.horizon == 1:
            return pairs
        return (*pairs, torch.zeros(self.size, act, dtype=torch.bool, device=device))

    def identity(self) -> dict[str, int]:
        """Return what the order depends on, for checkpoints."""
        return {"buffer": self.size, "block": self.block, "every": EVERY}

    def order(self, stage: str, epoch: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the blocks in their order."""
        key = hash_key(0, f"{stage}/blocks", epoch) % 2**63
        return np.random.default_rng(key).permutation(-(-self.demos.num_steps // self.block))

    def read_pairs(self, start: int, stop: int) -> Pairs:
        """Read the pairs of some neighbouring steps of the demonstrations, normalised."""
        demos, chunks = self.demos, self.chunks
        ends = demos.episode_ends
        first, last = np.searchsorted(ends, (start, stop - 1), side="right")
        begin = max(start - chunks.history + 1, int(ends[first] - demos.lengths[first]))
        end = min(stop + chunks.horizon - 1, int(ends[last]))
        rows = [torch.from_numpy(values).to(self.dtype) for values in demos.read(begin, end)]
        obs, act = self.normaliser.normalise_obs(rows[0]), self.normaliser.normalise_act(rows[1])
        if not chunks.has_memory:
            return obs, act
        steps = np.arange(begin, end)
        episode = np.searchsorted(ends, steps, side="right")
        edges = (ends[episode] - demos.lengths[episode], ends[episode] - 1)
        inside = (torch.from_numpy(edge.clip(begin, end - 1) - begin) for edge in edges)
        windows = Windows(chunks.history, chunks.horizon, *inside)
        wanted = torch.arange(start - begin, stop - begin)
        chunk, real = windows.gather_act(act, wanted)
        pairs = windows.gather_obs(obs, wanted), chunk
        return pairs if real is None else (*pairs, real)


@final
class Flow:
    """The buffers of one stage, one per device, and the thread that reads ahead."""

    def __init__(self, feed: Feed, buffers: Sequence[Pairs], stage: str, batch: int):
        self.feed, self.buffers, self.stage = feed, buffers, stage
        self.count = max(1, min(EVERY * batch, feed.size // MOST_REPLACED))
        """c"""
        self.moved = -1
        """t, or −1 before the buffer is filled."""
        self.ahead: deque[Future[list[Pairs]]] = deque()
        """Replacements from number t on."""
        self.epoch, self.loaded = -1, -1
        """The epoch whose order is known, and the place of the block in it that was read last."""
        self.order = self.ends = np.zeros(0, np.int64)
        self.pairs: Pairs = ()
        self.pool = ThreadPoolExecutor(1, "diffclone-feed", torch.set_num_threads, (1,))

    def advance(self, done: int) -> int:
        """Make the buffers those of this update, and return the updates until they change."""
        moved = done // EVERY
        if moved == self.moved + 1 and self.ahead:
            pairs = self.ahead.popleft().result()
            self._put(self.feed.size + self.moved * self.count, pairs)
        elif moved != self.moved:
            self._fill(moved)
        self.moved = moved
        while len(self.ahead) < AHEAD:
            start = self.feed.size + (moved + len(self.ahead)) * self.count
            self.ahead.append(self.pool.submit(self._read, start, start + self.count))
        return EVERY - done % EVERY

    def close(self) -> None:
        """End the thread."""
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self, moved: int) -> None:
        """Read the whole buffer, in parts that are small against it."""
        self.ahead.clear()
        start, stop = moved * self.count, moved * self.count + self.feed.size
        for first in range(start, stop, self.count):
            self._put(first, self.pool.submit(self._read, first, min(first + self.count, stop)).result())

    def _read(self, start: int, stop: int) -> list[Pairs]:
        """Read the pairs of the order from one place up to another."""
        feed, total, found = self.feed, self.feed.demos.num_steps, list[Pairs]()
        while start < stop:
            if start // total != self.epoch:
                self.epoch, self.loaded = start // total, -1
                self.order = feed.order(self.stage, self.epoch)
                self.ends = np.cumsum(np.minimum(feed.block, total - self.order * feed.block))
            place = start % total
            number = int(np.searchsorted(self.ends, place, side="right"))
            if number != self.loaded:
                first = int(self.order[number]) * feed.block
                self.pairs, self.loaded = feed.read_pairs(first, min(first + feed.block, total)), number
            count = min(int(self.ends[number]) - place, stop - start)
            begin = len(self.pairs[0]) - (int(self.ends[number]) - place)
            found.append(tuple(tensor[begin : begin + count] for tensor in self.pairs))
            start += count
        return found

    def _put(self, start: int, pairs: list[Pairs]) -> None:
        """Write pairs of the order to their places in the buffers, which are their numbers modulo M."""
        for part in pairs:
            while len(part[0]):
                place = start % self.feed.size
                count = min(len(part[0]), self.feed.size - place)
                for buffer in self.buffers:
                    for target, values in zip(buffer, part, strict=True):
                        target[place : place + count].copy_(values[:count])
                part = tuple(tensor[count:] for tensor in part)
                start += count
