"""Random numbers from named streams. A number depends on (seed, stream, update, call, position) and on nothing else.

A member therefore draws the same numbers alone or in a stack, on a CPU or a GPU, in one run or resumed, and there is no
generator state to save. The generator is SplitMix64 over a counter:

    z = key(seed, stream) + (position + 1) · φ,   mixed by two multiplications and three shifts

Drawing the numbers of many updates at once is much cheaper, so the first call of a block of updates draws for the whole
block and later calls take their share. The numbers are the same either way.
"""

import hashlib
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

GOLDEN, MIX_1, MIX_2 = (c - (1 << 64) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def shift_right(z: Tensor, bits: int) -> Tensor:
    """Return a logical shift; torch's own shift keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def mix(z: Tensor) -> Tensor:
    """Return SplitMix64's finaliser. Signed multiplication wraps to the same bits as unsigned."""
    z = (z ^ shift_right(z, 30)) * MIX_1
    z = (z ^ shift_right(z, 27)) * MIX_2
    return z ^ shift_right(z, 31)


def hash_key(*parts: object) -> int:
    """Return a signed 64-bit hash of printable parts."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class Clock:
    """Counts updates: the first one of a block (a tensor, which a CUDA graph can change) and the index in the block."""

    def __init__(self, device: torch.device):
        self.first = torch.zeros((), dtype=torch.int64, device=device)
        self.length = 1
        self.index = 0
        self.calls: dict[str, int] = {}
        self.drawn: dict[tuple[object, ...], Tensor] = {}
        self.predrawn: list[Tensor] | None = None
        """Numbers to return, in order, instead of drawing: a compiled update takes its random numbers as inputs."""

    def start(self, first: Tensor, length: int) -> None:
        """Begin a block of `length` updates."""
        self.first, self.length, self.index = first, length, 0
        self.calls.clear()
        self.drawn.clear()

    def advance(self) -> None:
        """Go to the next update of the block."""
        self.index += 1
        self.calls.clear()

    def current_draws(self) -> list[Tensor]:
        """Return everything that this update draws, in order. An earlier update of the block must have drawn."""
        return [block[self.index] for block in self.drawn.values()]


class Rng:
    """One stream of random numbers per member. `rng["name"]` is another stream, independent of all others."""

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        path: str = "",
        clock: Clock | None = None,
    ):
        """Open the streams of some members.

        Args:
            seeds: one seed per member.
            device: where numbers are drawn.
            dtype: of normal and uniform numbers.
            path: the name of the stream; `rng["name"]` appends to it.
            clock: counts the updates of a training; by default a new one.
        """
        self.seeds = tuple(seeds)
        """One seed per member."""
        self.device = torch.device(device)
        """Where numbers are drawn."""
        self.dtype = dtype
        """Data type of normal and uniform numbers."""
        self.path = path
        """The name of the stream, with the names of the streams that it was taken from."""
        self.clock = clock or Clock(self.device)
        """The update that numbers are drawn for."""
        self._streams: dict[str, Rng] = {}
        self._keys: dict[int, Tensor] = {}

    def __getitem__(self, stream: str) -> "Rng":
        if stream not in self._streams:
            path = f"{self.path}/{stream}"
            self._streams[stream] = Rng(self.seeds, device=self.device, dtype=self.dtype, path=path, clock=self.clock)
        return self._streams[stream]

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers, (members, *shape), by the Box-Muller transform.

        A number depends on its position and not on how many are drawn: more rows do not change the first ones.
        """
        return self._draw("normal", shape, lambda call: self._normal(math.prod(shape), call))

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers in the open interval (0, 1), (members, *shape)."""
        return self._draw(
            "uniform", shape, lambda call: self._unit(shift_right(self._bits(math.prod(shape), call), 41))
        )

    def integers(self, high: int, *shape: int) -> Tensor:
        """Return integers in 0 … high - 1, (members, *shape)."""
        return self._draw(
            f"integers {high}",
            shape,
            lambda call: shift_right(shift_right(self._bits(math.prod(shape), call), 32) * high, 32),
        )

    def kept(self, dropped: int, *shape: int) -> Tensor:
        """Return booleans (members, *shape) that are false with probability `dropped` / 256: masks of dropout.

        They take one byte of randomness each, so that the masks of a whole network are cheap.
        """
        count = math.prod(shape)
        return self._draw(
            f"kept {dropped}",
            shape,
            lambda call: self._bits((count + 7) // 8, call).view(torch.uint8)[..., :count] >= dropped,
        )

    def _normal(self, count: int, call: int) -> Tensor:
        z = self._bits((count + 1) // 2, call)
        radius = (-2 * self._unit(shift_right(z, 41)).log()).sqrt()
        angle = 2 * math.pi * self._unit(shift_right(z, 9) & ((1 << 23) - 1))
        return torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten(-2)[..., :count]

    def _unit(self, bits_23: Tensor) -> Tensor:
        # 23 bits and a half are exact in float32, so the result is never 0 or 1.
        return (bits_23.to(self.dtype) + 0.5) * 2.0**-23

    def _bits(self, count: int, call: int) -> Tensor:
        if call not in self._keys:
            keys = [hash_key(seed, self.path, call) for seed in self.seeds]
            self._keys[call] = torch.tensor(keys, dtype=torch.int64, device=self.device)
        update = self.clock.first + torch.arange(self.clock.length, device=self.device)
        position = update[:, None] * count + torch.arange(1, count + 1, device=self.device)
        return mix(self._keys[call][None, :, None] + position[:, None, :] * GOLDEN)

    def _draw(self, kind: str, shape: tuple[int, ...], draw: Callable[[int], Tensor]) -> Tensor:
        clock = self.clock
        if clock.predrawn is not None:
            return clock.predrawn.pop(0)
        call = clock.calls.get(self.path, 0)
        clock.calls[self.path] = call + 1
        key = (self.path, call, kind, shape)
        if key not in clock.drawn and self.device.type == "meta":  # shapes alone; PyTorch computes them slowly
            dtype = {"integers": torch.int64, "kept": torch.bool}.get(kind.split()[0], self.dtype)
            clock.drawn[key] = torch.empty(clock.length, len(self.seeds), *shape, dtype=dtype, device=self.device)
        elif key not in clock.drawn:
            clock.drawn[key] = draw(call).reshape(clock.length, len(self.seeds), *shape)
        return clock.drawn[key][clock.index]
