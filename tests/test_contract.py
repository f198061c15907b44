"""What every registered method and guide owes. A new entry is tested by being registered."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffclone import BC, DBC, Demonstrations, Policy, Training, fit
from diffclone.fit import FitOptions, Fitted, fit_with_options
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Dims, Guide, Method, Model
from diffclone.nn.energy import Langevin
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.training import Progress

M = TypeVar("M", bound=Model[Any])

SMALL = {"width": 32, "blocks": 1, "training_walk": Langevin(steps=3), "walks": 8, "samples": 100}
BRIEF = Training(updates=70, batch=32, lr=1e-3)
LONGER = Training(updates=2500, batch=64, lr=1e-3, clip=None)


def make_demos() -> Demonstrations:
    """An expert whose action is a function of what it sees."""
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    act = np.stack([np.sin(3 * x[:, 0]), x[:, 0] * x[:, 1]], 1)
    bounds = {"action_bounds": [[-1.0, -1.0], [1.0, 1.0]]}
    return Demonstrations.from_arrays(x, act, episode_ends=np.arange(50, 401, 50), meta=bounds)


DEMOS = make_demos()


def small(model: M, training: Training = BRIEF) -> M:
    """The same with narrow networks and little training, and so for what it needs."""
    changes: dict[str, Any] = {"training": training}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.name in SMALL:
            changes[field.name] = SMALL[field.name]
        elif field.name == "gate":
            changes["gate"] = "none"  # a shut gate would hide a coefficient
        elif field.name == "network":
            changes["network"] = dataclasses.replace(value, width=32, depth=2)
        elif isinstance(value, Guide):
            changes[field.name] = small(value, training)
    return dataclasses.replace(model, **changes)


def every_method() -> dict[str, Method[Any]]:
    """Each method; one that takes a guide, with each guide."""
    methods: dict[str, Method[Any]] = {}
    for name, cls in METHODS.items():
        if "guide" in {field.name for field in dataclasses.fields(cls)}:
            for guide in GUIDES:
                methods[f"{name}+{guide}"] = from_dict(cls, {"guide": {"type": guide}})
        else:
            methods[name] = cls()
    return {name: small(method) for name, method in methods.items()}


EVERY = every_method()
methods = pytest.mark.parametrize("name", EVERY)
guides = pytest.mark.parametrize("guide", GUIDES)


def stackable_fields(method: Method[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(method) if field.metadata.get("stackable")]


STACKABLE = [(name, field) for name, method in EVERY.items() for field in stackable_fields(method)]


def fit64(method: Method[Any], seeds: tuple[int, ...], vary: dict[str, list[float]] | None = None) -> Fitted:
    return fit_with_options(method, DEMOS, FitOptions(seeds=seeds, vary=vary, dtype=torch.float64, device="cpu"))


def rows(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


def every_row(fitted: Fitted) -> Tensor:
    """The weights of each member and of the parts it was trained with, those shared repeated."""
    matrices = [rows(net) for net in (fitted.trained.net, *fitted.trained.parts.values())]
    return torch.cat([matrix.expand(len(fitted.policy), -1) for matrix in matrices], 1)


@methods
@pytest.mark.parametrize("seeds", [(0, 1), (3,)], ids=["two seeds", "one seed, a shared guide"])
def test_a_member_is_the_same_alone_or_stacked(name: str, seeds: tuple[int, ...]) -> None:
    method = EVERY[name]
    vary = {field: [0.3, 2.0] for field in stackable_fields(method)}
    stacked = fit64(method, seeds, vary)
    for member, row in zip(stacked.policy.members, every_row(stacked), strict=True):
        fields = {field: value for field, value in member.items() if field != "seed"}
        alone = every_row(fit64(dataclasses.replace(method, **fields), (int(member["seed"]),)))[0]
        assert (row - alone).abs().max() < 1e-9 * alone.abs().max()


@methods
def test_members_are_different(name: str) -> None:
    vary = {field: [0.3, 2.0] for field in stackable_fields(EVERY[name])}
    members = rows(fit64(EVERY[name], (0, 1), vary).trained.net)
    assert torch.pdist(members).min() > 1e-5


@pytest.mark.parametrize(("name", "field"), STACKABLE)
def test_a_member_that_is_nan_by_its_settings_leaves_the_others(name: str, field: str) -> None:
    sound, poisoned = (fit64(EVERY[name], (0, 1), {field: [first, 1.0]}) for first in (2.0, float("nan")))
    assert poisoned.policy.diverged == [0, 1]
    assert torch.equal(rows(poisoned.trained.net)[2:], rows(sound.trained.net)[2:])


@methods
def test_a_member_that_is_nan_from_the_start_leaves_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = EVERY[name]
    sound = every_row(fit64(method, (0, 1)))
    for model in (method, *method.needs().values()):
        init = type(model).init

        def poisoned_init(self: Model[Any], dims: Dims, rng: Rng, init: Any = init) -> nn.Module:
            net = init(self, dims, rng)
            if len(rng.seeds) == 2:
                for parameter in net.parameters():
                    parameter.data[0] = float("nan")
            return net

        with monkeypatch.context() as patch:
            patch.setattr(type(model), "init", poisoned_init)
            poisoned = fit64(method, (0, 1))
        assert poisoned.policy.diverged == [0]
        assert torch.equal(every_row(poisoned)[1], sound[1])


@guides
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_guide_of_no_weight_changes_no_bit(guide: str, dtype: torch.dtype) -> None:
    bc, dbc = small(BC()), small(DBC(coefficient=0.0, guide=GUIDES[guide]()))
    options = FitOptions(seeds=(0, 1), dtype=dtype, device="cpu")
    plain, guided = (fit_with_options(m, DEMOS, options) for m in (bc, dbc))
    assert torch.equal(rows(plain.trained.net), rows(guided.trained.net))


@pytest.mark.parametrize("model", [*EVERY.values(), *(small(GUIDES[guide]()) for guide in GUIDES)])
def test_settings_round_trip_through_json(model: Model[Any]) -> None:
    values = to_dict(model)
    base = Method if isinstance(model, Method) else Guide
    assert from_dict(base, values) == model
    assert from_dict(base, json.loads(json.dumps(values))) == model


@methods
def test_every_loss_falls(name: str) -> None:
    seen: list[Progress] = []
    method = small(EVERY[name], dataclasses.replace(BRIEF, updates=320))
    if isinstance(method, DBC):
        method = dataclasses.replace(method, coefficient=0.1)  # a guide of the same strength may win at first
    fit(method, DEMOS, seeds=(0, 1), device="cpu", progress=seen.append)
    # What is trained alongside may well make the sum rise.
    falling = "L_BC" if any(guide.trained == "alongside" for guide in method.needs().values()) else "loss"
    for stage in {progress.stage for progress in seen}:
        losses = [now.losses[falling] for now in seen if now.stage == stage]
        assert np.all(np.mean(losses[-3:], 0) < losses[0]), stage


@guides
def test_the_experts_pairs_cost_less_than_others(guide: str) -> None:
    # Shuffled pairs have the expert's states and the expert's actions, but not together. A guide that learns alongside
    # a policy knows that policy's answers, so those are the others; the policy learns too slowly to matter.
    method = small(DBC(coefficient=1.0, guide=GUIDES[guide]()), LONGER)
    alongside = method.guide.trained == "alongside"
    policy_training = dataclasses.replace(LONGER, lr=1e-9) if alongside else BRIEF
    chosen = dataclasses.replace(method, training=policy_training)
    fitted = fit_with_options(chosen, DEMOS, FitOptions(seeds=(0, 1), device="cpu"))
    normaliser, dims = fitted.policy.normaliser, Dims(2, 2)
    obs = normaliser.normalise_obs(torch.tensor(DEMOS.obs)).expand(2, -1, -1)
    act = normaliser.normalise_act(torch.tensor(DEMOS.act)).expand(2, -1, -1)
    rng, expert, others = Rng([8, 9])["judge"], torch.zeros(2), torch.zeros(2)
    with torch.no_grad():
        answers = fitted.policy.method.act(fitted.policy.net, obs, rng)
        for k in range(1, 21):
            draw = method.guide.draw(len(DEMOS), dims, rng)
            expert += method.guide.cost(fitted.trained.parts["guide"], obs, act, draw).mean(-1) / 20
            other = answers if alongside else act.roll(17 * k, -2)
            others += method.guide.cost(fitted.trained.parts["guide"], obs, other, draw).mean(-1) / 20
    assert torch.all(expert < others), (expert, others)


@methods
def test_the_same_draw_gives_the_same_cost(name: str) -> None:
    for guide in EVERY[name].needs().values():
        assert isinstance(guide, Guide)
        dims, rng = Dims(3, 2), Rng([0, 1])
        weights = guide.init(dims, rng["init"])
        obs, act = rng["obs"].normal(7, 3), rng["act"].normal(7, 2)
        draw = guide.draw(7, dims, rng["guide"])
        first, second = guide.cost(weights, obs, act, draw), guide.cost(weights, obs, act, draw)
        assert first.shape == (2, 7)
        assert torch.equal(first, second)


@methods
def test_a_policy_acts_the_same_after_saving(name: str, tmp_path: Path) -> None:
    policy = fit(EVERY[name], DEMOS, seeds=(0, 1), device="cpu")
    policy.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    assert again.method == policy.method
    assert again.members == policy.members
    assert np.array_equal(again(DEMOS.obs), policy(DEMOS.obs))


@methods
def test_actions_have_the_right_shape_and_stay_in_bounds(name: str) -> None:
    policy = fit(EVERY[name], DEMOS, seeds=(0, 1, 2), device="cpu")
    far = np.array([[1e6, -1e6], [0.0, 0.0], [1e-30, 5.0], [0.3, 0.3]])
    together = policy(far)
    assert together.shape == (3, 4, 2)
    assert np.isfinite(together).all()
    assert np.abs(together).max() <= 1
    assert policy(far[0]).shape == (3, 2)
    assert policy[1](far[0]).shape == (2,)
    assert policy[1](torch.tensor(far)).shape == torch.Size([4, 2])
    assert policy(np.stack([far] * 3)).shape == (3, 4, 2)
    assert np.allclose(policy[1](far), together[1], atol=1e-6)
