"""One update: draw a batch, differentiate each part in its own weights, clip each member, step Adam.

On a GPU a block of updates is captured once in a CUDA graph and replayed; on a CPU the same code runs as it is,
or traced and compiled where that pays.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from diffclone.model import Batch, Model, Training, nested_parts
from diffclone.rng import Rng
from diffclone.training.members import from_matrix, to_matrix
from diffclone.training.traced import Traced, has_compiler

BLOCK = 32
"""Updates whose random numbers are drawn together, and that one graph holds."""

LONG = {"cuda": 100_000, "cpu": 30_000}
"""Updates from which a compiler's time is won back: half a minute for a GPU, a third of that for a CPU."""

SMALL = 500_000
"""Weights of all members up to which a CPU gains by a compiler: calling larger operations costs little beside them."""

Precision = Literal["float32", "tf32", "bfloat16"]
"""Of matrix products; everything else, and the weights, stay as they are."""

UNSEEN = 512
"""Pairs on which a held-out loss is taken at a report."""


@final
@dataclass(frozen=True, eq=False)
class Dataset:
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
    """A model in training: its weights as a matrix (members, numbers), and what Adam remembers of each."""

    def __init__(self, model: Model[Any], net: nn.Module, updates: int, *, compiled: bool | None = None):
        self.model = model
        self.net = net
        self.training: Training = model.training
        self.updates = updates
        self.matrix = to_matrix(net)
        self.average = self.matrix.clone() if self.training.ema is not None else None
        self.mean, self.square = torch.zeros_like(self.matrix), torch.zeros_like(self.matrix)
        self.steps = torch.zeros((), dtype=torch.float32, device=self.matrix.device)
        self.rates = torch.zeros(0)
        self.compiled = worth_compiling(self.matrix, updates) if compiled is None else compiled
        on_gpu = self.compiled and self.matrix.is_cuda
        self.compiled_step = torch.compile(self.plain_step, dynamic=False) if on_gpu else None
        # One place for all gradients: on a CPU fresh memory of this size costs more than the gradient itself.
        self.slope = None if on_gpu else torch.empty_like(self.matrix)

    def schedule(self, done: Tensor, length: int) -> None:
        """The learning rates of the next `length` updates."""
        part = (done + torch.arange(length, device=done.device)) / self.updates
        if self.training.decay == "linear":
            self.rates = self.training.lr * (1 - part)
        elif self.training.decay == "exponential":
            self.rates = self.training.lr * self.training.remains**part
        else:
            self.rates = torch.full_like(part, self.training.lr)

    def gradients(self, total: Tensor, *, keep_graph: bool) -> list[Tensor]:
        """Of the sum of the members' losses: a mean would rescale what Adam's eps is compared to."""
        return list(torch.autograd.grad(total.sum(), list(self.net.parameters()), retain_graph=keep_graph))

    def step(self, gradients: list[Tensor], place: int) -> None:
        """Use the gradients at the learning rate of this place of the block."""
        (self.compiled_step or self.plain_step)(gradients, self.rates[place])

    def clipped(self, gradients: list[Tensor], out: Tensor | None = None) -> Tensor:
        """As a matrix, no member's longer than the limit."""
        slope = torch.cat([g.flatten(1) for g in gradients], 1, out=out)
        if self.training.clip is not None:
            norm = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
            slope *= (self.training.clip / (norm + 1e-6)).clamp(max=1.0)
        return slope

    def plain_step(self, gradients: list[Tensor], rate: Tensor) -> None:
        """Clip, and one step of Adam."""
        self.go(self.clipped(gradients, self.slope), rate)

    def go(self, slope: Tensor, rate: Tensor) -> None:
        """One step of Adam."""
        # One fused kernel either way: PyTorch's own, or the compiler's, which has the clipping in it as well.
        adam(
            [self.matrix],
            [slope],
            [self.mean],
            [self.square],
            [],
            [self.steps],
            foreach=False,
            fused=self.compiled_step is None,
            capturable=self.matrix.is_cuda,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=0.0,
            eps=self.training.eps,
            maximize=False,
        )
        if self.average is not None and self.training.ema is not None:
            self.average.lerp_(self.matrix, 1 - self.training.ema)

    def state(self) -> dict[str, Tensor]:
        """Everything that an update changes."""
        state = {"weights": self.matrix, "step": self.steps, "exp_avg": self.mean, "exp_avg_sq": self.square}
        return state if self.average is None else {**state, "average": self.average}

    @property
    def best(self) -> Tensor:
        """The weights that count: the average where one is kept."""
        return self.matrix if self.average is None else self.average

    def result(self) -> nn.Module:
        """The net with the weights that count."""
        return from_matrix(self.net, self.best)


