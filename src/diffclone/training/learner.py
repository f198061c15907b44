"""One model in training: its weights, Adam's state, the learning rate and the moving average."""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from diffclone.model import Model, Training
from diffclone.shapes import Scalar, is_off
from diffclone.training.members import from_matrix, to_matrix

COMPILE_UPDATES = 100_000
"""Updates from which a GPU training is compiled: the compiler takes about half a minute."""


@final
class Learner:
    """The weights of a model as a matrix (members, numbers), with everything that an update changes."""

    def __init__(self, model: Model[Any], net: nn.Module, updates: int):
        self.model = model
        self.net = net
        self.training: Training = model.training
        self.updates = updates
        self.matrix = to_matrix(net)
        self.average = self.matrix.clone() if self.training.ema is not None else None
        self.mean, self.square = torch.zeros_like(self.matrix), torch.zeros_like(self.matrix)
        self.steps = torch.zeros((), dtype=torch.float32, device=self.matrix.device)
        self.learning_rates = torch.zeros(0)
        self.weight_decay = per_member(self.training.weight_decay)
        # PyTorch's Adam has one learning rate. If members have their own, it computes a step with rate 1 here.
        self.unit_step = torch.zeros_like(self.matrix) if isinstance(self.training.lr, Tensor) else None
        self.unit_rate = torch.ones((), device=self.matrix.device)
        self.compiled = self.matrix.is_cuda and updates >= COMPILE_UPDATES
        self.compiled_step = torch.compile(self.plain_step, dynamic=False) if self.compiled else None
        # The gradient is always written to the same memory: on a CPU, fresh memory costs more than the gradient itself.
        self.gradient = None if self.compiled else torch.empty_like(self.matrix)

    def set_learning_rates(self, done: Tensor, length: int) -> None:
        """Compute the learning rates of the next `length` updates."""
        fraction, lr = (done + torch.arange(length, device=done.device)) / self.updates, self.training.lr
        if self.training.decay == "linear":
            remaining = 1 - fraction
        elif self.training.decay == "exponential":
            remaining = self.training.remains**fraction
        else:
            remaining = torch.ones_like(fraction)
        if isinstance(lr, Tensor):  # (length, members, 1); products in float32, as those of one number
            rates = remaining[:, None, None] * per_member(lr.to(remaining.dtype))
            self.learning_rates = rates.to(self.matrix.dtype)
        else:
            self.learning_rates = lr * remaining

    def gradients(self, losses: Tensor, *, keep_graph: bool) -> list[Tensor]:
        """Return the gradients of the sum of the members' losses; a mean would make Adam's eps relatively larger."""
        return list(torch.autograd.grad(losses.sum(), list(self.net.parameters()), retain_graph=keep_graph))

    def step(self, gradients: list[Tensor], index: int) -> None:
        """Update the weights with the learning rate of this index in the block."""
        (self.compiled_step or self.plain_step)(gradients, self.learning_rates[index])

    def plain_step(self, gradients: list[Tensor], learning_rate: Tensor) -> None:
        """Clip the gradients, decay the weights, take one step of Adam and update the moving average."""
        if not is_off(self.training.weight_decay):
            self.matrix.mul_(1 - learning_rate.to(self.matrix.dtype) * self.weight_decay)
        moved, rate = self.matrix, learning_rate
        if self.unit_step is not None:
            moved, rate = self.unit_step.zero_(), self.unit_rate
        # Adam is one fused kernel either way: PyTorch's own, or the compiler's, which includes the clipping.
        adam(
            [moved],
            [self.clip_gradients(gradients)],
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
        if self.unit_step is not None:
            self.matrix.addcmul_(self.unit_step, learning_rate)
        if self.average is not None and self.training.ema is not None:
            # The decay grows to `ema` over the first updates; otherwise the initial weights would remain for long.
            done = self.steps.to(self.matrix.dtype)
            self.average.lerp_(self.matrix, 1 - ((1 + done) / (10 + done)).clamp(max=self.training.ema))

    def clip_gradients(self, gradients: list[Tensor]) -> Tensor:
        """Return the gradients as a matrix; the norm of each member's row is at most `clip`."""
        gradient = torch.cat([g.flatten(1) for g in gradients], 1, out=self.gradient)
        if self.training.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (self.training.clip / (norm + 1e-6)).clamp(max=1.0)
        return gradient

    def state(self) -> dict[str, Tensor]:
        """Return everything that an update changes."""
        state = {"weights": self.matrix, "step": self.steps, "exp_avg": self.mean, "exp_avg_sq": self.square}
        return state if self.average is None else {**state, "average": self.average}

    @property
    def result(self) -> Tensor:
        """The trained weights: the moving average if there is one."""
        return self.matrix if self.average is None else self.average


def per_member(value: Scalar) -> Scalar:
    """Return the setting in a form that multiplies a matrix (members, numbers)."""
    return value[:, None] if isinstance(value, Tensor) else value


def join_results(learners: list[Learner]) -> nn.Module:
    """Return one net with the trained weights of several learners, which have different members of one model."""
    device = learners[0].matrix.device
    return from_matrix(learners[0].net, torch.cat([learner.result.to(device) for learner in learners]))
