"""Independent networks whose weights are stacked, so that one matrix product serves all of them."""

import math
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional


@final
class StackedMLP(nn.Module):
    """Independent networks with leading axes `lead`: linear layers with ELU, and layer norm before it if `norm`."""

    def __init__(self, lead: tuple[int, ...], sizes: tuple[int, ...], *, norm: bool):
        super().__init__()
        self.norm = norm
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            bound = 1 / math.sqrt(fan_in)
            self.weights.append(nn.Parameter(torch.empty(*lead, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(*lead, 1, fan_out).uniform_(-bound, bound)))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each network to its own rows, (…, rows, features)."""
        last = len(self.weights) - 1
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if k < last:
                x = functional.elu(functional.layer_norm(x, x.shape[-1:]) if self.norm else x)
        return x
