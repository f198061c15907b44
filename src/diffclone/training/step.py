"""One update: draw a batch, differentiate each part in its own weights, clip each member, step Adam.

On a GPU a block of updates is captured once in a CUDA graph and replayed; on a CPU the same code runs as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from diffclone.model import Batch, Model, Training
from diffclone.rng import Rng
from diffclone.training.members import from_matrix, to_matrix

BLOCK = 32
"""Updates whose random numbers are drawn together, and that one graph holds."""

LONG = 100_000
"""Updates from which a compiler's half minute is won back on a GPU."""

UNSEEN = 512
"""Pairs on which a held-out loss is taken at a report."""

SMALL = 500_000
"""Weights of a member up to which one CPU thread is nearly as fast as several; on a busy machine it is much faster."""


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """Normalised demonstrations, resident on the device."""

    obs: Tensor
    """(steps, size), or (members, steps, size) where each member sees them in its own way."""
    act: Tensor

    def sample(self, size: int, rng: Rng) -> Batch:
        """`size` pairs a member, with replacement."""
        index = rng.integers(len(self.act), size)
        if self.obs.dim() == 2:
            return Batch(self.obs[index], self.act[index])
        return Batch(torch.take_along_dim(self.obs, index[..., None], -2), self.act[index])


@final
class Part:
    """A model in training: its weights as a matrix (members, numbers), and the optimiser over it."""

    def __init__(self, model: Model[Any], net: nn.Module, updates: int):
        self.model = model
        self.net = net
        self.training: Training = model.training
        self.updates = updates
        self.matrix = to_matrix(net)
        self.average = self.matrix.clone() if self.training.ema is not None else None
        self.lr = torch.tensor(self.training.lr, dtype=torch.float32, device=self.matrix.device)
        # One fused kernel either way: PyTorch's own, or a compiled one, which is the faster on a GPU.
        self.compiled = worth_compiling(self.matrix.device, updates)
        self.adam = torch.optim.Adam(
            [self.matrix],
            lr=self.lr,
            eps=self.training.eps,
            fused=not self.compiled,
            capturable=self.matrix.is_cuda,
        )
        self.adam_step = torch.compile(self.adam.step, dynamic=False) if self.compiled else self.adam.step
        # Adam makes its state at the first step; made now, it can be restored before there was one.
        clock = torch.zeros((), dtype=torch.float32, device=self.matrix.device)
        self.adam.state[self.matrix] = {
            "step": clock,
            "exp_avg": torch.zeros_like(self.matrix),
            "exp_avg_sq": torch.zeros_like(self.matrix),
        }

    def gradient(self, total: Tensor, *, keep_graph: bool) -> Tensor:
        """Of the sum of the members' losses: a mean would rescale what Adam's eps is compared to. Clipped by member."""
        gradients = torch.autograd.grad(total.sum(), list(self.net.parameters()), retain_graph=keep_graph)
        gradient = torch.cat([g.flatten(1) for g in gradients], 1)
        if self.training.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (self.training.clip / (norm + 1e-6)).clamp(max=1.0)
        return gradient

    def step(self, gradient: Tensor, done: Tensor) -> None:
        """One step of Adam at the learning rate of this update."""
        if self.training.decay == "linear":
            self.lr.copy_(self.training.lr * (1 - done / self.updates))
        elif self.training.decay == "exponential":
            self.lr.copy_(self.training.lr * self.training.remains ** (done / self.updates))
        self.matrix.grad = gradient
        self.adam_step()
        if self.average is not None and self.training.ema is not None:
            self.average.lerp_(self.matrix, 1 - self.training.ema)

    def state(self) -> dict[str, Tensor]:
        """Everything that an update changes."""
        state = {"weights": self.matrix, **self.adam.state[self.matrix]}
        return state if self.average is None else {**state, "average": self.average}

    def result(self) -> nn.Module:
        """The net with the weights that count: the average where one is kept."""
        return self.net if self.average is None else from_matrix(self.net, self.average)


