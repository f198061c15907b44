"""Members over several GPUs. There is none here: two shares of the CPU stand for two devices with their own copies."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diffclone.fit import FitOptions, fit_with_options
from diffclone.training import shares
from diffclone.training.shares import list_places
from diffclone.training.step import Dataset
from streaming_examples import BC_SMALL, DBC_SMALL, DEMOS, MEMORY, stream, write_shards


def test_all_visible_gpus_are_used_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert [str(place) for place in list_places(torch.device("cuda"))] == ["cuda:0", "cuda:1", "cuda:2"]
    assert list_places(torch.device("cuda:1")) == [torch.device("cuda:1")]
    assert set(list_places(torch.device("cpu"))) == {torch.device("cpu")}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert list_places(torch.device("cuda")) == [torch.device("cuda")]


def one_place(device: torch.device) -> list[torch.device]:
    return [device]


def two_places(device: torch.device) -> list[torch.device]:
    return [device, device]


def train(method: Any, demos: Any, **options: Any) -> dict[str, Tensor]:
    chosen = FitOptions(seeds=(0, 1, 2), device="cpu", dtype=torch.float64, held_out=DEMOS.take([0, 1]), **options)
    found = fit_with_options(method, demos, chosen).trained
    nets = {"policy": found.net, **found.parts, **{str(n): net for n, net in found.snapshots.items()}}
    return {name: torch.cat([p.detach().flatten(1) for p in net.parameters()], 1) for name, net in nets.items()}


@pytest.mark.parametrize("source", ["memory", "files"])
def test_each_device_has_its_own_copy_of_data_and_guide(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffclone.training.feed.EVERY", 16)
    demos = DEMOS if source == "memory" else stream(write_shards(DEMOS, tmp_path / "npz"), MEMORY)
    monkeypatch.setattr(shares, "list_places", one_place)
    alone = train(DBC_SMALL, demos, snapshots=(20,))
    copies: list[Dataset] = []

    def copy_data(data: Dataset, device: torch.device) -> Dataset:
        real = None if data.real is None else data.real.clone()
        copies.append(replace(data, obs=data.obs.clone(), act=data.act.clone(), real=real))
        return copies[-1]

    def copy_net(net: nn.Module, device: torch.device) -> nn.Module:
        return copy.deepcopy(net)

    monkeypatch.setattr(shares, "list_places", two_places)
    monkeypatch.setattr(shares, "move_net", copy_net)
    monkeypatch.setattr(Dataset, "to", copy_data)
    shared = train(DBC_SMALL, demos, snapshots=(20,), checkpoints=tmp_path / "checkpoints")
    assert len({data.obs.data_ptr() for data in copies}) == len(copies) >= 4
    assert all(torch.allclose(shared[name], alone[name], rtol=1e-8) for name in alone)
    again = train(DBC_SMALL, demos, snapshots=(20,), checkpoints=tmp_path / "checkpoints")
    assert all(torch.equal(again[name], shared[name]) for name in shared)


def test_members_vary_over_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    vary = {"training.lr": [1e-3, 1e-2]}
    monkeypatch.setattr(shares, "list_places", one_place)
    alone = train(BC_SMALL, DEMOS, vary=vary)["policy"]
    monkeypatch.setattr(shares, "list_places", two_places)
    assert torch.allclose(train(BC_SMALL, DEMOS, vary=vary)["policy"], alone, rtol=1e-8)
