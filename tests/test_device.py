"""A GPU trains the same weights as a CPU, compiled and not compiled. Skipped without a GPU."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training, fit
from diffclone.fit import FitOptions, fit_with_options
from diffclone.guides import EnergyGuide, GANGuide, VAEGuide
from diffclone.methods import BCGMM, IBC, MIP, DiffusionPolicy, FlowMatching, IBCLangevin
from diffclone.model import Method
from diffclone.nn.energy import Langevin
from diffclone.training import Progress, learner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SHORT = Training(updates=80, batch=32, lr=1e-3, eps=1e-6)
"""Two and a half blocks, so that a captured graph is replayed. A larger eps, since Adam amplifies rounding errors."""
GUIDE = DiffusionGuide(training=SHORT, width=32)
NETWORK = Network(width=32, depth=2)
METHODS: dict[str, Method[Any]] = {
    "bc": BC(training=SHORT, network=NETWORK),
    "dbc": DBC(training=SHORT, network=NETWORK, guide=GUIDE, gate="none"),
    "auto": DBC(training=SHORT, network=NETWORK, guide=GUIDE, gate="none", coefficient="auto", ratio=2.0),
    "away": DBC(training=SHORT, network=NETWORK, guide=GUIDE, gate="none", away=0.5),
    "auto and away": DBC(training=SHORT, network=NETWORK, guide=GUIDE, coefficient="auto", away=0.5, gate="none"),
    "score": DBC(training=SHORT, network=NETWORK, guide=dataclasses.replace(GUIDE, jacobian=False, draws=3)),
    "energy": DBC(training=SHORT, network=NETWORK, guide=EnergyGuide(training=SHORT, width=32), gate="none"),
    "vae": DBC(training=SHORT, network=NETWORK, guide=VAEGuide(training=SHORT, width=32, latent=8), gate="none"),
    "gan": DBC(training=SHORT, network=NETWORK, guide=GANGuide(training=SHORT, width=32), subtract_expert=False),
    "ibc": IBC(training=SHORT, network=dataclasses.replace(IBC().network, width=32)),
    "ibc-langevin": IBCLangevin(training=SHORT, width=32, blocks=1, training_walk=Langevin(steps=3)),
    "diffusion-policy": DiffusionPolicy(training=SHORT, width=32),
    "flow-matching": FlowMatching(training=SHORT, width=32),
    "shortcut": FlowMatching(training=SHORT, width=32, shortcut=0.25, calls=1),
    "mip": MIP(training=SHORT, network=NETWORK),
    "bc-gmm": BCGMM(training=SHORT, network=NETWORK),
    "dropout and smoothness": BC(
        training=SHORT, network=dataclasses.replace(NETWORK, dropout=0.1), smoothness=0.5, state_noise=0.1
    ),
    "bc, chunks": BC(training=SHORT, network=NETWORK, horizon=4, execute=2, history=2),
    "dbc, chunks": DBC(training=SHORT, network=NETWORK, guide=GUIDE, gate="none", horizon=4, history=2),
    "average": BC(training=dataclasses.replace(SHORT, ema=0.9), network=NETWORK),
}


def make_demos() -> Demonstrations:
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    act = np.stack([np.sin(3 * x[:, 0]), x[:, 0] * x[:, 1]], 1)
    return Demonstrations.from_arrays(x, act, episode_ends=np.arange(50, 401, 50))


DEMOS = make_demos()


def trained(method: Method[Any], device: str, seeds: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    net = fit(method, DEMOS, seeds=seeds, device=device).net
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1).cpu()


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_tf32_and_bfloat16_reach_the_same_loss(precision: Any) -> None:
    def last_loss(**options: Any) -> float:
        seen: list[Progress] = []
        method = DBC(training=SHORT, network=NETWORK, guide=dataclasses.replace(GUIDE, width=128), gate="none")
        fit(method, DEMOS, seeds=(0, 1, 2), device="cuda", progress=seen.append, **options)
        return float(next(now.losses["L_diff"] for now in reversed(seen) if now.stage == "guide").mean())

    assert last_loss(precision=precision) == pytest.approx(last_loss(), rel=0.05)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize(("name", "seeds"), [(name, (0, 1, 2)) for name in METHODS] + [("bc", (0,)), ("dbc", (0,))])
def test_a_gpu_trains_the_same_weights_as_a_cpu(
    name: str,
    seeds: tuple[int, ...],
    compiled: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learner, "COMPILE_UPDATES", 0 if compiled else 10**9)
    method, hardly = METHODS[name], dataclasses.replace(SHORT, updates=1)
    here, there = trained(method, "cpu", seeds), trained(method, "cuda", seeds)
    moved = (here - trained(dataclasses.replace(method, training=hardly), "cpu", seeds)).norm()
    assert (here - there).norm() < 0.02 * moved


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_members_with_their_own_values_train_the_same_weights(
    compiled: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learner, "COMPILE_UPDATES", 0 if compiled else 10**9)
    vary = {"training.lr": (1e-3, 3e-4), "state_noise": (0.0, 0.1), "training.weight_decay": (0.0, 0.1)}
    here, there = (
        torch.cat(
            [p.detach().flatten(1) for p in fit(METHODS["bc"], DEMOS, vary=vary, device=device).net.parameters()], 1
        )
        for device in ("cpu", "cuda")
    )
    moved = here - trained(
        dataclasses.replace(METHODS["bc"], training=dataclasses.replace(SHORT, updates=1)), "cpu", (0,)
    )
    assert len(here) == 8
    assert ((here - there.cpu()).norm(dim=1) < 0.02 * moved.norm(dim=1)).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", ["bc", "average", "dbc"])
def test_snapshots_do_not_change_the_training(
    name: str,
    compiled: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learner, "COMPILE_UPDATES", 0 if compiled else 10**9)
    method = dataclasses.replace(METHODS[name], training=dataclasses.replace(METHODS[name].training, updates=170))
    options = FitOptions(seeds=(0, 1, 2), device="cuda")
    plain, whole = (
        fit_with_options(method, DEMOS, dataclasses.replace(options, snapshots=snapshots))
        for snapshots in ((), (5, 70, 96, 100, 170))
    )
    last, same, first = (
        torch.cat([p.detach().flatten(1) for p in policy.net.parameters()], 1)
        for policy in (whole.policy, whole.snapshots[170], whole.snapshots[96])
    )
    assert torch.equal(last, torch.cat([p.detach().flatten(1) for p in plain.policy.net.parameters()], 1))
    assert torch.equal(last, same)
    assert not torch.equal(first, same)
