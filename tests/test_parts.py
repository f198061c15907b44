"""Parts: models that other models need, and the guide that a policy keeps."""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Encoder, GANGuide, Network, Training, fit, records
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings
from diffclone.fit import FitOptions, fit_with_options
from diffclone.model import Batch, Dims, Guide, Losses, Method, Model, Parts
from diffclone.nn import MLP, Linear
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.shapes import Act, Costs, Obs
from diffclone.training import Progress
from diffclone.training.guide import TrainedGuide
from diffclone.training.runs import Run, train_run

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
BRIEF = Training(updates=40, batch=16, lr=1e-3)
NETWORK = Network(width=16, depth=2)
GUIDE = DiffusionGuide(training=BRIEF, width=16, steps=50)
GUIDED = DBC(training=BRIEF, network=NETWORK, coefficient=1.0, away=1.0, guide=GUIDE)


@final
@dataclass(frozen=True)
class Features(Model[Linear]):
    """Three linear features that predict the action's sign."""

    training: Training = BRIEF
    trained_when: Literal["before", "alongside"] = "before"

    @property
    def trained(self) -> Literal["before", "alongside"]:
        return self.trained_when

    def init(self, dims: Dims, rng: Rng) -> Linear:
        return Linear(dims.obs, 3, rng)

    def loss(self, weights: Linear, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Losses((weights(batch.obs).mean(-1, keepdim=True) - batch.act).square().mean((-2, -1)))


@final
@dataclass(frozen=True)
class FeatureGuide(Guide[MLP]):
    """A guide that needs features itself: the cost is a distance from a predicted action."""

    training: Training = BRIEF
    features: Features = Features()

    def needs(self) -> Mapping[str, Model[Any]]:
        return {"features": self.features}

    def init(self, dims: Dims, rng: Rng) -> MLP:
        return MLP(3, dims.act, NETWORK, rng)

    def loss(self, weights: MLP, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        return Losses(self.cost(weights, batch.obs, batch.act, None, parts).mean(-1))

    def draw(self, batch: int, dims: Dims, rng: Rng) -> None:
        return None

    def cost(self, weights: MLP, obs: Obs, act: Act, draw: None, parts: Parts | None = None) -> Costs:
        assert parts is not None
        return (weights(parts["features"](obs)) - act).square().mean(-1)


NESTED = DBC(training=BRIEF, network=NETWORK, coefficient=1.0, away=1.0, guide=FeatureGuide())


def rows(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


def fit64(method: Method[Any], seeds: tuple[int, ...], **options: Any) -> dict[str, Tensor]:
    fitted = fit_with_options(method, DEMOS, FitOptions(seeds=seeds, device="cpu", dtype=torch.float64, **options))
    return {"policy": rows(fitted.trained.net), **{name: rows(net) for name, net in fitted.trained.parts.items()}}


def test_a_part_of_a_part_is_trained_first_and_reaches_loss_and_cost(tmp_path: Path) -> None:
    seen: list[Progress] = []
    policy = fit(NESTED, DEMOS, seeds=(0, 1), device="cpu", cache=tmp_path, progress=seen.append)
    assert list(dict.fromkeys(now.stage for now in seen)) == ["guide.features", "guide", "policy"]
    assert policy.guide is not None
    assert set(policy.guide.parts) == {"guide.features", "guide"}
    seen.clear()
    fit(NESTED, DEMOS, seeds=(0, 1), device="cpu", cache=tmp_path, progress=seen.append)
    assert {now.stage for now in seen} == {"policy"}


def test_a_member_with_nested_parts_is_the_same_alone_or_stacked(tmp_path: Path) -> None:
    stacked = fit64(NESTED, (0, 1), vary={"coefficient": [0.5, 1.0]})
    alone = fit64(NESTED, (1,))
    for name, matrix in stacked.items():
        assert torch.allclose(matrix[3], alone[name][0], rtol=1e-9, atol=1e-12), name
    # One seed is in the cache, the other is not.
    fit64(NESTED, (1,), cache=tmp_path)
    mixed = fit64(NESTED, (0, 1), vary={"coefficient": [0.5, 1.0]}, cache=tmp_path)
    assert all(torch.allclose(mixed[name], matrix, rtol=1e-9, atol=1e-12) for name, matrix in stacked.items())


@pytest.mark.parametrize("method", [GUIDED, NESTED], ids=["guide", "nested parts"])
def test_members_share_one_guide(method: DBC, tmp_path: Path) -> None:
    shared = fit64(method, (0, 1, 2), guide_seed=1, cache=tmp_path)
    alone, own = fit64(method, (1,)), fit64(method, (0, 1, 2))
    assert len(shared["policy"]) == 3
    assert all(len(matrix) == 1 for name, matrix in shared.items() if name != "policy")
    # The member with the guide's seed is that of a run with this seed alone; the others have another guide than usual.
    for name, matrix in shared.items():
        assert torch.allclose(matrix[1 if name == "policy" else 0], alone[name][0], rtol=1e-9, atol=1e-12), name
    assert not torch.allclose(shared["policy"][0], own["policy"][0], rtol=1e-3)
    # The guide is in the cache, where a run with its seed finds it, and a run of other seeds that shares it.
    assert torch.allclose(fit64(method, (2,), guide_seed=1, cache=tmp_path)["policy"][0], shared["policy"][2])
    seen: list[Progress] = []
    fit_with_options(
        method, DEMOS, FitOptions(seeds=(1,), device="cpu", dtype=torch.float64, cache=tmp_path), seen.append
    )
    assert {now.stage for now in seen} == {"policy"}


def test_a_run_with_a_shared_guide_is_not_resumed_with_another_one(tmp_path: Path) -> None:
    options = FitOptions(seeds=(0, 1), guide_seed=0, device="cpu")
    run = train_run(tmp_path / "run", GUIDED, DEMOS, options)
    assert Record.read_all(run.records)[0].results["guide_seed"] == 0
    guide = Run(tmp_path / "run").policy()[1].guide
    assert guide is not None
    assert len(guide) == 1
    for seed in (1, None):
        with pytest.raises(InvalidFile, match=r"holds another run .*guide_seed"):
            train_run(tmp_path / "run", GUIDED, DEMOS, replace(options, guide_seed=seed))
    fit_with_options(GUIDED, DEMOS, replace(options, checkpoints=tmp_path / "checkpoints"))
    with pytest.raises(InvalidFile, match=r"checkpoint of another training .*guide_seed"):
        fit_with_options(GUIDED, DEMOS, replace(options, guide_seed=1, checkpoints=tmp_path / "checkpoints"))


@pytest.mark.parametrize(
    "method",
    [BC(training=BRIEF, network=NETWORK), replace(GUIDED, guide=GANGuide(training=BRIEF, width=8))],
    ids=["bc", "gan"],
)
def test_a_guide_that_cannot_be_shared_is_refused(method: Method[Any], tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSettings, match=r"guide_seed is 0, but D?BC has no guide that is trained before the policy"
    ):
        train_run(tmp_path / "run", method, DEMOS, FitOptions(guide_seed=0, device="cpu"))
    assert not (tmp_path / "run").exists()


@final
@dataclass(frozen=True)
class Nested(Method[MLP]):
    """A method whose part needs a part, without any guide."""

    training: Training = BRIEF
    inner: FeatureGuide = FeatureGuide()

    def needs(self) -> Mapping[str, Model[Any]]:
        return {"inner": self.inner}

    def init(self, dims: Dims, rng: Rng) -> MLP:
        return MLP(dims.obs, dims.act, NETWORK, rng)

    def loss(self, weights: MLP, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        predicted = cast(MLP, parts["inner"])(cast(Linear, parts["inner.features"])(batch.obs))
        return Losses((weights(batch.obs) - predicted).square().mean((-2, -1)))

    def act(self, weights: MLP, obs: Obs, rng: Rng) -> Act:
        return weights(obs)


def test_a_method_whose_part_needs_a_part() -> None:
    policy = fit(Nested(), DEMOS, seeds=(0, 1), device="cpu")
    assert policy.guide is None
    assert policy(X[:3]).shape == (2, 3, 1)
    with pytest.raises(InvalidSettings, match="Features is trained alongside a policy; it cannot be a part of Feat"):
        fit(Nested(inner=FeatureGuide(features=Features(trained_when="alongside"))), DEMOS, device="cpu")


def test_a_guide_trained_alongside_may_receive_features() -> None:
    image = (1, 36, 36)
    network = replace(NETWORK, image=image)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 36 * 36)).astype(np.uint8)
    demos = Demonstrations.from_arrays(pixels, X[:40, :1], episode_ends=[40])
    encoder = Encoder(training=BRIEF, network=network, features=4, pool=6)
    method = DBC(training=BRIEF, network=network, encoder=encoder, guide=GANGuide(training=BRIEF, width=8))
    policy = fit(method, demos, device="cpu")
    assert policy.guide is not None
    assert policy.guide.cost(demos.obs, demos.act).shape == (40,)


# The guide of a policy.


def test_a_policys_guide_prefers_the_experts_pairs_and_is_deterministic() -> None:
    method = replace(GUIDED, guide=replace(GUIDE, training=replace(BRIEF, updates=400), draws=8))
    guide = fit(method, DEMOS, device="cpu").guide
    assert guide is not None
    assert guide.guide == method.guide
    expert, shuffled = (guide.cost(DEMOS.obs, act) for act in (DEMOS.act, np.roll(DEMOS.act, 71, 0)))
    assert expert.shape == (200,)
    assert expert.mean() < shuffled.mean()
    assert np.array_equal(expert, guide.cost(DEMOS.obs, DEMOS.act))
    assert guide.cost(DEMOS.obs[0], DEMOS.act[0]).shape == ()
    with pytest.raises(InvalidData, match=r"shape \(3,\) and the action \(1,\); this guide expects \(2,\) and \(1,\)"):
        guide.cost(np.zeros(3), np.zeros(1))


def test_each_member_keeps_its_own_guide() -> None:
    policy = fit(GUIDED, DEMOS, seeds=(0, 1), vary={"coefficient": [0.5, 1.0]}, device="cpu")
    assert policy.guide is not None
    together = policy.guide.cost(DEMOS.obs, DEMOS.act)
    assert together.shape == (4, 200)
    for member in range(4):
        own = policy[member].guide
        assert own is not None
        assert np.allclose(own.cost(DEMOS.obs, DEMOS.act), together[member], rtol=1e-5)
    assert not np.allclose(together[0], together[1])
    shared = fit(GUIDED, DEMOS, vary={"coefficient": [0.5, 1.0]}, device="cpu")[1].guide
    assert shared is not None
    assert len(shared) == 1
    assert fit(BC(training=BRIEF, network=NETWORK), DEMOS, device="cpu").guide is None


def test_a_run_returns_the_policy_and_its_guide(tmp_path: Path) -> None:
    for name, method in (("guided", GUIDED), ("nested", NESTED)):
        run = train_run(tmp_path / name, method, DEMOS, FitOptions(seeds=(0, 1), device="cpu"))
        assert run.policy() is run.policy()  # still in memory
        again = Run(tmp_path / name).policy()
        ours, theirs = run.policy()[1].guide, again[1].guide
        assert isinstance(ours, TrainedGuide)
        assert isinstance(theirs, TrainedGuide)
        assert np.array_equal(ours.cost(DEMOS.obs, DEMOS.act), theirs.cost(DEMOS.obs, DEMOS.act))
        assert np.array_equal(again(X), run.policy()(X))


def test_a_copy_of_the_source_that_is_not_installed_trains_a_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_metadata(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    records._versions.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", without_metadata)
        options = FitOptions(device="cpu", cache=tmp_path)
        first, again = (fit_with_options(GUIDED, DEMOS, options).policy for _ in range(2))
    records._versions.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    assert np.array_equal(first(X), again(X))


def test_the_weights_of_a_runs_guide_are_read_when_they_are_used(tmp_path: Path) -> None:
    train_run(tmp_path / "run", GUIDED, DEMOS, FitOptions(device="cpu"))
    policy = Run(tmp_path / "run").policy()
    (tmp_path / "run" / "parts" / "guide.safetensors").unlink()
    policy(X)
    assert policy.guide is not None
    with pytest.raises(InvalidFile, match="no such file"):
        policy.guide.cost(DEMOS.obs, DEMOS.act)