@final
class Updates:
    """All that an update touches, and how many were done."""

    def __init__(
        self,
        main: Part,
        alongside: Mapping[str, Part],
        fixed: Mapping[str, nn.Module],
        pairs: Dataset,
        rng: Rng,
        precision: Precision = "float32",
    ):
        self.precision: Precision = precision
        self.main, self.alongside, self.fixed = main, dict(alongside), dict(fixed)
        self.pairs, self.rng = pairs, rng
        self.done = torch.zeros((), dtype=torch.int64, device=main.matrix.device)
        self.names: list[str] = []
        self.meter = torch.zeros(0, device=main.matrix.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        compiled = main.compiled and main.model.compilable
        self.compiled = torch.compile(self._judge_tape, dynamic=False) if compiled and self.done.is_cuda else None
        self.to_trace = compiled and not self.done.is_cuda
        """Whether a CPU's updates are to be compiled, see `prepare`."""
        self.traced: Traced | None = None
        if compiled:
            torch.compiler.reset()  # each stage compiles afresh; PyTorch gives up after a few versions of one function

    def prepare(self) -> None:
        """Compile what a CPU runs, if that is wanted and not done yet. Nothing else may run meanwhile."""
        if not self.to_trace or self.traced is not None:
            return
        clock = self.rng.clock
        with products_in(self.precision, self.done.device):
            clock.start(self.done.clone(), 1)
            self._judge()  # draws
            self.traced = Traced(self._slopes, clock.draws())

    def run(self, count: int) -> dict[str, Tensor]:
        """Do `count` updates; the mean of each logged number over them, one a member."""
        self.meter.zero_()
        with products_in(self.precision, self.done.device):
            for length in blocks(count):
                self._run_block(length)
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
        for part in (self.main, *self.alongside.values()):
            part.schedule(self.done, length)
        logs: list[Tensor] = []
        for place in range(length):
            # The first update of a block draws for all of it; the others can be compiled.
            if self.traced and place:
                logs += self._traced_update(clock.draws(), place)
            else:
                totals, logged = self.compiled(clock.draws()) if self.compiled and place else self._judge()
                self._update(totals, place)
                logs += logged.values()
                if not self.names:
                    self.names = list(logged)
                    shape = (len(logged), self.main.matrix.shape[0])
                    self.meter = torch.zeros(*shape, dtype=torch.float64, device=self.done.device)
            clock.tick()
        self.meter += torch.stack(logs).unflatten(0, (length, -1)).sum(0, dtype=torch.float64)
        self.done += length

    def _judge(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """A batch, what each part has to minimise on it, and what is logged."""
        batch = self.pairs.sample(self.main.training.batch, self.rng["batch"])
        parts = {**self.fixed, **{name: part.net for name, part in self.alongside.items()}}
        losses = self.main.model.loss(self.main.net, batch, self.rng, parts)
        totals, logs = {"": losses.total}, {"loss": losses.total.detach()}
        logs |= {name: value.detach() for name, value in losses.logs.items()}
        for name, part in self.alongside.items():
            imitated = None if losses.imitated is None else losses.imitated.detach()
            obs = self.main.model.part_obs(name, batch.obs, parts)
            own = replace(batch, obs=obs, imitated=imitated)
            theirs = part.model.loss(part.net, own, self.rng[name], nested_parts(parts, name))
            totals[name] = theirs.total
            logs |= {f"{name}/{key}": value.detach() for key, value in theirs.logs.items()}
        return totals, logs

    def _judge_tape(self, tape: list[Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        self.rng.clock.tape = tape
        judged = self._judge()
        self.rng.clock.tape = None
        return judged

    def _update(self, totals: Mapping[str, Tensor], place: int) -> None:
        # All are differentiated before any steps: a step changes weights that another's gradient depends on.
        parts = [self.alongside[name] if name else self.main for name in totals]
        gradients = [
            part.gradients(total, keep_graph=part is not parts[-1])
            for part, total in zip(parts, totals.values(), strict=True)
        ]
        for part, own in zip(parts, gradients, strict=True):
            part.step(own, place)

    def _slopes(self, tape: list[Tensor]) -> list[Tensor]:
        """The clipped gradients of each part, and what is logged."""
        totals, logged = self._judge_tape(list(tape))
        parts = [self.alongside[name] if name else self.main for name in totals]
        slopes = [
            part.clipped(part.gradients(total, keep_graph=part is not parts[-1]))
            for part, total in zip(parts, totals.values(), strict=True)
        ]
        return [*slopes, *logged.values()]

    def _traced_update(self, tape: list[Tensor], place: int) -> list[Tensor]:
        assert self.traced is not None
        parts = [self.main, *self.alongside.values()]
        found = self.traced(tape)
        for part, slope in zip(parts, found, strict=False):
            part.go(slope, part.rates[place])
        return found[len(parts) :]

    def losses_on(self, pairs: Dataset) -> dict[str, Tensor]:
        """What would be logged on other pairs; the same draws each time, so that two answers can be compared."""
        rng = Rng(self.rng.seeds, device=self.rng.device, dtype=self.rng.dtype)
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


@contextmanager
def products_in(precision: Precision, device: torch.device) -> Generator[None, None, None]:
    """Matrix products of this precision while it lasts."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        # Casts are not kept from one update to the next: a captured graph would go on with old weights.
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def worth_compiling(weights: Tensor, updates: int) -> bool:
    """Whether a stage is long enough, and on a CPU small enough. Graphs of a GPU are captured either way."""
    if weights.is_cuda:
        return updates >= LONG["cuda"]
    return updates >= LONG["cpu"] and weights.numel() <= SMALL and has_compiler()


def blocks(count: int) -> Iterator[int]:
    """`count` cut into blocks."""
    yield from [BLOCK] * (count // BLOCK)
    if count % BLOCK:
        yield count % BLOCK
