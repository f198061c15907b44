"""Snapshots: the policy at earlier updates of a training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import Command, assert_error
from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Policy, Training
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.experiments.record_index import identify_record
from diffclone.fit import FitOptions, Fitted, fit_with_options
from diffclone.model import Method
from diffclone.records import Record
from diffclone.training import Progress
from diffclone.training.runs import Run, train_run

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
SHORT = Training(updates=150, batch=16, lr=1e-3, decay="constant")
NETWORK = Network(width=16, depth=2)
CLONING = BC(training=SHORT, network=NETWORK)
GUIDED = DBC(training=SHORT, network=NETWORK, guide=DiffusionGuide(training=SHORT, width=16, steps=50))


class Stopped(Exception):
    """Stands for a user's Ctrl-C."""


def trained(method: Method[Any], progress: Callable[[Progress], None] = lambda now: None, **options: Any) -> Fitted:
    return fit_with_options(method, DEMOS, FitOptions(seeds=(0, 1, 2), device="cpu", **options), progress)


def weights(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


def equal(a: Policy, b: Policy) -> bool:
    return torch.equal(weights(a.net), weights(b.net))


AVERAGED = replace(CLONING, training=replace(SHORT, ema=0.9))


@pytest.mark.parametrize("method", [CLONING, AVERAGED, GUIDED], ids=["bc", "average", "dbc"])
def test_a_snapshot_is_the_policy_of_a_shorter_training(method: Method[Any]) -> None:
    losses: list[list[Progress]] = [[], []]
    plain, whole = trained(method, losses[0].append), trained(method, losses[1].append, snapshots=(150, 7, 64))
    assert list(whole.snapshots) == [7, 64, 150]
    # A constant learning rate does not depend on the length of the training.
    for update, snapshot in whole.snapshots.items():
        shorter = trained(replace(method, training=replace(method.training, updates=update)))
        assert equal(snapshot, shorter.policy)
    # Neither the result nor the reports depend on snapshots.
    assert equal(whole.snapshots[150], whole.policy)
    assert equal(plain.policy, whole.policy)
    assert not plain.snapshots
    for a, b in zip(*losses, strict=True):
        assert a.update == b.update
        assert all(np.array_equal(a.losses[name], b.losses[name]) for name in a.losses)


def test_snapshots_act_as_members_with_the_same_normaliser_and_guide() -> None:
    fitted = trained(GUIDED, snapshots=(32,), vary={"imitation": [1.0, 2.0]})
    snapshot = fitted.snapshots[32]
    assert snapshot.members == fitted.policy.members
    assert snapshot.normaliser is fitted.policy.normaliser
    assert snapshot.guide is fitted.policy.guide
    assert snapshot(X).shape == (6, 200, 1)
    assert np.allclose(snapshot[4](X), snapshot(X)[4], atol=1e-5)


def test_an_interrupted_training_keeps_its_snapshots(tmp_path: Path) -> None:
    def stop_at(update: int) -> Any:
        def progress(now: Progress) -> None:
            if now.update >= update:
                raise Stopped

        return progress

    updates = (10, 40, 100)
    for update in (32, 64):  # the second checkpoint is newer than two snapshots
        with pytest.raises(Stopped):
            trained(CLONING, stop_at(update), snapshots=updates, checkpoints=tmp_path)
    resumed, plain = trained(CLONING, snapshots=updates, checkpoints=tmp_path), trained(CLONING, snapshots=updates)
    again = trained(CLONING, snapshots=updates, checkpoints=tmp_path)
    for fitted in (resumed, again):
        assert equal(fitted.policy, plain.policy)
        assert list(fitted.snapshots) == list(updates)
        assert all(equal(fitted.snapshots[update], plain.snapshots[update]) for update in updates)
    with pytest.raises(InvalidFile, match=r"another training \(snapshots: \[10, 40, 100\] != \[10\]\)"):
        trained(CLONING, snapshots=(10,), checkpoints=tmp_path)


@pytest.mark.parametrize(
    ("snapshots", "message"),
    [
        ((0, 3), r"snapshots must be updates from 1 to 150, where the training ends; 0 is not\."),
        ((3, 151, 200), r"from 1 to 150, where the training ends; 151, 200 are not\."),
    ],
)
def test_snapshots_outside_the_training_are_refused(snapshots: tuple[int, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=message):
        train_run(tmp_path / "run", CLONING, DEMOS, FitOptions(snapshots=snapshots, device="cpu"))
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_snapshots(tmp_path: Path) -> None:
    options = FitOptions(seeds=(0, 1), snapshots=(40, 20), device="cpu")
    train_run(tmp_path / "run", GUIDED, DEMOS, options)
    run, fitted = Run(tmp_path / "run"), fit_with_options(GUIDED, DEMOS, options)
    snapshots = run.snapshots()
    assert list(snapshots) == [20, 40]
    assert all(equal(snapshots[update], fitted.snapshots[update]) for update in snapshots)
    assert equal(run.policy(), fitted.policy)
    guide, expected = snapshots[20].guide, fitted.policy.guide
    assert guide is not None
    assert expected is not None
    assert np.array_equal(guide.cost(X, X[:, :1]), expected.cost(X, X[:, :1]))
    with pytest.raises(InvalidFile, match="has no snapshot of update 30; it has 20, 40"):
        run.snapshot(30)
    with pytest.raises(InvalidFile, match=r"holds another run \(snapshots: \[20, 40\] != None\)"):
        train_run(tmp_path / "run", GUIDED, DEMOS, replace(options, snapshots=()))


def test_snapshots_on_the_command_line(diffclone: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    sizes = ["--training.updates", "60", "--network.width", "16", "--seeds", "2"]
    train = ["train", "maze", "--method", "bc", "--out", run, *sizes]
    assert_error(diffclone(*train, "--snapshots", "20", "70"), "from 1 to 60, where the training ends; 70 is not")
    assert diffclone(*train, "--snapshots", "20", "40").code == 0
    assert diffclone("evaluate", run, "--snapshot", "20", "--episodes", "2").code == 0
    card = (run / "policy" / "README.md").read_text()
    assert diffclone("evaluate", run, "--episodes", "2").code == 0
    _, snapshot, last = Record.read_all(run / "records.jsonl")
    assert snapshot.results["snapshot"] == 20
    assert "snapshot" not in last.results
    # Nobody takes the score of a snapshot for that of the whole training.
    assert "None yet" in card
    assert identify_record(snapshot) is None
    assert identify_record(last) is not None
    assert_error(diffclone("evaluate", run, "--snapshot", "30"), "has no snapshot of update 30; it has 20, 40")
    assert_error(diffclone("evaluate", "--pretrained", "maze", "--snapshot", "30"), "a bundled policy has no snapshots")