@final
class Updates:
    """All that an update touches, and how many were done."""

    def __init__(
        self,
        main: Part,
        alongside: Mapping[str, Part],
        fixed: Mapping[str, nn.Module],
        pairs: Pairs,
        rng: Rng,
    ):
        self.main, self.alongside, self.fixed = main, dict(alongside), dict(fixed)
        self.pairs, self.rng = pairs, rng
        self.done = torch.zeros((), dtype=torch.int64, device=main.matrix.device)
        self.names: list[str] = []
        self.meter = torch.zeros(0, device=main.matrix.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        compiled = main.compiled and main.model.compilable
        self.compiled = torch.compile(self._judge_tape, dynamic=False) if compiled else None
        if self.compiled:
            torch.compiler.reset()  # each stage compiles afresh; PyTorch gives up after a few versions of one function

    def run(self, count: int) -> dict[str, Tensor]:
        """Do `count` updates; the mean of each logged number over them, one a member."""
        self.meter.zero_()
        threads = torch.get_num_threads()
        if self.main.matrix.shape[1] <= SMALL:
            torch.set_num_threads(1)
        try:
            for length in blocks(count):
                self._run_block(length)
        finally:
            torch.set_num_threads(threads)
        means = (self.meter / count).cpu()
        return dict(zip(self.names, means, strict=True))

    def _run_block(self, length: int) -> None:
        if self.graph is not None and length == BLOCK:
            self.graph.replay()
            return
        self._block(length)
        if self.done.is_cuda and self.graph is None and length == BLOCK:
            # The block just done has warmed everything up; the next ones are replayed.
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._block(BLOCK)

    def _block(self, length: int) -> None:
        clock = self.rng.clock
        clock.start(self.done.clone(), length)
        for place in range(length):
            # The first update of a block draws for all of it; the others can be compiled.
            judged = self.compiled(clock.draws()) if self.compiled and place else self._judge()
            self._update(*judged)
            clock.tick()

    def _judge(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """A batch, what each part has to minimise on it, and what is logged."""
        batch = self.pairs.sample(self.main.training.batch, self.rng["batch"])
        parts = {**self.fixed, **{name: part.net for name, part in self.alongside.items()}}
        losses = self.main.model.loss(self.main.net, batch, self.rng, parts)
        totals, logs = {"": losses.total}, {"loss": losses.total.detach()}
        logs |= {name: value.detach() for name, value in losses.logs.items()}
        for name, part in self.alongside.items():
            imitated = None if losses.imitated is None else losses.imitated.detach()
            theirs = part.model.loss(part.net, replace(batch, imitated=imitated), self.rng[name], {})
            totals[name] = theirs.total
            logs |= {f"{name}/{key}": value.detach() for key, value in theirs.logs.items()}
        return totals, logs

    def _judge_tape(self, tape: list[Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        self.rng.clock.tape = tape
        judged = self._judge()
        self.rng.clock.tape = None
        return judged

    def _update(self, totals: Mapping[str, Tensor], logs: Mapping[str, Tensor]) -> None:
        # All are differentiated before any steps: a step changes weights that another's gradient depends on.
        parts = [self.alongside[name] if name else self.main for name in totals]
        gradients = [
            part.gradient(total, keep_graph=part is not parts[-1])
            for part, total in zip(parts, totals.values(), strict=True)
        ]
        for part, gradient in zip(parts, gradients, strict=True):
            part.step(gradient, self.done)
        if not self.names:
            self.names = list(logs)
            self.meter = torch.zeros(len(logs), self.main.matrix.shape[0], dtype=torch.float64, device=self.done.device)
        self.meter += torch.stack(list(logs.values()))
        self.done += 1

    def losses_on(self, pairs: Pairs, rng: Rng) -> dict[str, Tensor]:
        """What would be logged on other pairs; the same draws each time, so that two answers can be compared."""
        parts = {**self.fixed, **{name: part.net for name, part in self.alongside.items()}}
        with torch.no_grad():
            batch = pairs.sample(min(len(pairs.act), UNSEEN), rng["batch"])
            losses = self.main.model.loss(self.main.net, batch, rng["loss"], parts)
        return {name: value.cpu().double() for name, value in {"loss": losses.total, **losses.logs}.items()}

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, bit for bit."""
        parts = {"main": self.main, **self.alongside}
        tensors = {f"{name}.{key}": t for name, part in parts.items() for key, t in part.state().items()}
        return {**tensors, "done": self.done}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def worth_compiling(device: torch.device, updates: int) -> bool:
    """Whether a stage is long enough. Graphs of a GPU are captured either way."""
    return device.type == "cuda" and updates >= LONG


def blocks(count: int) -> Iterator[int]:
    """`count` cut into blocks."""
    yield from [BLOCK] * (count // BLOCK)
    if count % BLOCK:
        yield count % BLOCK
