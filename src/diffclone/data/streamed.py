"""Demonstrations larger than memory: the same episodes as `Demonstrations`, read from their files in blocks."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.layout import Layout
from diffclone.data.matrices import check_action_bounds
from diffclone.data.moments import Moments
from diffclone.data.notebook import demonstrations_table
from diffclone.data.splitting import check_fraction, split_episodes
from diffclone.errors import InvalidData
from diffclone.shapes import Floats, Seen

PASS = 4 << 20
"""Bytes that a pass over all demonstrations reads at once."""


PROCESS = 512_000_000
"""Bytes that a process needs beside its data, PyTorch's libraries most of all."""


def available(memory: int) -> int:
    """Return how much of a process's memory its data may use. This is the same in every process."""
    return memory - min(PROCESS, memory // 2)


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """A matrix (steps, size) in files, of which any rows can be read."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    read: Callable[[int, int], Any]
    """Return the rows from one number up to another."""
    step: int = 1
    """Rows that are stored together: reading one of them takes as long as reading all."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory."""
        return self.shape[1] * self.dtype.itemsize


@final
@dataclass(frozen=True)
class Summary:
    """What one pass over demonstrations finds."""

    obs: Moments
    act: Moments
    fingerprint: str
    episode_fingerprints: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Streamed:
    """Episodes in files. Only the ends of episodes are in memory."""

    source: str
    """The file or folder, for messages."""
    obs: Blocks
    """Observations of all steps in the files."""
    act: Blocks
    file_ends: npt.NDArray[np.int64]
    """The number of steps up to and including the last step of each episode in the files."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chosen: npt.NDArray[np.int64] | None = None
    """The episodes of the files that are in this set, in increasing order; None for all."""
    memory: int = 0
    """Bytes of memory that training may use in all."""

    def __post_init__(self) -> None:
        steps, ends = self.obs.shape[0], self.file_ends
        if steps == 0 or len(ends) == 0:
            raise InvalidData(f"there are no demonstrations: {steps} steps in {len(ends)} episodes.")
        if steps != self.act.shape[0]:
            raise InvalidData(f"observations and actions differ in length: {steps} != {self.act.shape[0]}.")
        if np.diff(ends, prepend=0).min() < 1 or ends[-1] != steps:
            raise InvalidData(f"episode_ends must increase from at least 1 to the number of steps, {steps}.")
        check_action_bounds(self.meta.get("action_bounds"), self.act.shape[1])

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of steps of each episode."""
        lengths = np.diff(self.file_ends, prepend=0)
        return lengths if self.chosen is None else lengths[self.chosen]

    @cached_property
    def episode_ends(self) -> npt.NDArray[np.int64]:
        """The number of steps of this set up to and including the last step of each of its episodes."""
        return self.file_ends if self.chosen is None else np.cumsum(self.lengths)

    @property
    def num_steps(self) -> int:
        """The number of pairs of observation and action in all episodes."""
        return int(self.episode_ends[-1])

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return len(self.episode_ends)

    @property
    def layout(self) -> Layout | None:
        """None: images with numbers are not read in blocks."""
        return None

    @property
    def obs_size(self) -> int:
        """Numbers of an observation."""
        return self.obs.shape[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a pair in memory."""
        return self.obs.row_bytes + self.act.row_bytes

    @property
    def bytes_in_memory(self) -> int:
        """Bytes that a training in memory would need: the arrays, and their normalised copy in float32."""
        return self.num_steps * (self.row_bytes + 4 * (self.obs.shape[1] + self.act.shape[1]))

    @property
    def action_bounds(self) -> tuple[Floats, Floats] | None:
        """The lowest and highest action that the environment accepts, if known."""
        bounds = self.meta.get("action_bounds")
        return None if bounds is None else (np.asarray(bounds[0], np.float32), np.asarray(bounds[1], np.float32))

    @property
    def action_range(self) -> tuple[Floats, Floats] | None:
        """The action bounds, if known, widened to the expert's actions where those go beyond them."""
        if self.action_bounds is None:
            return None
        (low, high), seen = self.action_bounds, self.summary.act
        return np.minimum(low, seen.low.astype(np.float32)), np.maximum(high, seen.high.astype(np.float32))

    @property
    def fingerprint(self) -> str:
        """The same hash as that of the demonstrations in memory."""
        return self.summary.fingerprint

    @property
    def episode_fingerprints(self) -> tuple[str, ...]:
        """The same hashes as those of the demonstrations in memory."""
        return self.summary.episode_fingerprints

    def read(self, start: int, stop: int) -> tuple[Seen, Floats]:
        """Return observations and actions of some steps of this set."""
        return self._read(self.obs, start, stop), self._read(self.act, start, stop)

    def take(self, episodes: Sequence[int] | npt.NDArray[np.int64]) -> "Streamed":
        """Return the set of these episodes, in their order in the files."""
        wanted = np.sort(np.asarray(episodes, dtype=np.int64))
        if not len(wanted) or wanted[0] < 0 or wanted[-1] >= self.num_episodes:
            raise InvalidData(f"{len(wanted)} episodes were requested; there are 0 … {self.num_episodes - 1}.")
        chosen = wanted if self.chosen is None else self.chosen[wanted]
        return replace(self, chosen=chosen, meta={**self.meta, "episodes_taken": len(chosen)})

    def split(self, fraction: float, *, seed: int = 0) -> tuple["Streamed", "Streamed"]:
        """Split at random into the same two sets as `Demonstrations.split`."""
        rest, held_out = split_episodes(self.num_episodes, fraction, seed)
        return self.take(rest), self.take(held_out)

    def subsample(
        self, fraction: float, *, seed: int = 0, by: Literal["episode", "transition"] = "episode"
    ) -> "Streamed":
        """Return the same random fraction of the episodes as `Demonstrations.subsample`."""
        check_fraction(fraction, by)
        if by != "episode":
            raise InvalidData("a fraction of the transitions cannot be read in blocks; take one of the episodes.")
        count = max(1, round(fraction * self.num_episodes))
        return self.take(np.random.default_rng(seed).permutation(self.num_episodes)[:count])

    def load(self, episodes: Sequence[int]) -> Demonstrations:
        """Read some episodes into memory."""
        ends, lengths = self.episode_ends, self.lengths
        found = [self.read(int(ends[e] - lengths[e]), int(ends[e])) for e in episodes]
        obs, act = np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])
        return Demonstrations(obs, act, np.cumsum([len(pair[1]) for pair in found], dtype=np.int64), self.meta)

    def sample(self, size: int, *, seed: int = 0) -> Demonstrations:
        """Read random episodes into memory: as many as fit into `size` bytes, but at least one."""
        order = np.random.default_rng(seed).permutation(self.num_episodes)
        fitting = int((np.cumsum(self.lengths[order]) * self.row_bytes <= size).sum())
        return self.load(np.sort(order[: max(1, fitting)]).tolist())

    @cached_property
    def summary(self) -> Summary:
        """Statistics and hashes of this set, from one pass over it, and one more over its actions for the hash."""
        whole, steps = hashlib.sha256(), self.num_steps
        whole.update(f"{(steps, self.obs.shape[1])}{self.obs.dtype}".encode())
        found: list[Moments] = []
        fingerprints: list[str] = []
        episode, pending = hashlib.sha256(), list[Floats]()  # of the episode that the last block ended in
        for start, stop in self._passes():
            obs, act = self.read(start, stop)
            whole.update(obs.data)
            moments = [Moments.of(obs), Moments.of(act)]
            found = [old.join(new) for old, new in zip(found, moments, strict=True)] if found else moments
            first, last = np.searchsorted(self.episode_ends, (start, stop - 1), side="right").tolist()
            for number in range(first, last + 1):
                end, length = int(self.episode_ends[number]), int(self.lengths[number])
                rows = slice(max(0, end - length - start), min(end, stop) - start)
                if end - length >= start:
                    episode.update(f"{(length, self.obs.shape[1])}{self.obs.dtype}".encode())
                episode.update(obs[rows].data)
                pending.append(act[rows])
                if end <= stop:
                    episode.update(f"{(length, self.act.shape[1])}{self.act.dtype}".encode())
                    for part in pending:
                        episode.update(part.data)
                    fingerprints.append(episode.hexdigest()[:16])
                    episode, pending = hashlib.sha256(), list[Floats]()
        whole.update(f"{(steps, self.act.shape[1])}{self.act.dtype}".encode())
        for start, stop in self._passes():
            whole.update(self._read(self.act, start, stop).data)
        ends = self.episode_ends
        whole.update(f"{ends.shape}{ends.dtype}".encode())
        whole.update(np.ascontiguousarray(ends).data)
        return Summary(found[0], found[1], whole.hexdigest()[:16], tuple(fingerprints))

    def _passes(self) -> Iterator[tuple[int, int]]:
        """Yield the edges of blocks of steps that cover the set."""
        rows = max(1, PASS // self.row_bytes)
        for start in range(0, self.num_steps, rows):
            yield start, min(start + rows, self.num_steps)

    def _read(self, blocks: Blocks, start: int, stop: int) -> Any:
        try:
            parts = [blocks.read(a, b) for a, b in self._ranges(start, stop)]
            rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        except Exception as error:  # a file that was changed or damaged can make a package raise anything
            message = str(error) if isinstance(error, InvalidData) else str(error)[:160] or type(error).__name__
            where = "" if self.source in message else f"{self.source}: steps {start} to {stop} cannot be read. "
            raise InvalidData(f"{where}{' '.join(message.split())}") from error
        return rows

    def _ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the steps in the files that are some steps of this set. Neighbours are joined."""
        if self.chosen is None:
            return [(start, stop)]
        first, last = np.searchsorted(self.episode_ends, (start, stop - 1), side="right")
        ends = self.file_ends[self.chosen[first : last + 1]]
        begins = ends - self.lengths[first : last + 1]
        begins[0] += start - (self.episode_ends[first] - self.lengths[first])
        ends[-1] -= self.episode_ends[last] - stop
        ranges: list[tuple[int, int]] = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            joined = ranges and ranges[-1][1] == begin
            ranges[-1:] = [(ranges[-1][0], end)] if joined else [*ranges[-1:], (begin, end)]
        return ranges

    def __len__(self) -> int:
        return self.num_steps

    def __repr__(self) -> str:
        return (
            f"Streamed({self.num_episodes} episodes, {self.num_steps} steps, obs {self.obs.shape[1]}, "
            f"act {self.act.shape[1]}, {self.source})"
        )

    def _repr_html_(self) -> str:
        return demonstrations_table(self, ("read from", self.source))


AnyDemonstrations: TypeAlias = Demonstrations | Streamed
"""Demonstrations in memory, or in files."""
