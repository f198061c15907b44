"""What a CPU compiles for a long training is what it trains without a compiler."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.fit import FitOptions, fit_with_options
from diffclone.guides import EnergyGuide, GANGuide, VAEGuide
from diffclone.methods import IBC, DiffusionPolicy, IBCLangevin
from diffclone.model import Method
from diffclone.training import Precision, Progress, step
from diffclone.training.traced import Traced, has_compiler

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
SHORT = Training(updates=70, batch=16, lr=1e-3)
"""Two blocks and a bit."""
NETWORK = Network(width=16, depth=2)
GUIDE = DiffusionGuide(training=SHORT, width=16, steps=50)
GUIDED = DBC(training=SHORT, network=NETWORK, guide=GUIDE, coefficient=1.0)
METHODS: dict[str, Method[Any]] = {
    "bc": BC(training=replace(SHORT, ema=0.9), network=NETWORK),
}
SLOW: dict[str, Method[Any]] = {
    "dbc": GUIDED,
    "gan": DBC(training=SHORT, network=NETWORK, coefficient=1.0, guide=GANGuide(training=SHORT, width=16)),
    "table": replace(GUIDED, guide=replace(GUIDE, conditioning="table")),
    "away": replace(GUIDED, away=0.5),
    "score": replace(GUIDED, guide=replace(GUIDE, jacobian=False, draws=3)),
    "energy": replace(GUIDED, guide=EnergyGuide(training=SHORT, width=16)),
    "vae": replace(GUIDED, guide=VAEGuide(training=SHORT, width=16, latent=4)),
    "ibc": IBC(training=SHORT, network=replace(IBC().network, width=16)),
    "diffusion-policy": DiffusionPolicy(training=SHORT, width=16, steps=50),
}
compiles = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@pytest.fixture(autouse=True)
def _threads() -> Generator[None, None, None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training is long."""
    monkeypatch.setitem(step.LONG, "cpu", 0)


def trained(method: Method[Any], precision: Precision = "float32", **options: Any) -> tuple[Tensor, list[str]]:
    """Three members on two cores: their weights, and how progress says they were trained."""
    seen: list[Progress] = []
    keep = options.pop("progress", seen.append)
    options = {"dtype": torch.float64, **options}
    chosen = FitOptions(seeds=[0, 1, 2], device="cpu", precision=precision, **options)
    found = fit_with_options(method, DEMOS, chosen, keep).trained
    net = found.net
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1), [now.how for now in seen]


def check_compiled(method: Method[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, how = trained(method)
    assert set(how) == {"2 cores"}
    monkeypatch.setitem(step.LONG, "cpu", 0)
    compiled, how = trained(method)
    assert how[0] == "compiling"
    assert how[-1] == "2 cores, compiled"
    assert not torch.equal(plain, plain[[1, 2, 0]])
    assert torch.allclose(plain, compiled, rtol=0, atol=1e-9)


@compiles
@pytest.mark.parametrize("name", METHODS)
def test_compiled_members_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_compiled(METHODS[name], monkeypatch)


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_compiled_members_are_the_same_for_all_methods(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_compiled(SLOW[name], monkeypatch)


@compiles
@pytest.mark.usefixtures("long")
def test_less_precise_products_are_compiled_as_such() -> None:
    exact, _ = trained(METHODS["bc"], dtype=torch.float32)
    less, how = trained(METHODS["bc"], "bfloat16", dtype=torch.float32)
    assert how[-1] == "2 cores, compiled"
    assert not torch.equal(exact, less)
    assert torch.allclose(exact, less, atol=0.05)


@compiles
@pytest.mark.usefixtures("long")
def test_compiled_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    class Stopped(Exception):
        """A user's Ctrl-C."""

    def stop(now: Progress) -> None:
        if now.update >= 32:
            raise Stopped

    with pytest.raises(Stopped):
        trained(METHODS["bc"], checkpoints=tmp_path, progress=stop)
    resumed, _ = trained(METHODS["bc"], checkpoints=tmp_path)
    assert torch.equal(resumed, trained(METHODS["bc"])[0])


@pytest.mark.usefixtures("long")
def test_a_method_that_takes_gradients_itself_is_not_compiled() -> None:
    _, how = trained(IBCLangevin(training=replace(SHORT, updates=3), width=16, blocks=1))
    assert set(how) == {"2 cores"}


@compiles
@pytest.mark.usefixtures("long")
def test_where_the_compiler_fails_training_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **options: Any) -> Any:
        raise RuntimeError("no header files\nand more")

    monkeypatch.setattr(torch, "compile", fails)
    found, how = trained(METHODS["bc"])
    assert how[-1] == "2 cores, not compiled: RuntimeError: no header files"
    monkeypatch.setitem(step.LONG, "cpu", 10**9)
    assert torch.equal(found, trained(METHODS["bc"])[0])


def test_without_a_compiler_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.zeros(2, 10)
    monkeypatch.setattr(step, "has_compiler", lambda: True)
    assert step.worth_compiling(weights, step.LONG["cpu"])
    assert not step.worth_compiling(weights, step.LONG["cpu"] - 1)
    assert not step.worth_compiling(torch.zeros(2, step.SMALL), step.LONG["cpu"])
    monkeypatch.setattr(step, "has_compiler", lambda: False)
    assert not step.worth_compiling(weights, step.LONG["cpu"])
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not has_compiler()


@compiles
def test_what_is_traced_reads_weights_where_they_are() -> None:
    """Their numbers change between calls, in place."""
    weights = torch.ones(3, requires_grad=True)

    def slope(given: list[Tensor]) -> list[Tensor]:
        return [torch.autograd.grad((weights**3 * given[0]).sum(), [weights])[0]]

    traced = Traced(slope, [torch.ones(3)])
    assert traced.fault is None
    weights.data.copy_(torch.tensor([1.0, 2.0, 3.0]))
    [found] = traced([torch.full((3,), 2.0)])
    assert torch.allclose(found, torch.tensor([6.0, 24.0, 54.0]))
    assert not found.requires_grad
