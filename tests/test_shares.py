"""Training on several cores gives the same members."""

import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.fit import FitOptions, fit_with_options
from diffclone.guides import GANGuide
from diffclone.methods import DiffusionPolicy
from diffclone.model import Method
from diffclone.training import Progress
from diffclone.training.shares import split_members

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
SHORT = Training(updates=70, batch=16, lr=1e-3)
NETWORK = Network(width=16, depth=2)
GUIDE = DiffusionGuide(training=SHORT, width=16, steps=50)
GUIDED = DBC(training=SHORT, network=NETWORK, away=1.0, guide=GUIDE)  # without L_away the gate may be closed
METHODS: dict[str, Method[Any]] = {
    "bc": BC(training=SHORT, network=NETWORK),
    "average": BC(training=replace(SHORT, ema=0.9), network=NETWORK),
    "dbc": GUIDED,
    "table": replace(GUIDED, guide=replace(GUIDE, conditioning="table")),
    "gan": DBC(training=SHORT, network=NETWORK, coefficient=1.0, guide=GANGuide(training=SHORT, width=16)),
    "diffusion-policy": DiffusionPolicy(training=SHORT, width=16, steps=50),
}


@pytest.fixture(autouse=True)
def _threads() -> Generator[None, None, None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def trained(
    method: Method[Any],
    cores: int,
    seeds: tuple[int, ...] = (0, 1, 2),
    progress: Callable[[Progress], None] = lambda now: None,
    **options: Any,
) -> dict[str, Tensor]:
    torch.set_num_threads(cores)
    chosen = FitOptions(seeds=seeds, device="cpu", dtype=torch.float64, **options)
    found = fit_with_options(method, DEMOS, chosen, progress).trained
    nets = {"policy": found.net, **found.parts}
    return {name: torch.cat([p.detach().flatten(1) for p in net.parameters()], 1) for name, net in nets.items()}


@pytest.mark.parametrize(("members", "shares"), [(1, 1), (3, 2), (24, 7), (5, 5)])
def test_shares_contain_every_member_once_and_have_equal_sizes(members: int, shares: int) -> None:
    found = [list(range(members))[cut] for cut in split_members(members, shares)]
    assert [member for share in found for member in share] == list(range(members))
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert len(found) == shares


@pytest.mark.parametrize("name", METHODS)
def test_a_member_is_the_same_on_one_core_and_on_three(name: str) -> None:
    alone, shared = trained(METHODS[name], 1), trained(METHODS[name], 3)
    assert alone.keys() == shared.keys()
    for part, weights in alone.items():
        assert torch.allclose(weights, shared[part], rtol=0, atol=1e-10)


def test_varied_values_stay_with_their_member() -> None:
    vary = {"coefficient": [0.0, 5.0]}
    method = replace(GUIDED, coefficient=1.0)
    alone, shared = (trained(method, cores, seeds=(0, 1), vary=vary)["policy"] for cores in (1, 3))
    assert torch.allclose(alone, shared, rtol=0, atol=1e-10)
    assert not torch.allclose(shared[0], shared[2], atol=1e-3)


def test_shared_training_resumes_bit_for_bit_even_on_other_cores(tmp_path: Path) -> None:
    class Stopped(Exception):
        """Stands for a user's Ctrl-C."""

    def stop(now: Progress) -> None:
        if now.stage == "policy" and now.update >= 32:
            raise Stopped

    with pytest.raises(Stopped):
        trained(GUIDED, 2, checkpoints=tmp_path, progress=stop)
    resumed = trained(GUIDED, 2, checkpoints=tmp_path)["policy"]
    assert torch.equal(resumed, trained(GUIDED, 2)["policy"])
    with pytest.raises(Stopped):
        trained(GUIDED, 2, checkpoints=tmp_path / "more", progress=stop)
    elsewhere = trained(GUIDED, 3, checkpoints=tmp_path / "more")["policy"]
    assert torch.allclose(elsewhere, resumed, rtol=0, atol=1e-10)


def test_an_error_in_one_share_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffclone.training.step import Updates

    run = Updates.run

    def faulty(self: Updates, count: int) -> dict[str, Tensor]:
        if 2 in self.rng.seeds:
            raise MemoryError("no more")
        return run(self, count)

    monkeypatch.setattr(Updates, "run", faulty)
    with pytest.raises(MemoryError, match="no more"):
        trained(METHODS["bc"], 3)


def test_progress_reports_the_number_of_cores() -> None:
    seen: list[Progress] = []
    trained(METHODS["bc"], 2, progress=seen.append)
    assert {now.execution for now in seen} == {"2 cores"}
    assert {now.members for now in seen} == {3}


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_tf32_and_bfloat16_reach_the_same_loss_with_guides_of_their_own(precision: Any, tmp_path: Path) -> None:
    def last_loss(**options: Any) -> float:
        seen: list[Progress] = []
        fit_with_options(GUIDED, DEMOS, FitOptions(device="cpu", cache=tmp_path, **options), seen.append)
        assert seen[0].stage == "guide"  # another precision does not find this one's guide
        return next(now.losses["L_diff"] for now in reversed(seen) if now.stage == "guide").item()

    full = last_loss()
    assert last_loss(precision=precision) == pytest.approx(full, rel=0.05)
    assert torch.get_float32_matmul_precision() == "highest"


def test_threads_do_not_change_the_precision_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[threading.Thread] = []
    change = torch.set_float32_matmul_precision

    def record(precision: str) -> None:
        callers.append(threading.current_thread())
        change(precision)

    monkeypatch.setattr(torch, "set_float32_matmul_precision", record)
    trained(GUIDED, 2, precision="tf32")
    assert set(callers) == {threading.current_thread()}
    assert torch.get_float32_matmul_precision() == "highest"
