"""Fields in which the members of a stack differ, fields of the training among them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import Command
from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.errors import InvalidSettings
from diffclone.experiments.record_index import identify_record
from diffclone.fit import FitOptions, fit_with_options
from diffclone.methods import DiffusionPolicy
from diffclone.model import Batch, Dims, Method
from diffclone.nn import MLP
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.settings import from_dict, set_values, to_dict
from diffclone.training.learner import Learner
from diffclone.training.members import Stack, replace_fields, stackable_fields
from diffclone.training.runs import Run

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
SHORT = Training(updates=30, batch=16, lr=1e-3)
NETWORK = Network(width=16, depth=2)
CLONING = BC(training=SHORT, network=NETWORK)
GUIDED = DBC(training=SHORT, network=NETWORK, guide=DiffusionGuide(training=SHORT, width=16, steps=50))


def trained(method: Method[Any], seeds: Sequence[int] = (0, 1), **options: Any) -> Tensor:
    chosen = FitOptions(seeds=seeds, device="cpu", dtype=torch.float64, **options)
    net = fit_with_options(method, DEMOS, chosen).trained.net
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


@pytest.mark.parametrize(("cores", "decay"), [(1, "linear"), (3, "exponential")])
def test_a_stack_over_everything_equals_its_members_alone(cores: int, decay: Any) -> None:
    method = replace(GUIDED, training=replace(SHORT, updates=20, decay=decay, ema=0.9))
    vary = {
        "training.lr": [1e-3, 3e-4],
        "training.weight_decay": [0.0, 30.0],
        "coefficient": [0.0, 5.0],
        "away": [0.0, 1.0],
        "away_noise": [0.1, 0.5],
        "state_noise": [0.0, 0.2],
    }
    members = Stack.of(method, (3,), vary).members
    torch.set_num_threads(cores)
    try:
        stacked = trained(method, (3,), vary=vary)
    finally:
        torch.set_num_threads(1)
    assert len(stacked) == len(members) == 64
    for index in (0, 33, 38, 63):
        chosen = {name: value for name, value in members[index].items() if name != "seed"}
        alone = trained(replace_fields(method, chosen), (3,))
        assert torch.allclose(stacked[index], alone[0], rtol=0, atol=1e-10)
    # κ and σ do not matter without λ, nor σ without κ. All other members differ.
    settings = [
        (m["coefficient"] and m["away"] and m["away_noise"], m["coefficient"] and m["away"], m) for m in members
    ]
    others = [[value for name, value in m.items() if "away" not in name] for *_, m in settings]
    different = {(σ, κ, *rest) for (σ, κ, _), rest in zip(settings, others, strict=True)}
    assert len(np.unique(stacked.numpy().round(9), axis=0)) == len(different)


def make_learner(training: Training) -> Learner:
    model = BC(training=training, network=NETWORK)
    return Learner(model, model.init(Dims(2, 1), Rng([0, 1])["init"]), 10)


def test_weight_decay_by_hand() -> None:
    learner, plain = (make_learner(replace(SHORT, lr=0.01, weight_decay=decay)) for decay in (5.0, 0.0))
    before, gradient = plain.matrix.clone(), torch.randn(plain.matrix.shape)
    learner.plain_step([gradient], torch.tensor(0.01))
    plain.plain_step([gradient], torch.tensor(0.01))
    # Every number shrinks by 5 %, biases included, and Adam's step is not affected.
    assert torch.allclose(learner.matrix, plain.matrix - 0.05 * before, atol=1e-6)


def test_members_have_their_own_learning_rate_and_weight_decay() -> None:
    rates, decays = torch.tensor([0.01, 0.002]), torch.tensor([5.0, 0.0])
    learner = make_learner(replace(SHORT, lr=rates, weight_decay=decays, eps=1e-12))
    before, gradient = learner.matrix.clone(), torch.randn(learner.matrix.shape)
    learner.set_learning_rates(torch.tensor(5), 2)
    learner.step([gradient], 0)
    # Half of the updates are done, so the rates are half. The first step of Adam is the learning rate.
    expected = torch.stack([0.975 * before[0], before[1]]) - 0.5 * rates[:, None] * gradient.sign()
    assert torch.allclose(learner.matrix, expected, atol=1e-6)


def copying_policy() -> MLP:
    net = MLP(1, 1, Network(depth=0), Rng([0, 1]))
    with torch.no_grad():
        net.out.weight.fill_(1)
        net.out.bias.zero_()
    return net


@pytest.mark.parametrize("method", [CLONING, replace(GUIDED, coefficient=0.0)], ids=["bc", "dbc"])
def test_noise_on_states_by_hand(method: BC | DBC) -> None:
    net, parts = copying_policy(), {"guide": GUIDED.guide.init(Dims(1, 1), Rng([0, 1]))}
    s, a = torch.tensor([[1.0], [2.0]]).expand(2, 2, 1), torch.zeros(2, 2, 1)
    z = Rng([0, 1])["state noise"].normal(2, 1)
    for noise in (0.5, torch.tensor([0.5, 0.0])):
        loss = replace(method, state_noise=noise).loss(net, Batch(s, a), Rng([0, 1]), parts).logs["L_BC"]
        by_hand = (s + torch.as_tensor(noise).expand(2)[:, None, None] * z).square().mean((-2, -1))
        assert torch.allclose(loss, by_hand)
    on_held_out = replace(method, state_noise=0.5).loss(net, Batch(s, a, held_out=True), Rng([0, 1]), parts)
    assert on_held_out.logs["L_BC"].tolist() == [2.5, 2.5]


def test_the_guide_sees_states_without_noise() -> None:
    net, parts = copying_policy(), {"guide": GUIDED.guide.init(Dims(1, 1), Rng([0, 1]))}
    s, a = torch.randn(2, 8, 1), torch.randn(2, 8, 1)
    found = [
        replace(GUIDED, coefficient=1.0, state_noise=noise, away=0.0).loss(net, Batch(s, a), Rng([0, 1]), parts).logs
        for noise in (0.0, 0.3)
    ]
    assert torch.equal(found[0]["L_expert"], found[1]["L_expert"])
    assert not torch.equal(found[0]["L_agent"], found[1]["L_agent"])


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"training.lr": [1e-3, 0.0]}, r"lr, eps and clip must be above 0; they are 0\.0"),
        ({"training.weight_decay": [-1.0]}, r"weight_decay must not be negative; it is -1\.0"),
        ({"state_noise": [-1.0]}, r"state_noise must not be negative; it is -1\.0"),
        ({"training.batch": [16]}, r"cannot vary in 'training\.batch'; fields that can vary: coefficient, imitation"),
        ({"guide.training.lr": [1e-3]}, r"cannot vary in 'guide\.training\.lr'"),
        ({"training": [1e-3]}, r"cannot vary in 'training'"),
    ],
)
def test_values_that_cannot_vary_are_refused(vary: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(InvalidSettings, match=message):
        Stack.of(GUIDED, (0,), vary)


def test_all_methods_can_vary_in_their_training() -> None:
    training = ["training.lr", "training.weight_decay"]
    assert stackable_fields(CLONING) == ["state_noise", "smoothness", "smoothness_noise", *training]
    assert stackable_fields(GUIDED) == ["coefficient", "imitation", "away", "away_noise", "state_noise", *training]
    assert stackable_fields(DiffusionPolicy()) == training


def test_new_fields_are_left_out_of_settings_while_they_have_no_effect() -> None:
    old = to_dict(CLONING)
    assert "state_noise" not in old
    assert "weight_decay" not in old["training"]
    changed = replace(CLONING, state_noise=0.1, training=replace(SHORT, weight_decay=0.3))
    assert to_dict(changed) == set_values(old, {"state_noise": 0.1, "training.weight_decay": 0.3})
    for method in (CLONING, changed):
        assert from_dict(BC, to_dict(method)) == method


def test_a_record_of_members_is_found_by_their_settings() -> None:
    def record(method: Method[Any], **fields: float) -> Record:
        results = {"task": "maze", "options": {}, "starts": "evaluation", "protocol": "fixed"}
        members = [{"seed": 0, **{name.replace("__", "."): value for name, value in fields.items()}}]
        return Record("evaluation", to_dict(method), members, {"fingerprint": "x"}, results, "cpu", 1.0)

    varied = identify_record(record(CLONING, training__lr=0.25, state_noise=0.0))
    assert varied is not None
    assert varied == identify_record(record(replace(CLONING, training=replace(SHORT, lr=0.25))))
    assert varied != identify_record(record(CLONING))


def test_varying_the_training_on_the_command_line(diffclone: Command, tmp_path: Any) -> None:
    out, sizes = tmp_path / "run", ["--training.updates", "3", "--network.width", "8", "--seeds", "2"]
    vary = ["--vary", "training.lr=0.01,0.001", "state_noise=0.1"]
    assert diffclone("train", "maze", "--method", "bc", "--out", out, *sizes, *vary).code == 0
    assert Run(out).policy().members[2] == {"seed": 0, "training.lr": 0.001, "state_noise": 0.1}
    result = diffclone("evaluate", out, "--where", "training.lr=0.001", "--episodes", "1", "--json")
    assert result.code == 0
