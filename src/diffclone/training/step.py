"""One update: draw a batch, differentiate each loss in its own weights, clip each member's gradient, step Adam.

On a GPU a block of updates is captured once in a CUDA graph and replayed. On a CPU the same code runs directly.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor, nn

from diffclone.model import Batch, nested_parts
from diffclone.rng import Rng
from diffclone.training.feed import Feed, Pairs
from diffclone.training.learner import Learner
from diffclone.training.windows import Windows

BLOCK = 32
"""Updates whose random numbers are drawn together, and which one CUDA graph contains."""

HELD_OUT_PAIRS = 512
"""Pairs in the batch that a held-out loss is computed on."""

Precision = Literal["float32", "tf32", "bfloat16"]
"""Precision of matrix products. Weights and all other operations stay in float32."""


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Demonstrations on the training device: normalised, or images as bytes that are normalised in each batch."""

    obs: Tensor
    """(steps, size), or (members, steps, size) if each member has its own features."""
    act: Tensor
    windows: Windows | None = None
    """The windows that batches consist of; None for single steps. Features of members are of whole windows already."""
    decode: Callable[[Tensor], Tensor] | None = None
    """Normalises rows of `obs` if they are bytes."""
    real: Tensor | None = None
    """Where actions are real, if `act` has whole chunks already, as in a buffer."""
    feed: Feed | None = None
    """If set, `obs`, `act` and `real` are a buffer, which is filled from here while training."""

    def sample(self, size: int, rng: Rng) -> Batch:
        """Draw `size` pairs per member, with replacement."""
        index = rng.integers(len(self.act), size)
        obs = self.observe(index) if self.obs.dim() == 2 else torch.take_along_dim(self.obs, index[..., None], -2)
        if self.windows is None:
            return Batch(obs, self.act[index], real=None if self.real is None else self.real[index])
        act, real = self.windows.gather_act(self.act, index)
        return Batch(obs, act, real=real)

    def to(self, device: torch.device) -> "Dataset":
        """Return the data on a device; nothing is copied that is there already."""
        real = None if self.real is None else self.real.to(device)
        windows = None if self.windows is None else self.windows.to(device)
        return replace(self, obs=self.obs.to(device), act=self.act.to(device), windows=windows, real=real)

    @property
    def buffer(self) -> Pairs:
        """The tensors that have one row per pair."""
        return tuple(tensor for tensor in (self.obs, self.act, self.real) if tensor is not None)

    def observe(self, index: Tensor | slice) -> Tensor:
        """Return what a model sees at some steps, if all members see the same."""
        if self.windows is None or self.windows.history == 1:
            rows = self.obs[..., index, :] if isinstance(index, slice) else self.obs[index]
            return rows if self.decode is None else self.decode(rows)
        steps = torch.arange(len(self.act), device=self.obs.device)[index] if isinstance(index, slice) else index
        return self.windows.gather_obs(self.obs, steps, self.decode)


