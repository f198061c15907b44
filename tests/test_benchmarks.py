import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import peers, released, searching, vmapped
from benchmarks.speed import inference
from benchmarks.speed.cases import Case, TrainingSetup, make_updates, prepare_setup
from benchmarks.speed.timing import Candidate
from diffclone import BC, DBC, DiffusionGuide, Network, Training
from diffclone.guides.diffusion import antithetic
from diffclone.methods import METHODS
from diffclone.model import Batch
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.tasks import TASKS
from diffclone.training.search_plan import GRIDS

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")


@pytest.fixture
def latency(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(inference, "TURN", 0.0)  # one call each
    return importlib.import_module("benchmarks.latency")


def test_latency_times_every_method(latency: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "latency.jsonl"
    latency.Latency(rounds=1, json=True, out=out).run()
    [record] = Record.read_all(out)
    assert record.kind == "benchmark"
    assert record.settings["benchmark"] == "latency"
    assert record.settings["threads"] == 1
    assert {method["type"] for method in record.settings["methods"].values()} == set(METHODS)
    taken, ratio = record.results["milliseconds"], record.results["ratio_to_bc"]
    assert list(taken) == list(ratio) == list(record.settings["methods"])
    assert ratio["BC"] == 1
    assert all(ratio[name] == pytest.approx(taken[name] / taken["BC"]) for name in taken)
    assert taken["Diffusion Policy, ancestral 1000"] > taken["Diffusion Policy, ddim 5"] > 0
    assert json.loads(capsys.readouterr().out)["results"] == record.results


def first_draws(given: TrainingSetup) -> tuple[Tensor, ...]:
    """What our first update draws: pairs and, where there is a diffusion model, t and ε."""
    rng = Rng(range(given.case.members), dtype=given.session.dtype, path=given.case.model)
    batch = given.session.data.sample(given.model.training.batch, rng["batch"])
    if given.case.model == "bc":
        return batch.obs, batch.act
    stream = rng if given.case.model == "guide" else rng["guide"]
    rows, size = batch.obs.shape[-2], batch.obs.shape[-1] + batch.act.shape[-1]
    return batch.obs, batch.act, antithetic(stream["t"], rows, 0, 1000), stream["noise"].normal(rows, size)


def loss_in_released_style(given: TrainingSetup, member: int) -> Tensor:
    draws = [draw[member] for draw in first_draws(given)]
    start: Any = given.start()
    schedule = released.Schedule(given.session.dtype)
    if given.case.model == "guide":
        return released.guide_loss(released.denoiser_of(start, member), schedule, *draws)
    if given.case.model == "bc":
        return released.bc_loss(released.policy_of(start, member), *draws)
    fixed: Any = given.fixed["guide"]
    guide = released.denoiser_of(fixed)
    coefficient = released.coefficient_of(given.model)
    return released.dbc_losses(released.policy_of(start, member), guide, schedule, coefficient, *draws)[0]


@pytest.mark.parametrize("model", ["guide", "bc", "dbc"])
def test_the_released_style_has_our_loss(model: Any) -> None:
    given = prepare_setup(Case(model, "maze", 2), CPU)
    obs, act = first_draws(given)[:2]
    losses = given.model.loss(given.start(), Batch(obs, act), Rng(range(2), path=model), given.fixed).total.detach()
    for member in range(2):
        theirs = loss_in_released_style(given, member)
        assert float(losses[member]) == pytest.approx(theirs.item(), abs=1e-5)


@pytest.mark.parametrize("model", ["guide", "bc", "dbc"])
def test_vmap_makes_our_update(model: Any) -> None:
    given = prepare_setup(Case(model, "maze", 2), CPU, torch.float64)
    mine = make_updates(given)
    mine.run(1)
    theirs = vmapped.Stacked(given)
    before = given.start()
    theirs.update(*first_draws(given))
    net, _ = mine.results()
    changed = 0.0
    for member in range(2):
        make: Any = released.denoiser_of if model == "guide" else released.policy_of
        ours, old = dict(make(net, member).named_parameters()), dict(make(before, member).named_parameters())
        for name, weight in theirs.weights.items():
            assert torch.allclose(weight[member], ours[name], atol=1e-9), name
            changed = max(changed, (weight[member] - old[name]).abs().max().item())
    assert changed == pytest.approx(given.model.training.lr, rel=0.1)  # Adam's first step


@pytest.mark.parametrize("model", ["guide", "bc", "dbc"])
def test_the_released_style_learns(model: Any) -> None:
    torch.manual_seed(0)
    loop = released.Loop(prepare_setup(Case(model, "maze", 1), CPU))
    losses: list[float] = []
    for _ in range(60):
        loop.update()
        losses.append(loop.logged["loss"])
    assert sum(losses[-20:]) < sum(losses[:20])
    assert "L_DM" in loop.logged or model != "dbc"


def test_a_peer_takes_turns_from_its_own_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(*given: Any) -> Path:
        return Path(sys.executable)  # which has diffusers, for other tests

    monkeypatch.setattr(peers, "environment", here)
    out = tmp_path / "peers.jsonl"
    peers.Peers(peers=("diffusers",), folder=tmp_path, rounds=1, window=0.01, json=True, out=out).run()
    [record] = Record.read_all(out)
    rates = record.results["rates"]
    assert set(rates) == {"ours", "diffusers"}
    assert record.results["ratio"] == pytest.approx(
        rates["ours"]["updates_per_second"] / rates["diffusers"]["updates_per_second"]
    )
    assert record.results["peer"]["torch"] == torch.__version__
    assert json.loads(capsys.readouterr().out)[0]["results"] == record.results


def test_cpu_time_is_counted_on_a_busy_machine() -> None:
    class Peer:
        def cpu_seconds(self, count: int) -> float:
            return count / 1000

    def work(count: int) -> None:
        for _ in range(count):
            sum(range(10_000))

    found = peers.count_by_cpu_time(Candidate("ours", 2, work), Peer(), "peer", 0.001, 2)
    assert found["peer"]["updates_per_second"] == pytest.approx(1000)
    assert found["ours"]["updates_per_second"] > 0
    assert {rates["members"] for rates in found.values()} == {2}


def test_a_peer_that_does_not_install_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*given: Any) -> Path:
        raise peers.CannotRun("ERROR: no matching distribution")

    monkeypatch.setattr(peers, "environment", refused)
    found = peers.measure("d3rlpy", tmp_path, seconds=1.0, window=0.01, rounds=1)
    assert found == {"left_out": "ERROR: no matching distribution"}


def test_a_peer_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(peers.CannotRun, match="KeyError"):
        peers.Peer(Path(sys.executable), "no such loop", write_pairs(tmp_path))


def write_pairs(folder: Path) -> Path:
    path = folder / "pairs.npz"
    np.savez(path, obs=np.zeros((4, 6), np.float32), act=np.zeros((4, 2), np.float32))
    return path


def test_the_cost_of_a_plain_training_counts_the_updates_of_policy_and_guide() -> None:
    demos = searching.take_transitions(TASKS["spiral"].demonstrations(), 1)
    assert demos.num_episodes == 1
    short, network = Training(updates=3), Network(width=8, depth=1)
    assert searching.time_plain(BC(training=short, network=network), demos, "cpu")["member_updates"] == 3
    guide = DiffusionGuide(training=Training(updates=4), width=8)
    dbc = DBC(training=short, network=network, guide=guide)
    assert searching.time_plain(dbc, demos, "cpu")["member_updates"] == 7


@pytest.mark.slow
def test_the_cost_of_a_search_counts_all_members() -> None:
    demos = searching.take_transitions(TASKS["spiral"].demonstrations(), 1)
    found = searching.time_search(demos, 1.0, "cpu")  # the smallest grid: two members of BC, up to 1,000 updates
    tried = found["member_updates"] - found["chosen"]["updates"]
    assert tried in [2 * update for update in GRIDS[0].snapshots]
