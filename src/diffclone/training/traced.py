"""All gradients of an update as one program, for a CPU: traced together with the backward pass, then compiled.

There much of an update is the calling of hundreds of small operations. Compiling the loss alone gains nothing, since
autograd calls as many more. Traced, the whole is one function of the update's random numbers, without autograd; the
weights it reads are those of the net, wherever they are by then.
"""

import os
import shutil
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[[list[Tensor]], list[Tensor]]


@final
class Traced:
    """A function of tensors, traced and compiled with some that it may be given.

    Where that fails the function itself is called, and `fault` says why: a compiler can fail in any way, and training
    can do without. It must not be made while other threads run what was made before, since tracing tells all of them.
    """

    def __init__(self, function: Function, example: list[Tensor]):
        self.fault: str | None = None
        try:
            self.compiled = compile_whole(function, example)
        except Exception as fault:
            self.fault = f"{type(fault).__name__}: {(str(fault).strip().splitlines() or [''])[0]}"
            self.compiled = function

    def __call__(self, given: list[Tensor]) -> list[Tensor]:
        """What the function makes of it."""
        return self.compiled(given)


def compile_whole(function: Function, example: list[Tensor]) -> Function:
    """Traced, compiled, and called once, which is when a compiler does its work."""

    # Of a method the tracer would count `self` among what it is given.
    def plain(tensors: list[Tensor]) -> list[Tensor]:
        return function(tensors)

    graph = make_fx(plain)(example)
    # The program calls its own parts from C++: other threads may have Python meanwhile.
    compiled: Any = torch.compile(graph, dynamic=False, options={"cpp_wrapper": True})
    without_autograd: Function = torch.no_grad()(compiled)
    without_autograd(example)
    return without_autograd


def has_compiler() -> bool:
    """Whether there is one for C++ on this machine."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None