@final
class Updates:
    """The state of a training, and the number of updates done."""

    def __init__(
        self,
        main: Learner,
        alongside: Mapping[str, Learner],
        fixed: Mapping[str, nn.Module],
        data: Dataset,
        rng: Rng,
        precision: Precision = "float32",
        snapshots: Sequence[int] = (),
    ):
        self.main, self.alongside, self.fixed = main, dict(alongside), dict(fixed)
        self.wanted, self.snapshots = snapshots, dict[int, Tensor]()
        self.data, self.rng, self.precision = data, rng, precision
        device = main.matrix.device
        self.done = torch.zeros((), dtype=torch.int64, device=device)
        self.names: list[str] = []
        # Apple's GPUs have no float64.
        self.sums = torch.zeros(0, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        compiled = main.compiled and main.model.compilable
        self.compiled_losses = torch.compile(self._losses_from, dynamic=False) if compiled else None
        if compiled:
            torch.compiler.reset()  # PyTorch stops compiling a function after a few versions of it

    def run(self, count: int) -> dict[str, Tensor]:
        """Do `count` updates; return the mean of each logged value over them, one per member."""
        device, done = self.done.device, int(self.done)
        self.sums.zero_()
        # Autocast must not cache casts from one update to the next: a captured graph would reuse old weights.
        autocast = torch.autocast(
            device.type, torch.bfloat16, enabled=self.precision == "bfloat16", cache_enabled=False
        )
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), autocast:
            for length in split_blocks(count):
                self._run_block(length, {update - done: update for update in self.wanted})
                done += length
        means = (self.sums / count).cpu()
        return dict(zip(self.names, means, strict=True))

    def take_snapshots(self) -> dict[int, Tensor]:
        """Return the snapshots since the last call."""
        taken, self.snapshots = self.snapshots, {}
        return taken

    def _run_block(self, length: int, snapshots: Mapping[int, int]) -> None:
        """Do `length` updates; copy the weights after n of them if n is in `snapshots`, which has the name of the copy.

        A graph cannot copy weights once, so such a block is run directly. It does the same operations.
        """
        if self.graph is not None and length == BLOCK and not any(0 < n <= length for n in snapshots):
            self.graph.replay()
            return
        self._block(length, snapshots)
        if self.done.is_cuda and self.graph is None and length == BLOCK:
            # The block just done was the warm-up; the next ones are replayed.
            self.graph = torch.cuda.CUDAGraph()
            # Other GPUs are captured by other threads.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self._block(BLOCK, {})

    def _block(self, length: int, snapshots: Mapping[int, int]) -> None:
        clock = self.rng.clock
        clock.start(self.done.clone(), length)
        for learner in (self.main, *self.alongside.values()):
            learner.set_learning_rates(self.done, length)
        logs: list[Tensor] = []
        for index in range(length):
            # The first update of a block draws for the whole block. The others can be compiled.
            compiled = self.compiled_losses if index else None
            totals, logged = self._losses() if compiled is None else compiled(clock.current_draws())
            self._step(totals, index)
            if index + 1 in snapshots:
                self.snapshots[snapshots[index + 1]] = self.main.result.clone()
            logs += logged.values()
            if not self.names:
                self.names = list(logged)
                self.sums = self.sums.new_zeros(len(logged), self.main.matrix.shape[0])
            clock.advance()
        self.sums += torch.stack(logs).unflatten(0, (length, -1)).sum(0, dtype=self.sums.dtype)
        self.done += length

    def _losses(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Draw a batch; return the loss of each learner, and the values to log."""
        batch = self.data.sample(self.main.training.batch, self.rng["batch"])
        parts = self._parts()
        losses = self.main.model.loss(self.main.net, batch, self.rng, parts)
        totals, logs = {"": losses.total}, {"loss": losses.total.detach()}
        logs |= {name: value.detach() for name, value in losses.logs.items()}
        for name, learner in self.alongside.items():
            obs = self.main.model.part_obs(name, batch.obs, parts)
            own = replace(batch, obs=obs, imitated=None if losses.imitated is None else losses.imitated.detach())
            theirs = learner.model.loss(learner.net, own, self.rng[name], nested_parts(parts, name))
            totals[name] = theirs.total
            logs |= {f"{name}/{key}": value.detach() for key, value in theirs.logs.items()}
        return totals, logs

    def _losses_from(self, draws: list[Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Compute the losses with given random numbers."""
        self.rng.clock.predrawn = draws
        losses = self._losses()
        self.rng.clock.predrawn = None
        return losses

    def _step(self, totals: Mapping[str, Tensor], index: int) -> None:
        # All losses are differentiated before any weights change: a gradient may depend on another learner's weights.
        learners = [self.alongside[name] if name else self.main for name in totals]
        gradients = [
            learner.gradients(total, keep_graph=learner is not learners[-1])
            for learner, total in zip(learners, totals.values(), strict=True)
        ]
        for learner, own in zip(learners, gradients, strict=True):
            learner.step(own, index)

    def _parts(self) -> dict[str, nn.Module]:
        return {**self.fixed, **{name: learner.net for name, learner in self.alongside.items()}}

    def losses_on(self, data: Dataset) -> dict[str, Tensor]:
        """Return the logged values on other data. The draws are the same in each call, to make values comparable."""
        rng = Rng(self.rng.seeds, device=self.rng.device, dtype=self.rng.dtype)
        with torch.no_grad():
            batch = replace(data.sample(min(len(data.act), HELD_OUT_PAIRS), rng["batch"]), held_out=True)
            losses = self.main.model.loss(self.main.net, batch, rng["loss"], self._parts())
        return {name: value.cpu().double() for name, value in {"loss": losses.total, **losses.logs}.items()}

    def state(self) -> dict[str, Tensor]:
        """Return everything that is needed to resume from here bit for bit."""
        learners = {"main": self.main, **self.alongside}
        tensors = {f"{name}.{key}": t for name, learner in learners.items() for key, t in learner.state().items()}
        return {**tensors, "done": self.done}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


@contextmanager
def matmul_precision(precision: Precision) -> Generator[None, None, None]:
    """Allow TF32 in matrix products if that is the precision. This sets the process: threads must not call it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def split_blocks(count: int) -> Iterator[int]:
    """Yield the lengths of the blocks that `count` updates are done in."""
    yield from [BLOCK] * (count // BLOCK)
    if count % BLOCK:
        yield count % BLOCK
